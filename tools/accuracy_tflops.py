"""Write the part of docs/accuracy.md on speeds published only as TFLOPS."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from accuracy_groups import Prediction
from attrs import evolve, frozen

from moedsl.runs.measured_runs import Measured, read

FILE = Path(__file__).parents[1] / "stdlib/calibration/tflops.jsonl"


@frozen
class Stated:
    """A run, the model TFLOPS of a GPU that its source states, and what had to be assumed."""

    run: Measured
    source: str
    tflops: float
    assumes: str

    @property
    def said(self) -> float:
        """Return the estimated TFLOPS, counted as in Bridge."""
        r = self.run
        return float(r.cost.model_tflops_per_gpu(r.cost.time(r.row)[0], int(r.row["tp"])))

    @property
    def measured(self) -> Measured:
        """Return the run with the tokens/s that the TFLOPS stand for, counted as in Bridge."""
        cost = self.run.cost
        seconds = cost.model_tflops_per_gpu(1.0, int(self.run.row["tp"])) / self.tflops
        return evolve(self.run, tokens=float(cost.tokens_per_second_per_gpu(seconds)))

    @property
    def error(self) -> float:
        return self.said / self.tflops - 1


def stated() -> list[Stated]:
    """Read the lines of the file."""
    _, runs, found = read(FILE)
    if found:
        sys.exit("\n".join(d.message for d in found))
    lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    return [Stated(r, e["source"], e["tflops_per_gpu"], e["assumes"]) for r, e in zip(runs, lines, strict=True)]


def tflops(left_out: Sequence[Prediction]) -> Iterator[str]:
    """Lines of Markdown; `left_out` are predictions of constants that saw neither these runs nor others of their
    model."""
    each = stated()
    ids = {s.run.id for s in each}
    unseen = np.median([abs(p.error) for p in left_out if p.run.id in ids])
    yield (
        f"{len(each)} configurations of NVIDIA's guides come with TFLOPS and no tokens, most of them rounded. With "
        f"constants fitted to other models' speeds the median error is {unseen:.1%}. With the stdlib's constants, "
        f"which were fitted to them too, it is {np.median([abs(s.error) for s in each]):.1%}.\n"
    )
    yield "| run | source | model | GPU | precision | overlap | stated | estimated | error | assumed |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for s in each:
        overlap = "on" if s.run.row["ep_overlap"] else "off"
        yield (
            f"| {s.run.id} | {s.source} | {s.run.model} | {s.run.gpu} | {s.run.precision} | {overlap} | {s.tflops} "
            f"| {s.said:.0f} | {s.error:+.1%} | {s.assumes} |"
        )
