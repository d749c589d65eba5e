"""Solve and plan each program once in a process of the tests, however many commands and functions compile it.

Its text is parsed and checked each time, and what that gives has to be equal to what it gave before. It is solved again
while a test has replaced a part of the compiler, and if it reads data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from unittest import mock

import pytest

from moedsl import compiler
from moedsl.compiler import STAGES, Result
from moedsl.diagnostics.source import Source
from moedsl.solver.solve import Progress

MOST = 60
"""The most programs that are remembered, of about 6 MB each: those that were compiled last."""
BELOW = [
    "compiler",
    "emit",
    "explainer",
    "isolate",
    "importer",
    "planner",
    "solver",
    "checker",
    "cost",
    "rules",
    "syntax",
    "megatron",
    "schema",
    "support",
    "diagnostics",
    "classes",
]
"""The compiler and the packages that it may import."""


class _Inputs(NamedTuple):
    """What the stages after the check depend on."""

    programs: object
    diagnostics: object
    sources: Mapping[str, Source]


_solved: dict[object, tuple[_Inputs, list[str], Result]] = {}
_replaced: list[object] = []
"""The replacements of parts of the compiler that are in force."""


def keep() -> None:
    """Lets the compiles of this process look for an earlier one of the same program."""
    advance = compiler.advance

    def remembering(r: Result, stages: Iterable[str], progress: Progress = lambda _: None) -> Result:
        if (stages := tuple(stages)) != STAGES or _replaced:
            return advance(r, stages, progress)
        advance(r, STAGES[:2], progress)
        if r.failed:
            return r
        if any(p.data != "mock" for p in r.programs):
            return advance(r, STAGES[2:], progress)
        return _solve(r, lambda saying: advance(r, STAGES[2:], saying), progress)

    compiler.advance = remembering
    _notice_replacements()


def _solve(r: Result, advance: Callable[[Progress], Result], progress: Progress) -> Result:
    """Take the layouts and plans of an earlier compile, and say what it said, or make and remember them; the plans are the
    caller's own."""
    key = (r.source.name, r.source.text, r.like, r.target)
    inputs = _Inputs(r.programs, (*r.diagnostics,), {n: s for n, s in r.library.sources.items() if not _is_ours(n)})
    before, said, known = _solved.get(key, (None, [], None))
    if known is not None and before == inputs:
        _solved[key] = _solved.pop(key)
        for text in said:
            progress(text)
        return _copy(known, r)
    news = list[str]()
    advance(lambda text: (news.append(text), progress(text)))
    if len(_solved) == MOST:
        del _solved[next(iter(_solved))]
    _solved[key] = inputs, news, _copy(r, Result(r.source))
    return r


def _is_ours(name: str) -> bool:
    return name.startswith("stdlib/")


def _copy(known: Result, to: Result) -> Result:
    to.programs, to.chosen = known.programs, known.chosen
    to.plans, to.diagnostics = copy.deepcopy(known.plans), [*known.diagnostics]
    return to


def _notice_replacements() -> None:
    """Lets pytest and unittest say which parts of the compiler are replaced."""
    setattr_, undo = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo
    enter, leave = mock._patch.__enter__, mock._patch.__exit__

    def replacing(self: pytest.MonkeyPatch, target: Any, *words: Any, **more: Any) -> None:
        setattr_(self, target, *words, **more)
        if _of_compiler(target):
            _replaced.append(self)

    def undoing(self: pytest.MonkeyPatch) -> None:
        undo(self)
        _replaced[:] = [r for r in _replaced if r is not self]

    def entering(self: Any) -> Any:
        made = enter(self)
        if _of_compiler(self.target):
            _replaced.append(self)
        return made

    def leaving(self: Any, *words: Any) -> Any:
        _replaced[:] = [r for r in _replaced if r is not self]
        return leave(self, *words)

    pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo = replacing, undoing
    mock._patch.__enter__, mock._patch.__exit__ = entering, leaving


def _of_compiler(target: object) -> bool:
    name = target if isinstance(target, str) else getattr(target, "__module__", None) or getattr(target, "__name__", "")
    first, _, package = str(name).partition(".")
    return first == "moedsl" and package.partition(".")[0] in BELOW
