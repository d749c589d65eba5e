"""Published statements about memory, each with the run that it is about, and whether the estimate agrees.

A line of the file is a measured run (`runs.read`) with `says`, `source`, and `claim`:
- `after a step`: `gb` are allocated once an optimizer step is over: weights, gradients and optimizer state, of which
  `share` of the moments is on the host;
- `below`: the peak stays under `gib`;
- `fits`: it ran;
- `out of memory`: it did not.
`but` says why the estimate does not agree, where it does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from moedsl.cost.estimate import FITS, NOT, bounds
from moedsl.facts.axes import BY_NAME
from moedsl.facts.units import GIB
from moedsl.runs.measured_runs import Measured, read
from moedsl.support.diagnostics import Diagnostic


@frozen
class Judged:
    """A statement and what the estimate says of it."""

    id: str
    source: str
    says: str
    ours: str
    error: float | None
    """Ours over theirs, less 1, where theirs is a figure."""
    agrees: bool
    but: str
    """Why not."""


@frozen
class Statement:
    """One line of the file."""

    run: Measured
    source: str
    says: str
    claim: str
    bytes: float
    """0 where the claim has no figure."""
    share: float
    but: str

    def judged(self) -> Judged:
        """What the estimate says of it; KeyError for a claim that the module's docstring does not list."""
        ours, error, agrees = _CLAIMS[self.claim](self)
        return Judged(self.run.id, self.source, self.says, ours, error, agrees, self.but)


def statements(path: Path) -> tuple[list[Statement], Sequence[Diagnostic]]:
    """The statements of a file, and what cannot be read."""
    _, runs, found = read(path)
    if found:
        return [], found
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    size = [1e9 * d.get("gb", 0) + GIB * d.get("gib", 0) for d in lines]
    pairs = zip(runs, lines, size, strict=True)
    return [
        Statement(r, d["source"], d["says"], d["claim"], n, d.get("share", 0.0), d.get("but", "")) for r, d, n in pairs
    ], []


def after_step(run: Measured, share: float) -> float:
    """Bytes of weights, gradients and optimizer state on the fullest stage, with a share of the moments on the host."""
    words = BY_NAME["offload"].words
    kept, gone = (
        max(s.weights + s.gradients + s.optimizer for s in run.cost.memory_report({**run.row, "offload": i}))
        for i in (words.index("none"), words.index("optimizer"))
    )
    return kept - share * (kept - gone)


def _after_step(s: Statement) -> tuple[str, float | None, bool]:
    ours = after_step(s.run, s.share)
    error = ours / s.bytes - 1
    return f"{ours / 1e9:.1f} GB", error, abs(error) < 0.03


def _below(s: Statement) -> tuple[str, float | None, bool]:
    b = bounds(s.run.cost, s.run.row)
    return f"{b.least / GIB:.1f} to {b.most / GIB:.1f} GiB", None, b.best <= s.bytes


def _fits(s: Statement) -> tuple[str, float | None, bool]:
    b = bounds(s.run.cost, s.run.row)
    return b.verdict, None, b.verdict != NOT


def _out_of_memory(s: Statement) -> tuple[str, float | None, bool]:
    b = bounds(s.run.cost, s.run.row)
    return b.verdict, None, b.verdict != FITS


_CLAIMS = {"after a step": _after_step, "below": _below, "fits": _fits, "out of memory": _out_of_memory}
