"""Write the part of docs/accuracy.md on stdlib/calibration/papers.jsonl: runs that no page of Bridge measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moedsl.facts.calibration import Constants, first_guess
from moedsl.runs.calibrate import fit
from moedsl.runs.measured_runs import Measured


def papers(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the table: each run estimated with the stdlib's constants, without a fit, and with one to the others."""
    yield "| run | model | GPU | GPUs | measured, s | estimated, s | left out | without a fit |"
    yield "|---|---|---|---|---|---|---|---|"
    for r in runs:
        start = first_guess(r.cost.hardware.constants)
        left = fit([other for other in runs if other is not r], start).constants
        steps = f"{_step(r, r.tokens or 0):.2f} | {_step(r, r.predicted()):.2f}"
        yield f"| {r.id} | {r.model} | {r.gpu} | {r.cost.gpus} | {steps} | {_off(r, left)} | {_off(r, start)} |"


def _step(r: Measured, speed: float) -> float:
    return float(r.cost.tokens_per_second_per_gpu(1.0)) / speed


def _off(r: Measured, constants: Constants) -> str:
    return f"{(r.tokens or 0) / r.predicted(constants) - 1:+.1%}"
