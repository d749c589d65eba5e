"""Record which line of a recipe, and which line of the framework, assigned each field."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

OWN = str(Path(__file__).parents[2])
STAND_IN = "moedsl's stand-in"


class Writers:
    """The last assignment of every object and name, recorded through `watching`, with the objects."""

    def __init__(self) -> None:
        self._by: dict[tuple[int, str], str] = {}
        self._seen: dict[int, Any] = {}

    def note(self, target: Any, name: str, _: Any) -> None:
        """Record an assignment, whose line is two calls above this one."""
        self._seen[id(target)] = target
        self._by[id(target), name] = _place(inspect.currentframe())

    def of(self, config: Any, field: str) -> str:
        """The line, such as ``megatron/core/x.py:12``, that set a dotted field or its section; "" if none did."""
        section, _, name = field.rpartition(".")
        holder = getattr(config, section) if section else config
        return self._by.get((id(holder), name)) or self._by.get((id(config), section), "")


def _place(frame: FrameType | None) -> str:
    """Return the line of an assignment: below site-packages, or a word for what replaces a package."""
    frame = _outside(frame)
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    if file.startswith(OWN):
        return STAND_IN
    return f"{file.split('site-packages/')[-1]}:{frame.f_lineno}"


def _outside(frame: FrameType | None) -> FrameType | None:
    """The first frame that is neither this recorder nor a constructor that Python generated."""
    recorder = (__file__, str(Path(__file__).with_name("trace.py")))
    while frame is not None and (frame.f_code.co_filename in recorder or frame.f_code.co_filename.startswith("<")):
        frame = frame.f_back
    return frame


Place = tuple[str, int]
"""File and line, counted from 1."""
Places = dict[str, tuple[Place, ...]]
"""For each dotted field the place of its last assignment: the innermost line of a recipe, then its callers."""

_RECIPES = ("/megatron/bridge/recipes/", "/megatron/bridge/perf_recipes/")
_MISSING = object()


class Notes(Protocol):
    """Functions to call before each assignment."""

    def note(self, target: Any, name: str, value: Any, /) -> None: ...


class Trace:
    """The last assignment by object and name. Objects are stored, so that no identity is used twice."""

    def __init__(self, file: str) -> None:
        self._file = os.path.realpath(file)
        self._set: dict[tuple[int, str], tuple[Place, ...]] = {}
        self._seen: dict[int, Any] = {}
        self._ours: dict[str, bool] = {}
        self._asked: dict[int, str | None] = {}

    def note(self, target: Any, name: str, value: Any) -> None:
        """Record an assignment; not a default, and not one that no line of a recipe made."""
        frame = _caller(3)
        if frame is not None and frame.f_code.co_name == "__init__" and _is_default(target, name, value):
            return
        if name == "moe_token_dispatcher_type":
            self._asked[id(target)] = _backend(frame)
        places = self._places(frame)
        if places:
            self._seen[id(target)] = target
            self._set[id(target), name] = places

    def places(self, config: Any) -> Places:
        """Return the lines that set each field of `config`."""
        out: Places = {}
        for prefix, value in _sections(config):
            for f in vars(value):
                if places := self._set.get((id(value), f)):
                    out[f"{prefix}{f}"] = places
        return out

    def asked(self, config: Any) -> str | None:
        """Return the flex backend of the last change of the dispatcher; None if no helper of Bridge made it."""
        return self._asked.get(id(config.model))

    def _places(self, frame: FrameType | None) -> tuple[Place, ...]:
        out: list[Place] = []
        while frame is not None:
            if self._is_recipe(frame.f_code.co_filename):
                out.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return tuple(out)

    def _is_recipe(self, file: str) -> bool:
        if file not in self._ours:
            known = file.replace(os.sep, "/")
            self._ours[file] = os.path.realpath(file) == self._file or any(part in known for part in _RECIPES)
        return self._ours[file]


def _caller(up: int) -> FrameType | None:
    """The frame so many calls above this function."""
    frame = inspect.currentframe()
    for _ in range(up):
        frame = frame.f_back if frame is not None else None
    return frame


def _is_default(target: Any, name: str, value: Any) -> bool:
    """Whether a constructor only sets a field to its default: then no line sets it."""
    field = getattr(target, "__dataclass_fields__", {}).get(name)
    if field is None or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING):
        return False
    return value is field.default or (type(value) in (bool, int, float, str) and value == field.default)


def _backend(frame: FrameType | None) -> str | None:
    """The dispatcher that Bridge's helper was called for, if it makes this assignment (bridge
    training/flex_dispatcher_backend.py:34)."""
    for _ in range(2):
        if frame is not None and frame.f_code.co_name == "apply_flex_dispatcher_backend":
            return frame.f_locals.get("moe_flex_dispatcher_backend")
        frame = frame.f_back if frame is not None else None
    return None


def _sections(config: Any) -> Iterable[tuple[str, Any]]:
    yield "", config
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield f"{section.name}.", value


@contextmanager
def watching(trace: Notes, config: Any) -> Generator[None]:
    """Record every assignment to objects of the classes in `config`."""
    classes = {type(value) for _, value in _sections(config)}
    before = {c: c.__dict__.get("__setattr__", _MISSING) for c in classes}
    for c in classes:
        assign: Any = c.__setattr__
        setattr(c, "__setattr__", _noting(trace, assign))  # noqa: B010, the class is any
    try:
        yield
    finally:
        for c, old in before.items():
            if old is _MISSING:
                delattr(c, "__setattr__")
            else:
                setattr(c, "__setattr__", old)  # noqa: B010


def _noting(trace: Notes, assign: Callable[[Any, str, Any], None]) -> Callable[[Any, str, Any], None]:
    def noted(self: Any, name: str, value: Any) -> None:
        trace.note(self, name, value)
        assign(self, name, value)

    return noted
