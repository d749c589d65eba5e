"""Name the nodes of the ranks that the detectors of stragglers found slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from moedsl.runs.results.line import Slow

REPORTS = 10
"""The newest reports that count."""
APART = 1.1
"""The slowest rank's time over the fastest's from which on it is a straggler: one rank is always the slowest."""
_BELOW = "below the threshold of nvidia-resiliency-ext"


@frozen
class Found:
    """A report of a detector, and the iteration after which it came."""

    iteration: int
    slow: Slow

    @property
    def because(self) -> str:
        return _BELOW if self.slow.ratio is None else f"{self.slow.ratio:.2f} times the time of the fastest rank"


def stragglers(found: Sequence[Found], per_node: int | None) -> list[dict[str, Any]]:
    """List the slow nodes, those of most reports first; a node that no line names has a number, counted from 0."""
    newest = sorted(found, key=lambda f: f.iteration)[-REPORTS:]
    reports = [f for f in newest if f.slow.ratio is None or f.slow.ratio >= APART]
    named = {rank: node for f in reports for rank, node in f.slow.nodes.items() if node}
    by_node: dict[str, set[int]] = {}
    for rank in sorted({rank for f in reports for rank in f.slow.nodes}):
        place = f"node {rank // per_node}" if per_node else f"the node of rank {rank}"
        by_node.setdefault(named.get(rank, place), set()).add(rank)
    rows = [_row(node, ranks, [f for f in reports if ranks & f.slow.nodes.keys()]) for node, ranks in by_node.items()]
    return [{**row, "reports": len(newest)} for row in sorted(rows, key=lambda r: -r["in_reports"])]


def _row(node: str, ranks: set[int], reports: Sequence[Found]) -> dict[str, Any]:
    last = reports[-1]
    return {
        "node": node,
        "ranks": sorted(ranks),
        "in_reports": len(reports),
        "at_iteration": last.iteration,
        "because": last.because,
    }
