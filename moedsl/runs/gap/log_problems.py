"""Find in a log what the estimate leaves out: slow steps, data loading, clocks and stragglers.

Megatron's timers print the least and the most of all ranks (core timers.py:339) if `logger.timing_log_level` is set;
its straggler detector prints clocks and speeds of ranks (core utils.py:1770) if `straggler.log_straggler` is.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.diagnose import scan
from moedsl.runs.results.log import DECIMAL

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


def problems(paths: Sequence[Path], seconds: Sequence[float]) -> list[Json]:
    """Find what the logs of a run show, each with its share of the step if that is known.

    `seconds` are the steps after the warm-up. Data loading is of the rank that waits longest, over all microbatches
    of a step; clocks and speeds compare the slowest rank with the fastest.
    """
    loading, ranks, unbound = _read(paths)
    found: list[Json] = []
    middle = statistics.median(seconds) if seconds else 0.0
    if over := [s - middle for s in seconds if s > SLOW * middle]:
        share = sum(over) / sum(seconds)
        found.append({"what": "slow steps", "share": share, "steps": len(over), "of_steps": len(seconds)})
    if loading and middle:
        waits = statistics.median(loading) / 1000
        found.append({"what": "data loading", "share": waits / middle, "seconds": waits})
    for name, what, unit in (("Clk", "clocks", "mhz"), ("Etpt", "stragglers", "tflops")):
        if pairs := [(low, high) for low, high in ranks.get(name, ()) if high]:
            low, high = (statistics.median(column) for column in zip(*pairs, strict=True))
            found.append({"what": what, "share": 1 - low / high, f"least_{unit}": low, f"most_{unit}": high})
    if heat := [high for _, high in ranks.get("Tmp", ())]:
        found.append({"what": "temperature", "share": None, "most_celsius": max(heat)})
    if unbound:
        found.append({"what": "affinity", "share": None, "ranks": len(unbound), "because": unbound[0]})
    return found


def speed_up_at_most(found: Sequence[Json]) -> float:
    """Upper bound on the speed-up if the problems seen in the log were gone: data loading, and a slowest rank, by its
    clock or by its speed. The median step is no slow step, so those do not count."""
    share = {s["what"]: s["share"] for s in found}
    slowest = max(share.get("clocks", 0.0), share.get("stragglers", 0.0))
    return 1 / (1 - min(share.get("data loading", 0.0), MOST)) / (1 - min(slowest, MOST))


def _read(paths: Sequence[Path]) -> tuple[list[float], Pairs, list[str]]:
    """Read the most of the timer of data loading in ms, the (least, most) of each figure of the straggler detector, and
    why ranks were not bound to the CPUs and the memory next to their GPU."""
    loading: list[float] = []
    ranks: Pairs = {}
    unbound: list[str] = []
    for path in paths:
        with path.open("rb") as stream:
            for line in (row for block in scan.blocks(stream) for row in block.splitlines()):
                if not any(word in line for word in _WORDS):
                    continue
                text = line.decode("utf-8", errors="replace")
                if found := _TIMER.search(text):
                    loading.append(float(found[1]))
                if found := _UNBOUND.search(text):
                    unbound.append(found[1])
                ends: dict[str, dict[str, float]] = {}
                for end, name, value in _RANKS.findall(text):
                    ends.setdefault(name, {})[end] = float(value)
                for name, v in ends.items():
                    if len(v) == 2:
                        ranks.setdefault(name, []).append((v["Mn"], v["Mx"]))
    return loading, ranks, unbound
