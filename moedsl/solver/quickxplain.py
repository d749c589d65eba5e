"""Find a minimal conflict with QuickXplain (Junker, AAAI 2004)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def minimal(soft: list[T], test: Callable[[list[T]], bool]) -> list[T]:
    """A minimal subset of `soft`, which fails the test; empty if the test fails even without any.

    What passes with some members passes without them, so nothing at all is tested only if no part of `soft` passed.
    """
    passed = False

    def passes(active: list[T]) -> bool:
        nonlocal passed
        found = test(active)
        passed |= found
        return found

    core = _explain([], [], soft, passes) if soft else []
    return core if core and (passed or test([])) else []


def _explain(background: list[T], delta: list[T], soft: list[T], test: Callable[[list[T]], bool]) -> list[T]:
    if delta and not test(background):
        return []
    if len(soft) == 1:
        return soft
    half = len(soft) // 2
    first, second = soft[:half], soft[half:]
    late = _explain(background + first, first, second, test)
    early = _explain(background + late, late, first, test)
    return early + late
