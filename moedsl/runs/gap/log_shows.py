"""Find in a log what the estimate leaves out: slow steps, data loading, clocks and stragglers.

Megatron's timers print the least and the most of all ranks (core timers.py:339) if `logger.timing_log_level` is set;
its straggler detector prints clocks and speeds of ranks (core utils.py:1770) if `straggler.log_straggler` is.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from moedsl.diagnose import scan
from moedsl.runs.results.line import DECIMAL

Json = dict[str, Any]
MOST = 0.99
"""No share of a step counts for more: what remains is the step."""
SLOW = 1.2
"""A step is slow above so many medians."""
LOADING = "batch-generator"
_TIMER = re.compile(rf"{LOADING} \.{{2,}}: (?:\({DECIMAL}, )?({DECIMAL})\)?\s*$")
_RANKS = re.compile(rf"(M[nx])(Rtt|Clk|Tmp|Pwr|DRtt|Etpt)/Rnk: ({DECIMAL})(?:ms|us|C|W|MHz|TF)/")
_UNBOUND = re.compile(r"local rank \d+ is not bound to a NUMA node: (.+)")
_WORDS = (LOADING.encode(), b"Rtt/Rnk:", b"is not bound to a NUMA node")
Pairs = dict[str, list[tuple[float, float]]]


def shown(paths: Sequence[Path], seconds: Sequence[float]) -> list[Json]:
    """Return what the logs of a run show, each with its share of the step if that is known; `seconds` are the steps
    after the warm-up."""
    loading, ranks, unbound = _read(paths)
    step = statistics.median(seconds) if seconds else None
    every = (
        _slow(seconds), _loading(loading, step), _clocks(ranks), _stragglers(ranks), _heat(ranks), _unbound(unbound),
    )  # fmt: skip
    return [one for one in every if one]


def at_most(found: Sequence[Json]) -> float:
    """Return the factor of speed that a run would gain at most without what its log shows: data loading, and a slowest
    rank, by its clock or by its speed. The median step is no slow step."""
    share = {s["what"]: s["share"] for s in found}
    slowest = max(share.get("clocks", 0.0), share.get("stragglers", 0.0))
    return 1 / (1 - min(share.get("data loading", 0.0), MOST)) / (1 - min(slowest, MOST))


def _read(paths: Sequence[Path]) -> tuple[list[float], Pairs, list[str]]:
    """Read the most of the timer of data loading in ms, the (least, most) of each figure of the straggler detector, and
    why ranks were not bound."""
    loading: list[float] = []
    ranks: Pairs = {}
    unbound: list[str] = []
    for line in _lines(paths):
        if found := _TIMER.search(line):
            loading.append(float(found[1]))
        if found := _UNBOUND.search(line):
            unbound.append(found[1])
        for name, low, high in _pairs(line):
            ranks.setdefault(name, []).append((low, high))
    return loading, ranks, unbound


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that matter."""
    for path in paths:
        with path.open("rb") as stream:
            for block in scan.blocks(stream):
                lines = (line for line in block.splitlines() if any(word in line for word in _WORDS))
                yield from (line.decode("utf-8", errors="replace") for line in lines)


def _pairs(line: str) -> Iterator[tuple[str, float, float]]:
    each: dict[str, dict[str, float]] = {}
    for end, name, value in _RANKS.findall(line):
        each.setdefault(name, {})[end] = float(value)
    yield from ((name, v["Mn"], v["Mx"]) for name, v in each.items() if len(v) == 2)


def _slow(seconds: Sequence[float]) -> Json | None:
    if len(seconds) < 2:
        return None
    middle = statistics.median(seconds)
    over = [s - middle for s in seconds if s > SLOW * middle]
    lost = sum(over) / sum(seconds)
    return {"what": "slow steps", "share": lost, "steps": len(over), "of_steps": len(seconds)} if over else None


def _loading(loading: Sequence[float], step: float | None) -> Json | None:
    """Data loading: of the rank that waits longest, all microbatches of a step."""
    if not loading or not step:
        return None
    seconds = statistics.median(loading) / 1000
    return {"what": "data loading", "share": seconds / step, "seconds": seconds}


def _clocks(ranks: Pairs) -> Json | None:
    """The slowest clock against the fastest: what bounds compute would gain at most."""
    return _apart(ranks, "Clk", "clocks", "mhz")


def _stragglers(ranks: Pairs) -> Json | None:
    """The slowest rank against the fastest, by the speed that the detector estimates."""
    return _apart(ranks, "Etpt", "stragglers", "tflops")


def _apart(ranks: Pairs, name: str, what: str, unit: str) -> Json | None:
    pairs = [(low, high) for low, high in ranks.get(name, ()) if high]
    if not pairs:
        return None
    low, high = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"what": what, "share": 1 - low / high, f"least_{unit}": low, f"most_{unit}": high}


def _heat(ranks: Pairs) -> Json | None:
    most = [high for _, high in ranks.get("Tmp", ())]
    return {"what": "temperature", "share": None, "most_celsius": max(most)} if most else None


def _unbound(why: Sequence[str]) -> Json | None:
    """The ranks that started without the CPUs and the memory next to their GPU."""
    return {"what": "affinity", "share": None, "ranks": len(why), "because": why[0]} if why else None
