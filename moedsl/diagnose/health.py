"""Check a training run by its iteration lines: NaN or infinite values, growing gradients, skipped and slower steps.

`diagnose`, `watch` and `results` use the same checks.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterator

from attrs import define, field, frozen

from moedsl.diagnose.log_lines import Step

GROWS = 1.5
"""A gradient norm that grows by this factor from line to line is running away."""
GROWN_LINES = 3
"""Number of consecutive lines that must grow."""
LARGE = 1000.0
"""A gradient norm that stable pretraining does not have for several lines: gradients are clipped to about 1."""
SLOWER = 1.25
"""Recent steps count as slower if they take this many times the first steps."""
FEW = 8
"""Number of first and of recent lines whose speeds are compared."""
WARM_UP = 2
"""Number of first lines that the comparison of speeds leaves out."""


@frozen
class Finding:
    """Something wrong with the steps of a run; rules in symptoms_training.moe match its text and name the cause."""

    line: int
    text: str


@define
class Health:
    """Collects what the iteration lines of one attempt show, line by line.

    If a line has no loss although earlier lines had one, the loss is NaN, unless the line was cut and so lacks its end.
    """

    last: Step | None = None
    _line: int = 0
    _lines: int = 0
    _not_finite: tuple[int, Step] | None = None
    _had_loss: bool = False
    _had_end: bool = False
    _norms: deque[Step] = field(factory=lambda: deque(maxlen=GROWN_LINES))
    _grew: tuple[int, Step, Step] | None = None
    _skipped: tuple[int, Step] | None = None
    _batch: int | None = None
    _first: list[float] = field(factory=list)
    _recent: deque[float] = field(factory=lambda: deque(maxlen=FEW))

    @property
    def nan(self) -> int | None:
        """The iteration of the first line whose loss or gradient norm is not finite; None if there is none."""
        return self._not_finite[1].iteration if self._not_finite else None

    def add(self, step: Step, line: int = 0) -> None:
        """Add the next line of an attempt."""
        self.last, self._line = step, line
        self._lines += 1
        is_cut = self._had_end and not step.has_end
        is_lost = self._had_loss and step.loss is None and not is_cut
        if self._not_finite is None and (is_lost or not is_finite(step)):
            self._not_finite = line, step
        self._had_loss |= step.loss is not None
        self._had_end |= step.has_end
        if step.skipped and is_finite(step) and self._skipped is None:
            self._skipped = line, step
        if step.grad_norm is not None and is_finite(step):
            self._add_norm(step, line)
        if self._first and step.global_batch != self._batch:  # a ramp-up: compare only steps of one batch size
            self._first, self._recent = [], deque(maxlen=FEW)
        self._batch = step.global_batch
        if self._lines > WARM_UP:
            (self._first if len(self._first) < FEW else self._recent).append(step.seconds)

    def _add_norm(self, step: Step, line: int) -> None:
        self._norms.append(step)
        norms = [s.grad_norm or 0.0 for s in self._norms]
        grows = all(b >= GROWS * a for a, b in itertools.pairwise(norms))
        if norms[-1] <= LARGE:
            self._grew = None
        elif len(norms) == GROWN_LINES and (grows or min(norms) > LARGE):
            self._grew = line, self._norms[0], step

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, the gravest first."""
        if self._not_finite is not None:
            line, step = self._not_finite
            what = "loss" if step.grad_norm is None or math.isfinite(step.grad_norm) else "gradient norm"
            yield Finding(line, f"moedsl: {what} is not finite at iteration {step.iteration}")
        if self._grew is not None:
            line, a, b = self._grew
            text = f"moedsl: gradient norm grows to {b.grad_norm:,.0f} at iteration {b.iteration}"
            yield Finding(line, f"{text}, from {a.grad_norm:,.0f} at {a.iteration}")
        if self._skipped is not None:
            line, step = self._skipped
            yield Finding(line, f"moedsl: iterations are skipped, first at iteration {step.iteration}")
        if self.last is not None and len(self._recent) >= FEW:
            before, now = statistics.median(self._first), statistics.median(self._recent)
            if now > SLOWER * before:
                yield Finding(self._line, f"moedsl: steps take {now:.2f} s now and {before:.2f} s at first")


def is_finite(step: Step) -> bool:
    """Whether all values of a line are finite."""
    return step.nan == 0 and all(x is None or math.isfinite(x) for x in (step.loss, step.grad_norm))
