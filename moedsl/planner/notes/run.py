"""Note what the run itself decides: the number of GPUs, mock data, a batch with few divisors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from moedsl.checker.program import Program
from moedsl.diagnostics.model import Diagnostic, Instead, note, warning
from moedsl.rules.ids import RuleId
from moedsl.rules.interpreter import holds
from moedsl.rules.vectorizer import names
from moedsl.solver.laws import Compiled, Law
from moedsl.solver.problem import Problem
from moedsl.solver.sizes import Size, nearby
from moedsl.solver.solve import Chosen, solve
from moedsl.syntax import ast


def whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    """A note where the GPUs of a run are more than a node and not whole nodes."""
    node = p.hardware.gpus_per_node
    if gpus <= node or gpus % node == 0:
        return []
    text = f"{gpus} GPUs are not whole nodes of {node}"
    whole = f"{p.hardware.name} x {(gpus // node + 1) * node}"
    help = Instead(f"write `{whole}`", whole)
    return [note("plan.partial_node", text, p.spans["hardware"], help=help)]


def smallest(p: Program, gpus: int) -> Diagnostic:
    """Says that the number of GPUs is the solver's."""
    text = f"{gpus} {p.hardware.name} are the fewest GPUs that work, of what divides a node and whole nodes"
    help = Instead(f"write `{p.hardware.name} x {gpus}` to keep it", f"{p.hardware.name} x {gpus}")
    return note("plan.smallest", text, p.spans["hardware"], help=help)


RULES = (RuleId.MOCK_DATA,)
"""`measured` members whose condition the run alone decides."""


def no_proxy(problem: Problem) -> list[Diagnostic]:
    """A note for each rule of RULES whose condition the run meets."""
    p = problem.program
    rules = (r for r in p.of("measured") if r.id in RULES and holds(r.when, problem.values))
    where = p.spans.get("data") or p.spans.get("vlm") or p.spans.get("model") or p.spans["hardware"]
    return [
        note("plan.no_proxy", r.expr.value, where, help='name real images: `data "path"`')
        for r in rules
        if isinstance(r.expr, ast.String)
    ]


AROUND = 1.0
"""Share of the batch within which another one is near: up to twice of it."""
WORTH = 1.05
"""Tokens a second, as a multiple, from which another batch makes it a warning."""
MOST = 3
"""Near batches that are solved, the nearest first."""


def uneven_batch(chosen: Chosen) -> list[Diagnostic]:
    """What is said where the replicas are as many as the batch divides into, and a near batch has more of them.

    A warning where such a batch is faster, else a note.
    """
    p, law = chosen.problem.program, _divides(chosen.compiled)
    batch, dp = chosen.problem.global_batch, _replicas(chosen)
    if law is None or not _stated(p) or dp != _shared(chosen, batch):
        return []
    wider = {n: found for n in _nearby(chosen, batch) for found in (_buys(chosen, n),) if found}
    return [_said(chosen, law, wider)] if wider else []


def _divides(c: Compiled) -> Law | None:
    """The law that has the replicas divide the batch, where it holds here."""
    return next((w for w in c.laws if {"global_batch", "dp"} <= names(w.rule.expr)), None)


def _stated(p: Program) -> bool:
    """Whether the run names its batch itself, a sweep or an isolation aside."""
    varied = (p.spans.get("sweep"), p.isolate.span if p.isolate else None)
    return "batch" in p.spans and p.spans["batch"] not in varied


def _replicas(c: Chosen) -> int:
    codes = c.solution.rows[0].codes
    return c.problem.gpus // (codes["tp"] * codes["cp"] * codes["pp"])


def _shared(c: Chosen, batch: int) -> int:
    """The most replicas that a batch, in microbatches of the size that is pinned or of 1, and the GPUs divide into."""
    return gcd(batch // _micro_batch(c.problem.program), c.problem.gpus)


def _micro_batch(p: Program) -> int:
    pin = p.pins.get("micro_batch")
    return pin.code if pin is not None else 1


def _nearby(c: Chosen, batch: int) -> Sequence[int]:
    """Batches that divide into more replicas, each with more than those that are nearer; of two as near the better."""
    p = c.problem.program
    size = Size("global_batch", "batch", batch, p.spans["batch"])
    near = [n for n in nearby(c.compiled, size) if abs(n - batch) < AROUND * batch and n % _micro_batch(p) == 0]
    best, out = _shared(c, batch), list[int]()
    for n in sorted(near, key=lambda n: (abs(n - batch), -_shared(c, n))):
        if _shared(c, n) > best:
            best, out = _shared(c, n), [*out, n]
    return out[:MOST]


def _buys(c: Chosen, batch: int) -> tuple[int, float] | None:
    """The replicas at another batch, and its tokens a second as a multiple of the run's; None where there are no more
    replicas."""
    other = solve(c.problem.program, c.problem.gpus, keep=1, global_batch=batch)
    if not other.solution.rows or _replicas(other) <= _replicas(c):
        return None
    times = c.solution.rows[0].step_time / other.solution.rows[0].step_time
    return _replicas(other), times * batch / c.problem.global_batch


def _said(c: Chosen, law: Law, wider: Mapping[int, tuple[int, float]]) -> Diagnostic:
    p, batch, micro = c.problem.program, c.problem.global_batch, _micro_batch(c.problem.program)
    parts = f"{batch // micro} microbatches of {micro}" if micro > 1 else f"{batch} sequences"
    common = f"{parts} and {c.problem.gpus} GPUs have no larger divisor in common"
    buys = {f"batch {n}": f"dp {dp} and {gain:.2f}x the tokens a second" for n, (dp, gain) in wider.items()}
    faster = [n for n, (_, gain) in wider.items() if gain >= WORTH]
    return (warning if faster else note)(
        "plan.uneven_batch",
        f"the batch keeps data parallelism at {_replicas(c)}: {common}",
        p.spans["batch"],
        help=tuple(Instead(f"write `batch {n}`", f"batch {n}") for n in faster),
        because=law.rule.because,
        cites=law.rule.cites,
        values={"global_batch": batch} | buys,
    )
