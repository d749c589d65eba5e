"""Find the best run by useful tokens, and whether its lead exceeds the spread of the steps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.runs.results.contradictions import BATCH, said
from moedsl.runs.results.measure import OK, UNFINISHED

Json = Mapping[str, Any]
RATE = "useful_tokens_per_s_per_gpu"


@frozen
class Candidate:
    """One value of a sweep, or one run: all runs of its name. Figures are useful tokens/s of a GPU."""

    name: str
    rate: float
    """The median of the runs' medians."""
    low: float
    high: float
    """The quartiles of the steps; over several runs, the outermost."""
    runs: int


def comparisons(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Compare the runs of each sweep or isolation, and all other runs together."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for r in rows:
        of = r.get("value_of", {})
        groups.setdefault((of.get("of", ""), of.get("axis", "")), []).append(r)
    return [_comparison(of, axis, group) for (of, axis), group in groups.items()]


def _comparison(of: str, axis: str, rows: Sequence[Json]) -> dict[str, Any]:
    ranked = sorted(candidates(rows), key=lambda c: -c.rate)
    prints = {(r["experiment"], r["global_batch"] if said(r, (BATCH,)) else None) for r in rows if "experiment" in r}
    return {
        "of": of or None,
        "axis": axis or None,
        "names": list(dict.fromkeys(r["name"] for r in rows)),
        "same_experiment": len(prints) < 2,
        **_verdict(ranked),
    }


def candidates(rows: Sequence[Json]) -> list[Candidate]:
    """Group the runs with a measurement by name."""
    by_name: dict[str, list[Json]] = {}
    for r in rows:
        if r["status"] in (OK, UNFINISHED) and r[RATE]:
            by_name.setdefault(r["name"], []).append(r[RATE])
    return [
        Candidate(name, statistics.median(s["median"] for s in some), min(s["q1"] for s in some),
                  max(s["q3"] for s in some), len(some))
        for name, some in by_name.items()
    ]  # fmt: skip


def _verdict(ranked: Sequence[Candidate]) -> dict[str, Any]:
    """The winner and the runner-up, the difference, and whether their middle halves of steps are apart."""
    if not ranked:
        return {"winner": None, "runner_up": None, "difference": None, "beyond_spread": None, "runs_of_each": None}
    first = ranked[0]
    if len(ranked) == 1:
        return {"winner": first.name, "runner_up": None, "difference": None, "beyond_spread": None,
                "runs_of_each": first.runs}  # fmt: skip
    second = ranked[1]
    return {
        "winner": first.name,
        "runner_up": second.name,
        "difference": first.rate / second.rate - 1,
        "beyond_spread": first.low > second.high,
        "runs_of_each": min(c.runs for c in ranked[:2]),
    }
