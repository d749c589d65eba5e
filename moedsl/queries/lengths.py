"""Find how many GPUs a sequence length needs, and the longest sequence for a number of GPUs: `plan --lengths`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.units import GIB
from moedsl.rules.check.program import Program
from moedsl.solver.problem import cases
from moedsl.solver.solve import plan_for, solve
from moedsl.support.json_form import JsonForm
from moedsl.support.text import tokens

MESH = tuple(n for n in axes.LAYOUT if n in axes.BY_NAME)
DOUBLINGS = 3
"""Number of lengths: the run's own, twice and four times it."""
SHORTEST, LONGEST = 1024, 1 << 24
"""The shortest and longest sequence that are tried, in tokens."""
Progress = Callable[[str], None]


@frozen
class Length(JsonForm):
    """A sequence length in tokens, and the best layout on the fewest GPUs on which one fits; null if there is none."""

    seq: int
    gpus: int | None
    text: str
    """A sentence such as "at 256k this needs 512 h100"."""
    layout: Mapping[str, int] | None = None
    peak_gib: float | None = None

    @property
    def sizes(self) -> str:
        """The layout and its memory as text."""
        if self.layout is None:
            return ""
        sizes = " ".join(f"{k}={v}" for k, v in self.layout.items() if v > 1) or "no model parallelism"
        return f": {sizes}, {self.peak_gib:.0f} GiB"


@frozen
class Lengths(JsonForm):
    """What each length needs; `holds` is the longest on the run's GPUs (null if it states none or 1K does not fit)."""

    needs: tuple[Length, ...]
    holds: Length | None

    def text(self, name: str) -> str:
        """Print what each length needs and the longest length, for the run called `name`."""
        lines = [f"{name}: sequence lengths and the fewest GPUs that hold them"]
        lines += [f"  {n.text}{n.sizes}" for n in self.needs]
        if n := self.holds:
            lines.append(f"  the longest on {n.gpus} GPUs is {tokens(n.seq)}{n.sizes}")
        return "\n".join(lines)


def lengths(p: Program, gpus: int | None, seq: int, progress: Progress = lambda _: None) -> Lengths:
    """Find the fewest GPUs for `seq`, twice and four times that length, and the longest sequence on the run's GPUs.

    The batch is the run's, if it states one. The search for a longer sequence starts at the shorter one's GPUs."""
    needs = list[Length]()
    for times in range(DOUBLINGS):
        at = seq << times
        progress(f"searching the fewest GPUs for {tokens(at)}")
        needs.append(fewest(p, at, needs[-1].gpus or 1 if needs else 1))
        if needs[-1].gpus is None:
            break
    return Lengths(tuple(needs), None if gpus is None else longest(p, gpus, seq))


def fewest(p: Program, seq: int, least: int = 1) -> Length:
    """Find the smallest number of GPUs, at least `least`, on which a layout fits."""
    found = (on(p, gpus, seq) for gpus in counts(p.hardware, above=least - 1))
    none = f"at {tokens(seq)} no number of {p.hardware.name} up to {MOST_GPUS} is enough"
    return next((n for n in found if n is not None), Length(seq, None, none))


def longest(p: Program, gpus: int, seq: int) -> Length | None:
    """Find the longest sequence on a number of GPUs by doubling or halving `seq`; None if 1K does not fit."""
    best = on(p, gpus, seq) if solve(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows else None
    if best is not None:
        while best.seq < LONGEST and (longer := on(p, gpus, best.seq * 2)) is not None:
            best = longer
        return best
    while best is None and (seq := seq // 2) >= SHORTEST:
        best = on(p, gpus, seq)
    return best


def on(p: Program, gpus: int, seq: int) -> Length | None:
    """Find the best layout on a number of GPUs; None if none fits."""
    rows = plan_for(p, gpus, keep=1, seq=seq, must_fit=cases(p)[0]).solution.rows
    if not rows:
        return None
    sizes = {a: rows[0].codes[a] for a in MESH}
    text = f"at {tokens(seq)} this needs {gpus} {p.hardware.name}"
    return Length(seq, gpus, text, sizes, rows[0].peak_memory / GIB)
