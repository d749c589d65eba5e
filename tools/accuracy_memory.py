"""Write the memory part of docs/accuracy.md: peaks, statements, verdicts of published runs, and what is not judged."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from accuracy_goldens import functional_tests
from accuracy_statements import Judged, statements

from moedsl.cost.estimate import FITS, bounds
from moedsl.runs.measured_runs import Measured

FOLDER = Path(__file__).parents[1] / "stdlib/calibration"


def memory(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of Markdown for published runs and published statements."""
    found, wrong = statements(FOLDER / "statements.jsonl")
    if wrong:
        sys.exit("\n".join(d.message for d in wrong))
    judged = [s.judged() for s in found]
    peaks = [r for r in runs if r.peak]
    errors = {(r.model, r.peak): abs(float(r.cost.memory(r.row)[0]) / 1e9 / r.peak - 1) for r in peaks if r.peak}
    off, rungs = [*errors.values()], [abs(j.error) for j in judged if j.error is not None]
    yield (
        f"{len(off)} published peaks can be expressed, with a median error of {np.median(off):.1%}, and "
        f"{len(rungs)} steps of optimizer offload, with a median error of {np.median(rungs):.1%}.\n"
    )
    yield from _peaks(peaks)
    yield "\n### Statements\n"
    yield from _statements(judged)
    yield "\n### Verdicts of published runs\n"
    yield from _verdicts(runs)
    yield "\n### Functional tests of Megatron-LM\n"
    yield from functional_tests()
    yield "\n### Not judged\n"
    yield from _not_judged()


def _peaks(peaks: Sequence[Measured]) -> Iterator[str]:
    yield "| run | model | GPU | measured | estimated | error | low to high |"
    yield "|---|---|---|---|---|---|---|"
    for r in peaks:
        said, b = float(r.cost.memory(r.row)[0]) / 1e9, bounds(r.cost, r.row)
        off = said / (r.peak or np.nan) - 1
        range = f"{b.least / 1e9:.1f} to {b.most / 1e9:.1f} GB"
        yield f"| {r.id} | {r.model} | {r.gpu} | {r.peak:.1f} GB | {said:.1f} GB | {off:+.1%} | {range} |"


def _statements(judged: Sequence[Judged]) -> Iterator[str]:
    yield "| run | source | statement | estimate | error | agrees |"
    yield "|---|---|---|---|---|---|"
    for j in judged:
        error = "" if j.error is None else f"{j.error:+.1%}"
        yield f"| {j.id} | {j.source} | {j.says} | {j.ours} | {error} | {'yes' if j.agrees else f'no: {j.but}'} |"


def _verdicts(runs: Sequence[Measured]) -> Iterator[str]:
    """Compare verdicts with the fact that a run with a published speed had enough memory."""
    told = {r.id: bounds(r.cost, r.row) for r in runs}
    count = Counter(b.verdict for b in told.values())
    said = ", ".join(f"{n} {verdict}" for verdict, n in count.most_common())
    yield (
        f"These are the {len(told)} runs of the tables above. If the page of a run states no recompute, it is the "
        f"recipe's. All of them ran. The verdicts: {said}.\n"
    )
    notes = dict(line.split(" ", 1) for line in _lines("memory_notes.txt"))
    yield "| run | model | GPU | verdict | in torch | GPU shows | why |"
    yield "|---|---|---|---|---|---|---|"
    for r in runs:
        b = told[r.id]
        if b.verdict != FITS:
            size = f"{b.least / 2**30:.0f} to {b.most / 2**30:.0f} GiB | {b.visible / 2**30:.0f} GiB"
            yield f"| {r.id} | {r.model} | {r.gpu} | {b.verdict} | {size} | {notes.get(r.id, 'not known')} |"


def _not_judged() -> Iterator[str]:
    yield "| where | statement | why not |"
    yield "|---|---|---|"
    yield from (f"| {line} |" for line in _lines("not_judged.txt"))


def _lines(name: str) -> list[str]:
    return [line for line in (FOLDER / name).read_text(encoding="utf-8").splitlines() if line.strip()]
