"""Which line of the framework assigned each field of a configuration while Bridge updated it."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import FrameType
from typing import Any

OWN = str(Path(__file__).parents[1])
STAND_IN = "moedsl's stand-in"


class Writers:
    """The last assignment of every object and name; `trace.watching` tells it. Objects are kept with their names."""

    def __init__(self) -> None:
        self._by: dict[tuple[int, str], str] = {}
        self._seen: dict[int, Any] = {}

    def note(self, target: Any, name: str, _: Any) -> None:
        """Called at an assignment, two calls above this one."""
        self._seen[id(target)] = target
        self._by[id(target), name] = _place(inspect.currentframe())

    def of(self, config: Any, field: str) -> str:
        """``megatron/core/x.py:12`` of a dotted field, or of the section that holds it; "" where none assigned it."""
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
