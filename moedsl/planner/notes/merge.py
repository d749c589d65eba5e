"""Merge identical diagnostics of several runs: each is printed once, with the values and the names of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic

OfRun = tuple[Program, Diagnostic]


def merged(diagnostics: Iterable[OfRun], programs: Sequence[Program]) -> list[Diagnostic]:
    """Merge diagnostics that differ only in `values`, in the order of their first occurrence.

    A value that differs becomes the list of all. If another of the file's `programs` is made of the same text without
    this diagnostic, `values` gets `runs`: the names of the runs that have it.
    """
    alike: dict[str, list[OfRun]] = {}
    for p, d in diagnostics:
        alike.setdefault(repr(evolve(d, values={})), []).append((p, d))
    return [_one(group, programs) for group in alike.values()]


def _one(group: Sequence[OfRun], programs: Sequence[Program]) -> Diagnostic:
    first = group[0][1]
    values = _joined([d.values for _, d in group])
    concerned = list(dict.fromkeys(p.name for p, _ in group))
    others = [p for p in programs if p.name not in concerned and _reads(p, first)]
    runs = {"runs": concerned[0] if len(concerned) == 1 else concerned} if others else {}
    return evolve(first, values={**values, **runs})


def _reads(p: Program, d: Diagnostic) -> bool:
    """Whether a run is made of the text that a diagnostic points at."""
    return bool(d.labels) and d.labels[0].span in p.spans.values()


def _joined(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every value by its name; values that differ become a list."""
    names = dict.fromkeys(n for values in each for n in values)
    every = {n: [values[n] for values in each if n in values] for n in names}
    distinct = {n: [v for i, v in enumerate(vs) if v not in vs[:i]] for n, vs in every.items()}
    return {n: vs[0] if len(vs) == 1 else vs for n, vs in distinct.items()}
