"""Note properties of the run itself: the number of GPUs, mock data, a long run that saves nothing, a batch with few
divisors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from moedsl.cost import goodput
from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.ids import RuleId
from moedsl.rules.interpreter import holds
from moedsl.rules.vectorizer import names
from moedsl.solver.laws import Compiled, Law
from moedsl.solver.members import Size, nearby
from moedsl.solver.problem import Problem
from moedsl.solver.solve import Chosen, solve
from moedsl.support.diagnostics import Diagnostic, Instead, note, warning
from moedsl.support.text import counted, duration


def whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    """Note a run on more than one node whose GPUs are not whole nodes."""
    node = p.hardware.gpus_per_node
    if gpus <= node or gpus % node == 0:
        return []
    text = f"{gpus} GPUs are not whole nodes of {node}"
    whole = f"{p.hardware.name} x {(gpus // node + 1) * node}"
    help = Instead(f"write `{whole}`", whole)
    return [note("plan.partial_node", text, p.spans["hardware"], help=help)]


def smallest(p: Program, gpus: int) -> Diagnostic:
    """Note that the solver chose the number of GPUs."""
    text = f"{gpus} {p.hardware.name} are the fewest GPUs that work; tried were divisors of a node and whole nodes"
    help = Instead(f"write `{p.hardware.name} x {gpus}` to keep it", f"{p.hardware.name} x {gpus}")
    return note("plan.smallest", text, p.spans["hardware"], help=help)


RULES = (RuleId.MOCK_DATA,)
"""`measured` members whose condition depends only on the run."""


def no_proxy(problem: Problem) -> list[Diagnostic]:
    """Note each rule of RULES whose condition the run meets."""
    p = problem.program
    rules = (r for r in p.of("measured") if r.id in RULES and holds(r.when, problem.values))
    where = p.spans.get("data") or p.spans.get("vlm") or p.spans.get("model") or p.spans["hardware"]
    return [
        note("plan.no_proxy", r.expr.value, where, help='name real images: `data "path"`')
        for r in rules
        if isinstance(r.expr, ast.String)
    ]


DAY = 86400.0
"""Seconds; a run that trains for longer should save."""


def unsaved(c: Chosen) -> list[Diagnostic]:
    """Warn of a run that states a length of more than a day, and saves no checkpoint."""
    p, known = c.problem.program, c.problem.values
    steps = p.sets.get("train.train_iters") or known["run_tokens"] / (c.problem.global_batch * known["seq"])
    seconds = known["run_seconds"] or steps * c.solution.rows[0].step_time
    if known["saves"] or seconds <= DAY or p.phase == "profile":
        return []
    mtbf = goodput.mtbf(c.problem.gpus, p.site.gpu_mtbf or c.cost.hardware.constants.gpu_mtbf)
    takes = f"a failure, expected every {duration(mtbf)} on {counted(c.problem.gpus, 'GPU')}, takes all of it"
    text = f"the run trains for {duration(seconds)} and saves no checkpoint: {takes}"
    where = p.spans.get("for") or p.spans.get("train.train_iters") or p.spans["hardware"]
    ways = ('write `set checkpoint.save = "FOLDER"`', 'or `data "PATH"`: a recipe on a corpus saves')
    return [warning("plan.unsaved", text, where, help=ways if p.data == "mock" else ways[:1])]


AROUND = 1.0
"""Largest difference of a near batch from the run's, as a share: up to twice the batch."""
WORTH = 1.05
"""Least gain in tokens a second, as a multiple, that makes the note a warning."""
MOST = 3
"""Number of near batches that are solved, the nearest first."""


def uneven_batch(chosen: Chosen) -> list[Diagnostic]:
    """Note that the batch limits the replicas and a near batch allows more; warn if that batch is faster."""
    p, law = chosen.problem.program, _divides(chosen.compiled)
    batch, dp = chosen.problem.global_batch, _replicas(chosen)
    if law is None or not _stated(p) or dp != _shared(chosen, batch):
        return []
    wider = {n: gain for n in _nearby(chosen, batch) if (gain := _gain(chosen, n))}
    return [_diagnostic(chosen, law, wider)] if wider else []


def _divides(c: Compiled) -> Law | None:
    """The law that the replicas divide the batch, if the run has it."""
    return next((w for w in c.laws if {"global_batch", "dp"} <= names(w.rule.expr)), None)


def _stated(p: Program) -> bool:
    """Whether the run states its batch, not a sweep or an isolation."""
    varied = (p.spans.get("sweep"), p.isolate.span if p.isolate else None)
    return "batch" in p.spans and p.spans["batch"] not in varied


def _replicas(c: Chosen) -> int:
    codes = c.solution.rows[0].codes
    return c.problem.gpus // (codes["tp"] * codes["cp"] * codes["pp"])


def _shared(c: Chosen, batch: int) -> int:
    """The most replicas that divide both the GPUs and the microbatches of a batch."""
    return gcd(batch // _micro_batch(c.problem.program), c.problem.gpus)


def _micro_batch(p: Program) -> int:
    pin = p.pins.get("micro_batch")
    return pin.code if pin is not None else 1


def _nearby(c: Chosen, batch: int) -> Sequence[int]:
    """Near batches with more replicas, the nearest first; a farther batch is listed only if it allows still more."""
    p = c.problem.program
    size = Size("global_batch", "batch", batch, p.spans["batch"])
    near = [n for n in nearby(c.compiled, size) if abs(n - batch) < AROUND * batch and n % _micro_batch(p) == 0]
    best, out = _shared(c, batch), list[int]()
    for n in sorted(near, key=lambda n: (abs(n - batch), -_shared(c, n))):
        if _shared(c, n) > best:
            best, out = _shared(c, n), [*out, n]
    return out[:MOST]


def _gain(c: Chosen, batch: int) -> tuple[int, float] | None:
    """The replicas and the gain in tokens a second at another batch; None if it has no more replicas."""
    other = solve(c.problem.program, c.problem.gpus, keep=1, global_batch=batch, must_fit=c.must_fit)
    if not other.solution.rows or _replicas(other) <= _replicas(c):
        return None
    times = c.solution.rows[0].step_time / other.solution.rows[0].step_time
    return _replicas(other), times * batch / c.problem.global_batch


def _diagnostic(c: Chosen, law: Law, wider: Mapping[int, tuple[int, float]]) -> Diagnostic:
    p, batch, micro = c.problem.program, c.problem.global_batch, _micro_batch(c.problem.program)
    parts = f"{batch // micro} microbatches of {micro}" if micro > 1 else f"{batch} sequences"
    common = f"the greatest common divisor of {parts} and {c.problem.gpus} GPUs"
    buys = {f"batch {n}": f"dp {dp} and {gain:.2f}x the tokens a second" for n, (dp, gain) in wider.items()}
    faster = [n for n, (_, gain) in wider.items() if gain >= WORTH]
    return (warning if faster else note)(
        "plan.uneven_batch",
        f"the batch limits data parallelism to {_replicas(c)}, {common}",
        p.spans["batch"],
        help=tuple(Instead(f"write `batch {n}`", f"batch {n}") for n in faster),
        because=law.rule.because,
        cites=law.rule.cites,
        values={"global_batch": batch} | buys,
    )
