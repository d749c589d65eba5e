"""A worker compiles a program once: whoever asks for it again, a test or a command, gets plans of its own.

Nothing is kept or taken of a program that reads other files, nor while a test has replaced something that compiles.
"""

import pickle
import re
from collections import OrderedDict
from collections.abc import Iterable
from functools import wraps
from typing import Any

import pytest
from attrs import evolve

from moedsl import compiler
from moedsl.compiler import Result

KEPT = 200
"""So many programs are kept, those that were asked for last."""
_advance = compiler.advance
_made: OrderedDict[tuple[Any, ...], tuple[Result, bytes]] = OrderedDict()
_replaced: set[int] = set()
"""The tests' monkeypatches that have replaced something of these."""
_COMPILES = re.compile(r"\bmoedsl\.(compiler|lang|rules|facts|solver|cost|planner|support)\b")


def install() -> None:
    """Stand before the stages of `compile_source`, whoever calls it."""
    compiler.advance = _remembered
    setattr_, undo = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo

    @wraps(setattr_)
    def replace(self: pytest.MonkeyPatch, target: Any, *given: Any, **more: Any) -> None:
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if _COMPILES.search(f"{name} {getattr(target, '__module__', '')}"):
            _replaced.add(id(self))
        setattr_(self, target, *given, **more)

    @wraps(undo)
    def put_back(self: pytest.MonkeyPatch) -> None:
        _replaced.discard(id(self))
        undo(self)

    pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo = replace, put_back  # type: ignore[method-assign]


def _remembered(result: Result, stages: Iterable[str], progress: Any = lambda _: None) -> Result:
    stages = tuple(stages)
    if _replaced or result.module is not None or re.search(r"\buse\b", result.source.text):
        return _advance(result, stages, progress)
    key = (result.source, stages, result.like, result.target, result.asks, result.run)
    if key not in _made:
        made = _advance(result, stages, progress)
        _made[key] = evolve(made, diagnostics=[*made.diagnostics]), pickle.dumps(made.plans)
        if len(_made) > KEPT:
            _made.popitem(last=False)
        return made
    _made.move_to_end(key)
    made, plans = _made[key]  # pickled is the form of which a copy costs least
    result.module, result.library, result.below = made.module, made.library, made.below
    result.programs, result.chosen, result.plans = made.programs, made.chosen, pickle.loads(plans)
    result.diagnostics.extend(made.diagnostics)
    return result
