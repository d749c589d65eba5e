"""Write every argument of the installed Megatron-LM to moedsl/facts/megatron_arguments.json.

usage: .venv/bin/python tools/make_megatron_arguments.py [FILE]     needs the real megatron-core, which .venv has
Shape: {"core": version, "arguments": {dest: [{"flags", "action": "value", "true", "false" or "either", "type", "nargs",
"choices", "default", "group", "fields": {path: "=" or JSON}, "also": {path: "=" or JSON}, "named": path}]},
"unread": {path: JSON}}
A dest that several flags share has an entry for each. "fields" are the fields of a configuration (with Bridge's names)
that read the argument, asked of Megatron-LM's own functions one argument at a time, on a dense, an MoE, an MLA and a
hybrid model, without their checks: "=" where the field takes the argument's value, otherwise the value that it took.
"also" are fields that Megatron-LM's checks change because of the argument. The data set's fields are made in
pretrain_gpt.py, which the wheel lacks: "named" is the field of Bridge's data set with the argument's name.
"unread" are the fields that no argument decides, with the value that they have in each of these models.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import enum
import json
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import megatron_lm, stand_ins
from moedsl.bridge.verify.cases import Device
from moedsl.bridge.verify.configs import LAYOUT, plain
from moedsl.facts.fields import fields

Made = dict[str, Any]
FILE = Path(__file__).resolve().parents[1] / "moedsl" / "facts" / "megatron_arguments.json"
DEVICE = Device("NVIDIA GB200", (10, 0), 192 << 30, 148)
WORLD = 64
_PLAIN = """--num-layers 8 --hidden-size 1024 --ffn-hidden-size 4096 --num-attention-heads 16 --kv-channels 64
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --vocab-size 32000
    --train-iters 100 --lr 1e-3 --min-lr 1e-4 --bf16 --tokenizer-type NullTokenizer --eval-interval 10
    --eval-global-batch-size 128 --eval-micro-batch-size 1 --pipeline-model-parallel-size 2
    --expert-tensor-parallel-size 1"""
_DENSE = f"{_PLAIN} --position-embedding-type rope --swiglu"
_MOE = f"""{_DENSE} --num-experts 8 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 512
    --moe-grouped-gemm --expert-model-parallel-size 2 --group-query-attention --num-query-groups 8"""
BASES = (
    _DENSE,
    f"{_PLAIN} --position-embedding-type yarn --disable-bias-linear --tensor-model-parallel-size 2",
    f"{_DENSE} --num-experts 8 --multi-latent-attention --moe-ffn-hidden-size 512 --recompute-granularity full "
    "--recompute-method uniform --recompute-num-layers 1",
    f"{_DENSE} --hybrid-layer-pattern M*M-M*M- --recompute-granularity selective",
    f"{_MOE} --use-megatron-fsdp --use-distributed-optimizer --ckpt-format fsdp_dtensor --save /tmp/none "
    "--save-interval 100 --mock-data",
)
TRIED = {
    "multiples": (2, 4, 3, 1, 0, 7),
    "fractions": (0.5, 0.25, 2.0, 0.05),
    "str": ("tried",),
    "word": (),
    "pattern": ("[1]*4+[0]*4", "2"),
    "integers": ("128,0",),
}
"""Values to try for each type, until one changes the default and is accepted."""

SPELLED = {"pipeline_model_parallel_layout": ("Et*4|t*4L",)}


def main() -> None:
    """Write the table in the order of the parser."""
    stand_ins.install_engine()
    stand_ins.install_mamba()
    stand_ins.install_sparse_attention()
    megatron_lm.parser()  # before there are ranks, whose number is a default
    stand_ins.answer(DEVICE, WORLD, 0)
    found: dict[str, list[dict[str, Any]]] = {}
    bases: list[tuple[list[str], Made]] = [
        ([*b.split()], _configuration(megatron_lm.validated(megatron_lm.parsed(b.split())))) for b in BASES
    ]
    groups = {id(a): g.title for g in megatron_lm.parser()._action_groups for a in g._group_actions}
    dataset = {p.partition(".")[2] for p in fields() if p.startswith("dataset.")}
    for action in megatron_lm.parser()._actions:
        if action.dest == "help":
            continue
        entry: Made = {"flags": list(action.option_strings), **_form(action), "group": groups[id(action)]}
        made, also = _fields(action, entry["type"], bases)
        entry |= {name: values for name, values in (("fields", made), ("also", also)) if values}
        if action.dest in dataset and not any(p.partition(".")[2] == action.dest for p in made):
            entry["named"] = f"dataset.{action.dest}"
        found.setdefault(action.dest, []).append({k: v for k, v in entry.items() if v is not None})
    read = {p for entries in found.values() for e in entries for p in (*e.get("fields", ()), *e.get("also", ()))}
    every = {p: [made[p] for _, made in bases if p in made] for _, made in bases for p in made}
    unread = {p: v[0] for p, v in every.items() if p not in read and v == v[:1] * len(v) and str(v[0]) != "inf"}
    lines = (f"  {json.dumps(dest)}: {json.dumps(entries)}" for dest, entries in found.items())
    text = f'{{\n "core": "{version("megatron-core")}",\n "arguments": {{\n' + ",\n".join(lines)
    text += f'\n }},\n "unread": {json.dumps(unread)}\n}}\n'
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(text, encoding="utf-8")
    print(f"{len(found)} arguments, {sum('fields' in e for es in found.values() for e in es)} with fields")


def _configuration(args: argparse.Namespace) -> dict[str, Any]:
    """The configuration, without what the seed alone makes and objects with no value to compare."""
    made = megatron_lm.configuration(args)
    return {p: v for p, v in made.items() if not (isinstance(v, str) and v.startswith("<") and v != "<silu>")} | {
        p: v for p, v in made.items() if p == "model.activation_func"
    }


def _form(action: argparse.Action) -> Made:
    """The action, type, number of values, words and default of an argument."""
    kinds = {"_StoreTrueAction": "true", "_StoreFalseAction": "false", "BooleanOptionalAction": "either"}
    kind = kinds.get(type(action).__name__, "value")
    default = action.default if action.default is not argparse.SUPPRESS else None
    form: Made = {"action": kind, "type": None, "nargs": None, "choices": None, "default": _written(default)}
    if kind == "value":
        names: Mapping[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", None: "str"}
        named = getattr(action.type, "__name__", "")
        words = [*action.choices] if action.choices is not None else None
        if named == "_parse_cuda_graph_modules_arg":
            from megatron.core.transformer.enums import CudaGraphModule

            words = [*CudaGraphModule]
        handlers = {"tuple_type": "integers", "enum_type_handler": "word", "_parse_cuda_graph_modules_arg": "word"}
        form["type"] = names.get(action.type) or handlers.get(named) or "pattern"
        form["choices"] = [_written(w) for w in words] if words is not None else None
        form["nargs"] = action.nargs
    return form


def _written(value: Any) -> Any:
    """A default as a command line writes it: a member of an enumeration by its name."""
    return value.name if isinstance(value, enum.Enum) else plain(value)


def _fields(action: argparse.Action, kind: str | None, bases: Sequence[tuple[list[str], Made]]) -> tuple[Made, Made]:
    """The fields that read the argument after the checks, and the others that change when it is given before them."""
    direct, also = dict[str, Any](), dict[str, Any]()
    for base, _ in bases:
        for words in _tries(action, kind):
            args = copy.deepcopy(_checked(tuple(base)))
            value, now = getattr(megatron_lm.parsed(words), action.dest), getattr(args, action.dest, None)
            if value == now and not isinstance(value, bool):
                continue
            with _unchecked():
                try:
                    given = _configuration(args)
                    setattr(args, action.dest, not value if value == now else value)
                    other = _configuration(args)
                    before, after = (other, given) if value == now else (given, other)
                    changed = _changed(before, after, value)
                except (AssertionError, AttributeError, TypeError, ValueError, OSError):  # the model has no such part
                    continue
            direct |= {p: v for p, v in changed.items() if direct.get(p) != "="}
            if changed:
                break
    for base, before in bases:
        for words in _tries(action, kind):
            try:
                args = megatron_lm.validated(megatron_lm.parsed([*base, *words]))
                given = getattr(megatron_lm.parsed(words), action.dest)
                changed = _changed(before, _configuration(args), given)
            except (Exception, SystemExit):  # refused with this model: another may take it
                continue
            more = {p: v for p, v in changed.items() if p not in direct}
            if more:
                return direct, more
            if changed:
                break
    return direct, also


def _changed(before: Made, after: Made, given: Any) -> Made:
    """The fields that differ, "=" where one has the given value."""
    value = plain(given)
    changed = {p: v for p, v in after.items() if p not in before or v != before[p]}
    same = {p for p, v in changed.items() if p == LAYOUT or (v == value and type(v) is type(value))}
    return {p: "=" if p in same else v for p, v in changed.items()}


@contextmanager
def _unchecked() -> Generator[None]:
    """Let the configurations keep what they are given, without their own checks and completions."""
    with ExitStack() as stack:
        for kind in _configured():
            stack.enter_context(patch.object(kind, "__post_init__", lambda self: None))
        yield


@cache
def _configured() -> list[Any]:
    """The classes of configurations that have checks of their own."""
    import megatron.core.transformer as transformer
    import megatron.training.argument_utils as utils
    import megatron.training.training as training

    every = {id(v): v for module in (transformer, utils, training) for v in vars(module).values()}
    return [v for v in every.values() if dataclasses.is_dataclass(v) and "__post_init__" in vars(v)]


@cache
def _checked(base: tuple[str, ...]) -> argparse.Namespace:
    return megatron_lm.validated(megatron_lm.parsed(base))


def _tries(action: argparse.Action, kind: str | None) -> Iterator[list[str]]:
    """Command lines that give the argument another value than its default."""
    flag = action.option_strings[0]
    if kind is None:
        yield [flag]
        if isinstance(action, argparse.BooleanOptionalAction):
            yield [action.option_strings[-1]]
        return
    words = [getattr(c, "name", c) for c in action.choices] if action.choices is not None else []
    if kind == "word" and not words:
        words = ["attn", "moe_router"]
    tried = (
        words
        or SPELLED.get(action.dest)
        or TRIED.get({"int": "multiples", "float": "fractions", "bool": "str"}.get(kind, kind), ("tried",))
    )
    for value in (*(v for v in tried if v != action.default), *(v for v in words if v == action.default)):
        if value is not None:
            count = action.nargs if isinstance(action.nargs, int) else 1
            yield [flag, *[str(value)] * count]


if __name__ == "__main__":
    main()
