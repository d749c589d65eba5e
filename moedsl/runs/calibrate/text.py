"""Print a fit as a .moe declaration, with the changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from moedsl.facts.calibration import Constants
from moedsl.runs.calibrate.fit import Fit, errors
from moedsl.runs.calibrate.memory import MemoryFit
from moedsl.runs.calibrate.runs import Measured
from moedsl.support.text import counted


def declaration(arch: str, found: Fit, runs: Sequence[Measured]) -> str:
    """Write ``calibration ARCH { ... }``: three digits of each constant that a fit may move, its meaning, and whether
    the runs moved it; then what else the generation states."""
    gpus = ", ".join(sorted({r.gpu for r in runs}))
    some = f"{counted(len(runs), 'run')} on {gpus}"
    head = f"# Fitted by `moedsl calibrate` to {some}. Constants not from the runs are unchanged.\n"
    k, lines = found.constants, list[str]()
    for name, c in k.known.items():
        if c.spread or k.stated(name) != c.value:
            kept = "" if name in found.moved else " (not from the runs)"
            lines.append(f"  {name} {rounded(k.stated(name)):g}  # {c.about}{kept}")
    return head + f"calibration {arch} {{\n" + "\n".join(lines) + "\n}\n"


def rounded(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")


def changes(before: Constants, found: Fit) -> Iterator[str]:
    """Print one line for each constant that the runs moved."""
    for name in found.moved:
        c = before.known[name]
        yield f"  {name:<10} {before.stated(name):>8.3g} -> {found.constants.stated(name):>8.3g}   {c.about}"


def verdict(runs: Sequence[Measured], before: Constants, found: Fit) -> str:
    """Print the median error over the runs, with the constants before and after."""
    was, now = (float(np.median(np.abs(np.expm1(-errors(runs, c))))) for c in (before, found.constants))
    return f"median error of the estimate {was:.1%} -> {now:.1%} over {counted(len(runs), 'run')} (those of the fit)"


def of_memory(f: MemoryFit) -> str:
    """Print how far the estimate is from the measured peaks, or why nothing is fitted to them."""
    if f.errors is None:
        few = f"{f.runs} measured {'peak is' if f.runs == 1 else 'peaks are'} too few for {len(f.terms)} constants"
        return f"memory: {few} ({', '.join(f.terms)}), so none is fitted; give at least {len(f.terms) + 1}"
    before, fitted_, kept = f.errors
    some = counted(f.runs, "run")
    said = f"memory: median error {before:.1%} -> {fitted_:.1%} over {some}, {kept:.1%} on runs kept back"
    if not f.helps:
        return f"{said}: no better than before, so none of its constants is stated"
    return f"{said}; stated: {', '.join(f.moved) or 'none, because these runs determine none'}"
