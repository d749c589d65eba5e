"""Find how many GPUs a sequence length needs, and the longest sequence for a number of GPUs: `plan --lengths`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.units import GIB
from moedsl.rules.check.program import Program
from moedsl.solver.laws import Row
from moedsl.solver.problem import cases
from moedsl.solver.solve import plan_for, solve
from moedsl.support.text import tokens

MESH = tuple(n for n in axes.LAYOUT if n in axes.BY_NAME)
DOUBLINGS = 3
"""Number of lengths: the run's own, twice and four times it."""
LONGEST = 1 << 24
"""The longest sequence that is tried, in tokens."""
Progress = Callable[[str], None]


@frozen
class Length:
    """A sequence length in tokens and the best layout on the fewest GPUs that work; `row` is None if none do."""

    seq: int
    gpus: int
    row: Row | None

    def text(self, hardware: str) -> str:
        """Write a sentence such as "at 256k this needs 512 h100"."""
        if self.row is None:
            return f"at {tokens(self.seq)} no number of {hardware} up to {MOST_GPUS} is enough"
        return f"at {tokens(self.seq)} this needs {self.gpus} {hardware}"


def lengths(p: Program, seq: int, progress: Progress = lambda _: None) -> list[Length]:
    """The fewest GPUs for `seq`, twice and four times it, at the run's batch if it states one.

    A longer sequence starts at the number that the shorter one needs.
    """
    out = list[Length]()
    for times in range(DOUBLINGS):
        at = seq << times
        progress(f"searching the fewest GPUs for {tokens(at)}")
        out.append(fewest(p, at, out[-1].gpus if out else 1))
        if out[-1].row is None:
            break
    return out


def fewest(p: Program, seq: int, least: int = 1) -> Length:
    """The smallest number of GPUs, from `least` on, with a layout that fits."""
    for gpus in counts(p.hardware, above=least - 1):
        rows = plan_for(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows
        if rows:
            return Length(seq, gpus, rows[0])
    return Length(seq, MOST_GPUS, None)


def longest(p: Program, gpus: int, seq: int) -> Length | None:
    """The longest sequence on a number of GPUs: `seq` doubled or halved several times; None if 1K does not fit."""
    if not solve(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows:
        shorter = (_on(p, gpus, s) for s in _halves(seq))
        return next((n for n in shorter if n.row is not None), None)
    best = _on(p, gpus, seq)
    while best.seq < LONGEST and (longer := _on(p, gpus, best.seq * 2)).row is not None:
        best = longer
    return best


def _on(p: Program, gpus: int, seq: int) -> Length:
    rows = plan_for(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows
    return Length(seq, gpus, rows[0] if rows else None)


def _halves(seq: int) -> Iterator[int]:
    while (seq := seq // 2) >= 1024:
        yield seq


def table(p: Program, gpus: int | None, seq: int, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Write both answers as JSON: `needs`, a list by length, and `holds`, the longest on the run's GPUs or null."""
    needs = lengths(p, seq, progress)
    holds = None if gpus is None else longest(p, gpus, seq)
    return {"needs": [_json(n, p) for n in needs], "holds": None if holds is None else _json(holds, p)}


def _json(n: Length, p: Program) -> dict[str, Any]:
    out = {"seq": n.seq, "gpus": None if n.row is None else n.gpus, "text": n.text(p.hardware.name)}
    if n.row is None:
        return out
    return {**out, "layout": {a: n.row.codes[a] for a in MESH}, "peak_gib": n.row.peak_memory / GIB}


def text(t: dict[str, Any], name: str) -> str:
    """Print the JSON of `table`."""
    lines = [f"  {n['text']}{_layout(n)}" for n in t["needs"]]
    if t["holds"] is not None:
        lines.append(f"  the longest on {t['holds']['gpus']} GPUs is {tokens(t['holds']['seq'])}{_layout(t['holds'])}")
    return "\n".join([f"{name}: sequence lengths and the fewest GPUs that hold them", *lines])


def _layout(n: dict[str, Any]) -> str:
    if "layout" not in n:
        return ""
    sizes = " ".join(f"{k}={v}" for k, v in n["layout"].items() if v > 1) or "no model parallelism"
    return f": {sizes}, {n['peak_gib']:.0f} GiB"
