"""Print a fit as a .moe declaration, with the changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from attrs import asdict

from moedsl.calibrate.fit import Fit, errors
from moedsl.calibrate.runs import Measured
from moedsl.schema.calibration import Constants, ranges


def declaration(arch: str, fitted: Fit, runs: Sequence[Measured]) -> str:
    """Write ``calibration ARCH { ... }``: three digits of each constant, its meaning, and whether the runs moved it."""
    gpus = ", ".join(sorted({r.gpu for r in runs}))
    head = f"# Fitted by `moedsl calibrate` to {len(runs)} runs on {gpus}. Constants not from the runs are unchanged.\n"
    lines = [f"  watts {fitted.constants.watts:g}  # the power limit at which the shares are stated"]
    for name, r in ranges().items():
        kept = "" if name in fitted.moved else " (not from the runs)"
        lines.append(f"  {name} {rounded(getattr(fitted.constants, name)):g}  # {r.doc}{kept}")
    return head + f"calibration {arch} {{\n" + "\n".join(lines) + "\n}\n"


def rounded(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")


def changes(before: Constants, fitted: Fit) -> Iterator[str]:
    """Print one line for each constant that the runs moved."""
    after, known = asdict(fitted.constants), ranges()
    for name, old in asdict(before).items():
        if name in fitted.moved:
            yield f"  {name:<10} {old:>8.3g} -> {after[name]:>8.3g}   {known[name].doc}"


def verdict(runs: Sequence[Measured], before: Constants, fitted: Fit) -> str:
    """Print the median error over the runs, with the constants before and after."""
    was, now = (float(np.median(np.abs(np.expm1(-errors(runs, c))))) for c in (before, fitted.constants))
    return f"median error of the estimate {was:.1%} -> {now:.1%} over {len(runs)} runs (those of the fit)"
