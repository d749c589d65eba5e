"""Read a ConfigContainer: plain values by dotted field, attributes that are not fields, and which lines assigned each
field.

`flat` gives the values. `watching` records in a `Trace` the lines that assigned each field last: any lines, or only a
recipe's.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType
from typing import Any
from unittest.mock import patch

from moedsl.facts.fields import absent
from moedsl.support import foreign

LAYOUT = "model.pipeline_model_parallel_layout"


def flat(config: Any) -> dict[str, Any]:
    """Return the JSON value of each `section.field`; objects that are neither plain nor a dtype become their type's
    name."""
    out: dict[str, Any] = {}
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if dataclasses.is_dataclass(value):
            out |= {name: plain(inner) for name, inner in _fields(section.name, value)}
        else:
            out[section.name] = plain(value)
    if LAYOUT in out:
        out[LAYOUT] = layout(config.model.pipeline_model_parallel_layout)
    return out


def _fields(section: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a section and of the sections inside it, by dotted path."""
    for f in dataclasses.fields(value):
        if not f.name.startswith("_") and hasattr(value, f.name):
            path, inner = f"{section}.{f.name}", getattr(value, f.name)
            yield path, inner
            if path in absent() and inner is not None:
                yield from _fields(path, inner)


def defaults_of(config: Any) -> dict[str, Any]:
    """Return the default of each `section.field`; fields without a default are left out."""
    own = ((prefix, f) for prefix, value in _sections(config) for f in dataclasses.fields(value))
    return {f"{prefix}{f.name}": plain(f.default) for prefix, f in own if f.default is not dataclasses.MISSING}


def sections(config: Any) -> dict[str, str]:
    """Return the name of each section's class; sections that are not dataclasses are left out."""
    return {prefix.rstrip("."): type(value).__name__ for prefix, value in _sections(config) if prefix}


def _sections(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the configuration and each section that is a dataclass, with the prefix of its fields."""
    yield "", config
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield f"{section.name}.", value


def plain(value: Any) -> Any:
    """Convert a value to JSON: enum members and torch dtypes to their names, functions to `<name>`, other objects to
    `<Type>`."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    text = str(value)
    name = getattr(value, "__name__", type(value).__name__)
    return text.removeprefix("torch.") if text.startswith("torch.") else f"<{name}>"


def layout(value: Any) -> Any:
    """Convert a pipeline layout (an object, a list or text) to a list of lists of layer names."""
    value = getattr(value, "input_data", value)
    if isinstance(value, str):
        from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

        value = PipelineParallelLayerLayout.parse_str_to_list(value)
    return None if value is None else [[str(getattr(t, "name", t)) for t in chunk] for chunk in value]


def unknown(config: Any, code: CodeType) -> list[tuple[str, Any]]:
    """Return the attributes that the recipe's code names and that are neither fields nor class attributes of their
    objects.

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
    """Yield every name and string constant of a code object and of the code objects inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _words(constant)


OWN = str(Path(__file__).parents[2])
STAND_IN = "moedsl's stand-in"
Place = tuple[str, int]
"""File and line, counted from 1."""
_RECIPES = ("/megatron/bridge/recipes/", "/megatron/bridge/perf_recipes/")


class Trace:
    """The last assignment to each attribute of each object, recorded through `watching`.

    With the file of a recipe, only lines of this file and of Bridge's recipes are recorded, and no defaults. The
    objects are kept alive, so that no `id` is used twice.
    """

    def __init__(self, recipe: str = "") -> None:
        self._recipe = recipe and os.path.realpath(recipe)
        self._set: dict[tuple[int, str], tuple[Place, ...]] = {}
        self._seen: dict[int, Any] = {}
        self._ours: dict[str, bool] = {}
        self._asked: dict[int, str | None] = {}

    def note(self, target: Any, name: str, value: Any) -> None:
        """Record an assignment by its innermost line and its callers, unless no line of them is to be recorded."""
        frame = inspect.currentframe()
        for _ in range(2):  # the caller of the watched `__setattr__`
            frame = frame.f_back if frame is not None else None
        constructs = frame is not None and frame.f_code.co_name == "__init__"
        if self._recipe and constructs:  # a constructor that only sets a field to its default: then no line sets it
            field = getattr(target, "__dataclass_fields__", {}).get(name)
            absent = dataclasses.MISSING
            if field is not None and (field.default is not absent or field.default_factory is not absent):
                plain = type(value) in (bool, int, float, str)
                if value is field.default or (plain and value == field.default):
                    return
        if name == "moe_token_dispatcher_type":
            # the backend that Bridge's helper was called with, if the helper makes this assignment (bridge
            # training/flex_dispatcher_backend.py:34)
            near = [f for f in (frame, frame.f_back if frame is not None else None) if f is not None]
            helper = next((f for f in near if f.f_code.co_name == "apply_flex_dispatcher_backend"), None)
            self._asked[id(target)] = helper.f_locals.get("moe_flex_dispatcher_backend") if helper else None
        places = list[Place]()
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self._ours:
                known = file.replace(os.sep, "/")
                own = os.path.realpath(file) == self._recipe or any(part in known for part in _RECIPES)
                # without a recipe: any line but this recorder's and those of generated constructors
                self._ours[file] = own if self._recipe else not file.startswith((__file__, "<"))
            if self._ours[file]:
                places.append((file, frame.f_lineno))
            frame = frame.f_back
        if places:
            self._seen[id(target)] = target
            self._set[id(target), name] = tuple(places)

    def places(self, config: Any) -> dict[str, tuple[Place, ...]]:
        """Return the lines that last set each dotted field of `config`: the innermost one first, then its callers."""
        fields = ((f"{prefix}{name}", (id(value), name)) for prefix, value in _sections(config) for name in vars(value))
        return {field: self._set[at] for field, at in fields if at in self._set}

    def asked(self, config: Any) -> str | None:
        """Return the flex backend asked for when the dispatcher was last set; None if no helper of Bridge set it."""
        return self._asked.get(id(config.model))


def writer(places: Mapping[str, tuple[Place, ...]], field: str) -> str:
    """Return the line, such as ``megatron/core/x.py:12``, that set a dotted field or its section; "" if none did.

    A line of moedsl's stand-ins becomes STAND_IN.
    """
    found = places.get(field) or places.get(field.rpartition(".")[0])
    if not found:
        return ""
    file, line = found[0]
    return STAND_IN if file.startswith(OWN) else f"{foreign.below_packages(file)}:{line}"


@contextmanager
def watching(trace: Trace, config: Any) -> Generator[None]:
    """Record every assignment to objects of the classes in `config`."""

    def noting(assign: Any) -> Callable[[Any, str, Any], None]:
        def noted(self: Any, name: str, value: Any) -> None:
            trace.note(self, name, value)
            assign(self, name, value)

        return noted

    with ExitStack() as stack:
        for kind in {type(value) for _, value in _sections(config)}:
            stack.enter_context(patch.object(kind, "__setattr__", noting(kind.__setattr__)))
        yield
