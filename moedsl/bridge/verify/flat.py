"""Flatten a ConfigContainer to plain values by dotted field, and find attributes that are not fields."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from moedsl.facts.fields import absent

LAYOUT = "model.pipeline_model_parallel_layout"


def flat(config: Any) -> dict[str, Any]:
    """The JSON value of each `section.field`; objects that are neither plain nor a dtype become their type's name."""
    out = {name: plain(value) for name, value in _walk(config)}
    if LAYOUT in out:
        out[LAYOUT] = layout(config.model.pipeline_model_parallel_layout)
    return out


def _walk(config: Any) -> Iterator[tuple[str, Any]]:
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if not dataclasses.is_dataclass(value):
            yield section.name, value
            continue
        yield from _fields(section.name, value)


def _fields(section: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a section, and those of the sections inside it."""
    for f in dataclasses.fields(value):
        if not f.name.startswith("_") and hasattr(value, f.name):
            path, inner = f"{section}.{f.name}", getattr(value, f.name)
            yield path, inner
            if path in absent() and inner is not None:
                yield from _fields(path, inner)


def defaults_of(config: Any) -> dict[str, Any]:
    """The default of each `section.field`; fields without a default are left out."""
    holders = [("", config), *((f"{f.name}.", getattr(config, f.name)) for f in dataclasses.fields(config))]
    own = [(prefix, f) for prefix, held in holders if dataclasses.is_dataclass(held) for f in dataclasses.fields(held)]
    return {f"{prefix}{f.name}": plain(f.default) for prefix, f in own if f.default is not dataclasses.MISSING}


def sections(config: Any) -> dict[str, str]:
    """The name of each section's class; sections that are not dataclasses are left out."""
    values = ((f.name, getattr(config, f.name)) for f in dataclasses.fields(config))
    return {name: type(value).__name__ for name, value in values if dataclasses.is_dataclass(value)}


def plain(value: Any) -> Any:
    """Convert a value to JSON; an enum member and a torch dtype by name, another object by its text or type."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else f"<{type(value).__name__}>"


def layout(value: Any) -> Any:
    """Convert a pipeline layout (an object, a list or text) to a list of lists of layer names."""
    value = getattr(value, "input_data", value)
    if isinstance(value, str):
        from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

        value = PipelineParallelLayerLayout.parse_str_to_list(value)
    return None if value is None else [[str(getattr(t, "name", t)) for t in chunk] for chunk in value]


def unknown(config: Any, code: CodeType) -> list[tuple[str, Any]]:
    """Attributes that the recipe's code names, and that are neither fields nor class attributes of their objects.

    Python accepts `cfg.model.moe_a2a_overlap = True`, but Bridge never reads it. `code` is the recipe module's code
    object.
    """
    words = set(_words(code))
    return sorted((name, plain(value)) for name, value in _extras("", config) if name.rpartition(".")[2] in words)


def _extras(prefix: str, value: Any, depth: int = 3) -> Iterator[tuple[str, Any]]:
    if not depth or not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    known = {f.name for f in dataclasses.fields(value)}
    for name, item in vars(value).items():
        dotted = f"{prefix}{name}"
        if name in known or hasattr(type(value), name):
            yield from _extras(f"{dotted}.", item, depth - 1)
        elif not name.startswith("_"):
            yield dotted, item


def _words(code: CodeType) -> Iterator[str]:
    """Every attribute name and string constant of a code object and of those inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _words(constant)
