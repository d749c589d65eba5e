"""Program -> the chosen layout: on the GPUs that the run names, or on the fewest that work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from moedsl.cost import Cost
from moedsl.counts import MOST_GPUS, counts
from moedsl.diagnostics import Diagnostic, Instead, note
from moedsl.idle_advice import idle_advice
from moedsl.ir import Problem, Program
from moedsl.lower import lower
from moedsl.proxies import no_proxy
from moedsl.solve import Row, Search, Solution
from moedsl.tables import Compiled, compile_problem
from moedsl.uneven_batch import uneven_batch
from moedsl.unheeded import unheeded

KEEP = 6


@frozen
class Chosen:
    """The best layouts of a program; the first is the plan. `steps` are larger GPU counts and their best layouts."""

    problem: Problem
    compiled: Compiled
    cost: Cost
    solution: Solution
    steps: tuple[tuple[int, Row], ...] = field(factory=tuple)


def choose(p: Program, progress: Callable[[str], None]) -> tuple[Chosen | None, list[Diagnostic]]:
    """The best layout, or why there is none."""
    if p.gpus is None:
        return _smallest(p, progress)
    chosen = solve(p, p.gpus)
    if chosen.solution.rows:
        return chosen, [*_whole_nodes(p, p.gpus), *_notes(chosen)]
    from moedsl import explain  # only a failure pays for it

    progress("nothing fits: looking for what collides")
    return None, explain.conflict(chosen.compiled, chosen.cost, solve)


def solve(p: Program, gpus: int, keep: int = KEEP, **overrides: Any) -> Chosen:
    """One search on a number of GPUs; with `keep` 0 the problem is only compiled."""
    problem = lower(p, gpus, overrides)
    cost = make_cost(problem)
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    return Chosen(problem, compiled, cost, Search(compiled, cost, keep).run() if keep else Solution((), 0, 0))


def make_cost(problem: Problem) -> Cost:
    """The prices of a problem's model on its machine."""
    p = problem.program
    return Cost(
        p.model,
        p.hardware,
        problem.gpus,
        problem.values["seq"],
        problem.global_batch,
        p.task,
        p.vlm,
        p.pipeline_layout,
        p.routing,
        p.sets.get("model.cross_entropy_fusion_impl") or "te",
    )


def _notes(c: Chosen) -> list[Diagnostic]:
    """What should be known before the plan is read."""
    return [*no_proxy(c.problem), *unheeded(c.compiled, c.solution.rows[0]), *uneven_batch(c, solve), *idle_advice(c)]


def _whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    node = p.hardware.gpus_per_node
    if gpus <= node or gpus % node == 0:
        return []
    text = f"{gpus} GPUs are not whole nodes of {node}"
    whole = f"{p.hardware.name} x {(gpus // node + 1) * node}"
    help = Instead(f"write `{whole}`", whole)
    return [note("plan.partial_node", text, p.spans["hardware"], help=help)]


def _smallest(p: Program, progress: Callable[[str], None]) -> tuple[Chosen | None, list[Diagnostic]]:
    """The fewest GPUs with a layout that fits, and what the next steps up would buy."""
    legal = 0
    for gpus in counts(p.hardware):
        progress(f"trying {gpus} GPUs")
        chosen = solve(p, gpus)
        if chosen.solution.rows:
            return _with_steps(chosen, progress), [smallest_note(p, gpus), *_notes(chosen)]
        legal = gpus if chosen.solution.legal else legal
    from moedsl import explain  # only a failure pays for it

    progress("nothing fits: looking for what collides")
    return None, explain.nowhere(p, legal, solve)


def smallest_note(p: Program, gpus: int) -> Diagnostic:
    """Says that the number of GPUs is the solver's."""
    text = f"{gpus} {p.hardware.name} are the fewest GPUs that work, of what divides a node and whole nodes"
    help = Instead(f"write `{p.hardware.name} x {gpus}` to keep it", f"{p.hardware.name} x {gpus}")
    return note("plan.smallest", text, p.spans["hardware"], help=help)


def _with_steps(c: Chosen, progress: Callable[[str], None]) -> Chosen:
    """Twice and four times the GPUs, at the same global batch."""
    p, steps = c.problem.program, []
    for times in (2, 4):
        gpus = c.problem.gpus * times
        if gpus > MOST_GPUS:
            break
        progress(f"pricing {gpus} GPUs")
        more = solve(p, gpus, keep=1, global_batch=c.problem.global_batch)
        if more.solution.rows:
            steps.append((gpus, more.solution.rows[0]))
    return Chosen(c.problem, c.compiled, c.cost, c.solution, tuple(steps))
