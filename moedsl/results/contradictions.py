"""Find where a log contradicts the plan of its run: another global batch, or starts of different speeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.results.numbers import Numbers

Json = dict[str, Any]
BATCH, RESTART, STARTS = "batch", "restart", "starts"
UNFIT = (BATCH, STARTS)
"""What makes the figures those of no one run, or of another one."""
SPEEDS = 1.1
"""The ratio of the speeds of two starts from which on one median misstates both."""


@frozen
class Timed:
    """A measured line of the log: the last rank's, or rank 0's."""

    seconds: float
    global_batch: int
    tflops: float | None


def contradictions(
    n: Numbers, batches: Sequence[int], starts: Sequence[Sequence[Timed]], earlier: Sequence[int] = ()
) -> list[Json]:
    """Return what contradicts, as `id` and `text`: `batches` are those that the log states, in order, `starts` the
    measured lines of each attempt, and `earlier` the batches of starts that do not count."""
    found = {BATCH: _batch(n, batches), RESTART: _restart(batches, earlier), STARTS: _starts(starts)}
    return [{"id": id, "text": text} for id, text in found.items() if text]


def said(row: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
    """Return the contradictions of a row with these ids."""
    return [w["text"] for w in row["warnings"] if w["id"] in ids]


def _batch(n: Numbers, batches: Sequence[int]) -> str | None:
    """Another batch is another experiment. One that still ramps up to the full one is not."""
    if not batches or n.global_batch is None or batches[-1] == n.global_batch:
        return None
    if batches[-1] < n.global_batch and (n.ramps_up or batches[0] < batches[-1]):
        return None
    stated = f"its log states a global batch of {batches[-1]:,}"
    if n.source == "given":
        return f"{stated}, --global-batch {n.global_batch:,}: the log's counts"
    return (
        f"{stated}, its {n.source} {n.global_batch:,}: that is another experiment, so it is not compared with the"
        f" {n.source}; compile the program with `batch {batches[-1]}`, and give LOG=PLAN"
    )


def _restart(batches: Sequence[int], earlier: Sequence[int]) -> str | None:
    if not batches or not earlier:
        return None
    was = " and ".join(f"{b:,}" for b in earlier)
    return f"its log had a global batch of {was} before a restart with {batches[-1]:,}: only the steps since then count"


def _starts(starts: Sequence[Sequence[Timed]]) -> str | None:
    """Compare the starts that have enough lines."""
    known = [a for a in starts if len(a) >= 3]
    rates = [statistics.median(t.global_batch / t.seconds for t in a) for a in known]
    if len(rates) < 2 or max(rates) < SPEEDS * min(rates):
        return None
    times = " and ".join(f"{statistics.median(t.seconds for t in a):.2f}" for a in known)
    return f"its {len(known)} starts differ in speed, {times} s a step, and the figures mix them: look at the machines"
