"""Syntax trees and diagnostics at another place of the text: the same, with every span moved."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import attrs

from moedsl.diagnostics.source import Span

T = TypeVar("T")
_PLAIN = frozenset((str, int, float, bool, type(None)))


def moved(value: T, by: int) -> T:
    """A node, a diagnostic, or a tuple of such, so many characters further on."""
    return _moved(value, by) if by else value


def _moved(value: Any, by: int) -> Any:
    kind = type(value)
    if kind is Span:
        return Span(value.file, value.start + by, value.end + by)
    if kind is tuple:
        return tuple([_moved(v, by) for v in value])
    names = _names(kind)
    if not names:
        return value
    parts = [getattr(value, n) for n in names]
    return kind(*[v if type(v) in _PLAIN else _moved(v, by) for v in parts])


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a class in the order in which it takes them; none where it is no attrs class."""
    return tuple(f.name for f in attrs.fields(kind)) if attrs.has(kind) else ()
