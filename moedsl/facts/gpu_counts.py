"""List the numbers of GPUs to try if a run names none."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.facts.facts import Hardware

MOST_GPUS = 16_384


def counts(h: Hardware, above: int = 0) -> Iterator[int]:
    """The numbers in ascending order: divisors of a node, whole nodes up to 32, then eight numbers an octave."""
    node = h.gpus_per_node
    nodes = sorted({*range(1, 33), *(m * 2**e for e in range(2, 12) for m in range(8, 16))})
    yield from (g for g in range(above + 1, node) if node % g == 0)
    yield from (n * node for n in nodes if above < n * node <= MOST_GPUS)
