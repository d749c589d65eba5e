"""Define values that a recipe assigns and JSON cannot express, and a form in which resolved values are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from attrs import field, frozen


@frozen
class Dtype:
    """A torch dtype, by name (``bfloat16``)."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


@frozen
class Member:
    """A member of one of Megatron's enumerations."""

    module: str
    enum: str
    name: str


@frozen
class Ref:
    """Another field of the same configuration (``model.vocab_size``), whose value is known once Bridge has built it."""

    path: str


@frozen
class Call:
    """A call of one of Bridge's public names with keyword arguments."""

    module: str
    name: str
    kwargs: Mapping[str, Any] = field(factory=dict)

    @property
    def target(self) -> str:
        return f"{self.module}.{self.name}"


def python(value: Any) -> str:
    """Format a value as a Python expression for the recipe function."""
    if isinstance(value, Dtype):
        return str(value)
    if isinstance(value, Member):
        return f"{value.enum}.{value.name}"
    if isinstance(value, Ref):
        return f"cfg.{value.path}"
    if isinstance(value, Call):
        inside = ", ".join(f"{k}={python(v)}" for k, v in value.kwargs.items())
        return f"{value.name}({inside})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python(k)}: {python(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(python(v) for v in value) + "]"
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    """Format a text as a Python string literal in double quotes, ASCII only, on one line."""
    return '"' + "".join('\\"' if c == '"' else ascii(c)[1:-1] for c in text) + '"'


def parts(value: Any) -> list[Any]:
    """Return a value and everything inside it, outermost first."""
    inside = value.kwargs.values() if isinstance(value, Call) else value if isinstance(value, (list, tuple)) else ()
    return [value, *(p for v in inside for p in parts(v))]


def normalise(path: str, value: Any) -> Any:
    """Normalise a decided or a resolved value for comparison.

    Dtypes and enum members become words. A pipeline layout becomes the list of its stages in layer order, because
    Bridge replaces the string by an object. A hybrid's pattern is cut to its decoder, as Bridge appends MTP's blocks.
    """
    if path == PATTERN:
        return decoder(value)
    if path.endswith("pipeline_model_parallel_layout"):
        return None if value is None else stages(str(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [normalise(path, v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    name = getattr(value, "name", None)
    return str(value) if isinstance(value, Dtype) or not isinstance(name, str) else name


PATTERN = "model.hybrid_layer_pattern"


def decoder(pattern: str | None) -> str | None:
    """Remove MTP's blocks after a slash from a hybrid's pattern (core models/hybrid/hybrid_layer_allocation.py:236)."""
    return None if pattern is None else pattern.partition("/")[0]


LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
"""Megatron's letters for the layers of a pipeline layout (core transformer/enums.py, LayerType)."""


def stages(layout: str | Iterable[Iterable[Any]]) -> list[str]:
    """Return the stages of a pipeline layout, each expanded to its letters: ``Et*2|(t|)*2tL`` is Ett, t, t, tL.

    The layout is lists of layers, or text in the notation of Megatron-Core
    (core/transformer/pipeline_parallel_layer_layout.py:144).
    """
    if not isinstance(layout, str):
        return ["".join(LETTERS.get(str(layer), "?") for layer in stage) for stage in layout]
    text = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda m: m[1] * int(m[2]), text)
    return text.split("|")
