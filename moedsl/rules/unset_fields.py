"""The value of a field that nobody set: equal to `none`, false as a condition, and smaller, larger or equal to nothing.

Expressions stay total: arithmetic with it gives it or a number that compares with nothing.
"""

from __future__ import annotations

from typing import Any


class Unset(float):
    """Not a number to arithmetic and comparisons; `none` to an equality."""

    def __new__(cls) -> Unset:
        return super().__new__(cls, "nan")

    def __eq__(self, other: object) -> bool:
        return other is self or other is None or other == "none"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(None)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "none"

    __str__ = __repr__


UNSET = Unset()


def known(value: Any) -> Any:
    """A field's value as expressions see it: None is unset."""
    return UNSET if value is None else value
