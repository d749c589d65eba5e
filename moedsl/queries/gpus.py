"""Compare GPUs and time: the best layout on the fewest GPUs that work and on each doubling, up to 64 times as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve

from moedsl.facts.gpu_counts import MOST_GPUS, counts
from moedsl.planner.model.answers import GpusPoint, GpusTime
from moedsl.queries.figures import Budget, priced
from moedsl.rules.check.program import Program
from moedsl.solver.solve import Chosen, plan_for

DOUBLINGS = 6
Progress = Callable[[str], None]


def held(chosen: Chosen) -> Program:
    """State the GPUs, sequence length and batch of a run, so that it compiles alone."""
    p, c = chosen.problem.program, chosen.problem
    return evolve(
        p, gpus=c.gpus, seq=int(c.values["seq"]), batch=int(c.global_batch), batch_gpus=None, sweep=None, isolate=None,
        workflow=None,
    )  # fmt: skip


def scaling(chosen: Chosen, budget: Budget | None, progress: Progress) -> GpusTime:
    """Find the best layouts by GPUs, at the same batch."""
    p, solved = held(chosen), list[Chosen]()
    start = _fewest(p, chosen.must_fit, progress)
    if start is None:
        return GpusTime(None, (), ())
    wanted = numbers(start.problem.gpus, chosen.problem.gpus, p.hardware.gpus_per_node)
    for gpus in wanted:
        progress(f"pricing {gpus} GPUs")
        at = evolve(p, gpus=gpus)
        solved.append(start if gpus == start.problem.gpus else plan_for(at, gpus, keep=1, must_fit=chosen.must_fit))
    without = tuple(c.problem.gpus for c in solved if not c.solution.rows)
    return GpusTime(wanted[0], tuple(_points(chosen, solved, budget)), without)


def numbers(fewest: int, now: int, node: int) -> list[int]:
    """The numbers to try: the fewest and its doublings, doublings of a node in that range, and the run's own number."""
    most = min(fewest << DOUBLINGS, MOST_GPUS)
    doubled = {n << i for n in (fewest, node) for i in range(MOST_GPUS.bit_length())}
    return sorted(n for n in {*doubled, now} if fewest <= n and (n <= most or n == now))


def _fewest(p: Program, must_fit: str, progress: Progress) -> Chosen | None:
    """Solve on the smallest number of GPUs that works with the same step."""
    for gpus in counts(p.hardware):
        progress(f"trying {gpus} GPUs")
        solved = plan_for(evolve(p, gpus=gpus), gpus, keep=1, must_fit=must_fit)
        if solved.solution.rows:
            return solved
    return None


def _points(chosen: Chosen, solved: list[Chosen], budget: Budget | None) -> Iterator[GpusPoint]:
    plan, fastest = chosen.solution.rows[0].codes, float("inf")
    for c in (c for c in solved if c.solution.rows):
        row = c.solution.rows[0]
        at = {"plan": c.problem.gpus == chosen.problem.gpus, "on_front": row.step_time < fastest}
        yield priced(GpusPoint, c, row, budget, layout=row.layout, changes=row.changes(plan), **at)
        fastest = min(fastest, row.step_time)
