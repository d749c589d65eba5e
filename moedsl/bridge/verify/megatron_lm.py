"""Ask Megatron-LM's own functions what a list of arguments means, in a process that has NVIDIA's code.

`configuration` is what `pretrain_gpt.py` and `pretrain_hybrid.py` do with their arguments before they build anything:
`parse_args` and `validate_args`, then `core_transformer_config_from_args` and its neighbours, which make the sections
of a configuration with the names of Bridge's ConfigContainer. Citations are to megatron-core 0.19.2.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import io
import os
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

from moedsl.bridge.verify.configs import LAYOUT, layout, plain


@cache
def parser() -> ArgumentParser:
    """Return Megatron-LM's parser with all its arguments (megatron/training/arguments.py:47)."""
    made = ArgumentParser(allow_abbrev=False, exit_on_error=False)
    return importlib.import_module("megatron.training.arguments").add_megatron_arguments(made)


def parsed(arguments: Sequence[str]) -> Namespace:
    """Parse as `parse_args` does (megatron/training/arguments.py:118); raise ValueError with what argparse says."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            args = parser().parse_args(arguments, copy.deepcopy(_defaults()))
    except (Exception, SystemExit) as error:
        raise ValueError(said.getvalue().strip().rpartition("error: ")[2] or str(error)) from error
    args._is_global_batch_size_explicitly_specified = args.global_batch_size is not None
    args.rank, args.world_size = int(os.getenv("RANK", "0")), int(os.getenv("WORLD_SIZE", "1"))
    return args


@cache
def _defaults() -> Namespace:
    """Return all defaults. `validate_args` appends to lists among them, so each parse needs its own copy."""
    return parser().parse_args([])


def validated(args: Namespace) -> Namespace:
    """Let Megatron-LM check and complete parsed arguments in place; raise what it raises, and SystemExit."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("megatron.training.arguments").validate_args(args)
    return args


def configuration(args: Namespace) -> dict[str, Any]:
    """Return the JSON value of each `section.field` that validated arguments make; the TransformerConfig is in `model`,
    as in Bridge, whose providers extend it."""
    of: Any = importlib.import_module("megatron.training.argument_utils")
    make = of.gpt_config_from_args if args.hybrid_layer_pattern is None else of.hybrid_config_from_args
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        container = of.pretrain_cfg_container_from_args(args, make(args))
    out: dict[str, Any] = {}
    for section in dataclasses.fields(container):
        outer = getattr(container, section.name)
        inner = getattr(outer, "transformer", None)
        for value in (outer, inner) if inner is not None else (outer,):
            if dataclasses.is_dataclass(value):
                out |= {
                    f"{section.name}.{n}": _plain(v)
                    for n, v in vars(value).items()
                    if n != "transformer" and n[0] != "_"
                }
    if LAYOUT in out:
        out[LAYOUT] = layout(container.model.transformer.pipeline_model_parallel_layout)
    return out


def _plain(value: Any) -> Any:
    """Convert a value to JSON; a function to its name, as an activation is told apart."""
    return f"<{value.__name__}>" if callable(value) and hasattr(value, "__name__") else plain(value)
