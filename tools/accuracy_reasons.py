"""Why groups of runs miss the goals of docs/accuracy.md: the texts of missed_goals.txt, with the figures that the runs
and the constants give."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen

from moedsl.runs.measured_runs import Measured

TEXTS = Path(__file__).parents[1] / "stdlib/calibration/missed_goals.txt"
CARD = "model_verification_cards"
"""A part of the source of a run that verifies a library recipe."""
MLPERF = ("n0003", "n0004", "n0005", "n0006")
"""DeepSeek-V3 on 512 to 8,192 GPUs, all else equal."""
BALANCED = ("m0032", "m0033")
"""DeepSeek-V3 on 256 GPUs under forced balance with 32 and 120 microbatches, all else equal."""


@frozen
class Line:
    """Steps as so many seconds a microbatch and so many once; `within` is the largest error of that."""

    microbatch: float
    once: float
    within: float


def reasons(runs: Sequence[Measured], file: Path) -> dict[str, str]:
    """Return the reason of each group, by "grouping group". `file` has the runs, with what published each."""
    read = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    given = figures(runs, {line["id"]: line["source"] for line in read})
    lines = filter(None, TEXTS.read_text(encoding="utf-8").splitlines())
    each = (line.split(": ", 1) for line in lines)
    return {group: text.format(**given) for group, text in each}


def figures(runs: Sequence[Measured], sources: Mapping[str, str]) -> dict[str, str]:
    """Return what the texts name in braces; `sources` are those of the runs, by id."""
    by_id = {r.id: r for r in runs}
    said = {name: str(n) for name, n in _counts(runs, sources).items()}
    for name, ids in (("mlperf", MLPERF), ("balanced", BALANCED)):
        some = [by_id[i] for i in ids]
        for word, line in ((name, measured(some)), (f"{name}_said", estimated(some))):
            said[f"{word}_microbatch"] = f"{line.microbatch:.3f}"
            said[f"{word}_once"] = f"{line.once:.2f}"
            said[f"{word}_within"] = f"{line.within:.0%}"
    for precision in ("mxfp8", "bf16"):
        some = [r for r in runs if (r.model, r.precision) == ("gpt_oss_120b", precision)]
        said[f"gpt_oss_120b_{precision}"] = f"{np.median([r.predicted() / (r.tokens or 0) for r in some]) - 1:+.0%}"
    return said


def _counts(runs: Sequence[Measured], sources: Mapping[str, str]) -> dict[str, int]:
    natural = [r for r in runs if r.cost.routing == "natural"]
    out = {"natural": len(natural), "natural_cards": _cards(natural, sources)}
    for model in sorted({r.model for r in runs}):
        mine = [r for r in runs if r.model == model]
        out |= {f"{model}_runs": len(mine), f"{model}_cards": _cards(mine, sources)}
        out[f"{model}_natural"] = sum(r.cost.routing == "natural" for r in mine)
    return out


def _cards(runs: Iterable[Measured], sources: Mapping[str, str]) -> int:
    return sum(CARD in sources[r.id] for r in runs)


def measured(runs: Sequence[Measured]) -> Line:
    """Fit a line to the measured steps."""
    return fitted(runs, [_step(r, r.tokens or 0) for r in runs])


def estimated(runs: Sequence[Measured]) -> Line:
    """Fit a line to the estimated steps."""
    return fitted(runs, [_step(r, r.predicted()) for r in runs])


def _step(r: Measured, speed: float) -> float:
    return float(r.cost.tokens_per_second_per_gpu(1.0)) / speed


def fitted(runs: Sequence[Measured], seconds: Sequence[float]) -> Line:
    """Fit steps to the numbers of their microbatches, by the squares of the relative errors."""
    number = np.array([float(r.cost.microbatches(r.row)) for r in runs])
    steps = np.array(seconds)
    terms = np.stack([number, np.ones_like(number)]) / steps
    found = np.linalg.lstsq(terms.T, np.ones_like(steps), rcond=None)[0]
    return Line(float(found[0]), float(found[1]), float(np.max(np.abs(found @ terms - 1))))
