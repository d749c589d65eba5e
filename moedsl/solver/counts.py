"""Find batches and numbers of GPUs that divide well, near those of a run.

Megatron gives every replica the same sequences, and every stage and expert group the same number of GPUs, so a number
of GPUs with odd factors (a rack of 72) may leave no fast layout for a batch that is a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from attrs import evolve

from moedsl.facts.facts import Hardware
from moedsl.rules.check.program import Program
from moedsl.solver import solve
from moedsl.solver.problem import divisors
from moedsl.solver.solve import Chosen, NoLayout, Progress, plan_for

AROUND = 1.0
"""Largest difference of a near batch from the run's, as a share: up to twice the batch."""
NEAR = 0.25
"""The same for `batch near N`, where the solver takes the batch by itself."""
MOST = 3
"""Number of near batches that are solved, of those that divide best."""
DOUBLINGS = 7
"""A near batch gives a replica up to 2**6 sequences that halve evenly."""


def choose(p: Program, progress: Progress) -> Chosen | NoLayout:
    """Find the best layouts, as `solve.choose`; `batch near N` takes the batch with the most tokens a second, of N and
    near ones. A sweep keeps N, because its runs are compared."""
    found = solve.choose(p, progress)
    if p.batch_near is None or p.sweep is not None:
        return found
    gpus = p.gpus if isinstance(found, NoLayout) else found.problem.gpus
    if gpus is None:
        return found
    pin = p.pins.get("micro_batch")
    for n in near_batches(gpus, p.batch_near, pin.code if pin else 1, NEAR)[-MOST:]:
        progress(f"trying a batch of {n}")
        other = plan_for(evolve(p, batch=n), gpus)
        if other.solution.rows and (isinstance(found, NoLayout) or speed(other) > speed(found)):
            found = other
    return found


def speed(c: Chosen) -> float:
    """Return the sequences a second and GPU of the best layout."""
    return c.problem.global_batch / c.solution.rows[0].step_time / c.problem.gpus


def odd_part(n: int) -> int:
    """Return what is left of a number without its factors 2."""
    return n // (n & -n)


def near_batches(gpus: int, batch: int, micro: int = 1, within: float = AROUND) -> list[int]:
    """Return batches near `batch`, the nearest first: each allows more replicas than the nearer ones, or as many with
    more sequences that halve evenly; `micro` sequences are a pinned microbatch."""

    def evenness(n: int) -> tuple[int, int]:
        replicas = gcd(n // micro, gpus)
        left = n // micro // replicas
        return replicas, left & -left

    units = {(d * micro) << k for d in divisors(gpus) for k in range(DOUBLINGS)}
    around = {n for u in units for n in (batch // u * u, -(-batch // u) * u) if n and abs(n - batch) < within * batch}
    best, found = evenness(batch), list[int]()
    for n in sorted(around, key=lambda n: (abs(n - batch), -n)):
        if evenness(n) > best:
            best, found = evenness(n), [*found, n]
    return found


def smaller_counts(h: Hardware, gpus: int) -> Iterator[int]:
    """Yield the largest 2**k and 3 * 2**k below `gpus`, and not below half, if their odd factor is smaller."""
    for factor in (1, 3):
        n = factor << max(0, ((gpus - 1) // factor).bit_length() - 1)
        if factor < odd_part(gpus) and gpus <= 2 * n < 2 * gpus and (n % h.gpus_per_node == 0 or n < h.gpus_per_node):
            yield n
