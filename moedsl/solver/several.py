"""Bound the step on several numbers of GPUs at once: their problems become one, whose space has the meshes of all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from moedsl.facts.axes import MEMORY_POLICIES, TRANSPORT_POLICIES
from moedsl.rules.stdlib import RuleId
from moedsl.solver.bounds import SLACK
from moedsl.solver.laws import Compiled, Law, closure, compile_problem, obeyed, reads
from moedsl.solver.problem import Problem
from moedsl.solver.question import Floats
from moedsl.solver.search import Search
from moedsl.solver.solve import KERNELS, make_cost
from moedsl.solver.space import halves
from moedsl.solver.table import Mask, Table, different

DIFFER = frozenset({"gpus", "global_batch"})
"""The facts that may differ between the problems."""
MICROBATCHES = "num_microbatches"


def least_seconds(problems: Sequence[Problem]) -> list[float]:
    """Bounds of a step's seconds for each problem: the work of its microbatches, spread evenly over the GPUs that share
    it, and the bubble of so many stages that each replica has a microbatch, with a VPP that the laws allow for fewer
    microbatches than stages where it has fewer; 0 if nothing bounds it."""
    joined = _joined(problems) if problems else None
    if joined is None or RuleId.BATCH in joined.c.problem.program.allows:  # else microbatches can be fewer
        return [0.0] * len(problems)
    pipes, meshes = halves(joined.c)
    if not pipes.rows or not meshes.rows:
        return [np.inf] * len(problems)
    alone = evolve(joined.prices, gpus=1, global_batch=1)  # one microbatch, on one stage
    each = (
        alone.work(meshes.assume(pp=1, vpp=1, **some)) for some in joined.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES)
    )
    work, idle = functools.reduce(np.minimum, each), _idle(pipes)
    idle_of_few = _idle(pipes.take(_with_few_microbatches(joined.c, pipes)))
    batches = meshes["tp"] * meshes["cp"] / meshes["micro_batch"]  # of one stage, for a sequence on each GPU

    def least(x: Problem) -> float:
        on_one_stage = batches * (x.global_batch / x.gpus)
        stages = 1 / on_one_stage
        idles = np.where(on_one_stage < 1 - SLACK, idle_of_few(stages), idle(stages))
        least = float(np.min(work * (on_one_stage + idles))) + joined.prices.overhead
        return least * (1 - SLACK) - SLACK  # a price is in whole nanoseconds

    return [least(x) for x in problems]


def _idle(pipes: Table) -> Callable[[Floats], Floats]:
    """The least bubble of a pipeline of at least so many stages, in microbatches; infinite if there is none."""
    each = (1 - 1 / pipes["pp"]) / pipes["vpp"]
    order = np.argsort(pipes["pp"], kind="stable")
    stages, least = pipes["pp"][order], np.minimum.accumulate(each[order][::-1])[::-1]
    ends = np.append(least, np.inf)
    return lambda some: ends[np.searchsorted(stages, some * (1 - SLACK))]


def _with_few_microbatches(c: Compiled, pipes: Table) -> Mask:
    """A mask of the pipelines that may have fewer microbatches than stages, by the laws that read nothing else."""
    laws = [w for w in c.laws if MICROBATCHES in w.rule.reads <= {*pipes.axes, MICROBATCHES}]
    numbers = np.arange(1, max(2, int(pipes.axes["pp"].max())))
    rows = pipes.times({MICROBATCHES: numbers})
    some = (rows[MICROBATCHES] < rows["pp"]) & obeyed(laws, rows)
    return some.reshape(pipes.rows, len(numbers)).any(axis=1)


def _joined(problems: Sequence[Problem]) -> Search | None:
    """A space with the meshes of every problem, in which each law is that of any of them; None if more differs. It
    has the most GPUs and the smallest batch, with which a mesh has the fewest microbatches."""
    most = max(problems, key=lambda x: x.gpus)
    p, differ = most.program, {n for n, v in most.codes.items() if any(x.codes[n] != v for x in problems)} | {"gpus"}
    kernels = (r for name in KERNELS for r in p.named("derive", name))
    if not differ <= DIFFER or any(reads(p, r) & differ for r in kernels):
        return None
    domains = {n: different(np.concatenate([x.domains[n] for x in problems])) for n in most.domains}
    cost = evolve(make_cost(most), global_batch=min(x.global_batch for x in problems))
    c = compile_problem(evolve(most, domains=domains), {"has_layout": cost.has_layout})
    facts = [{n: x.codes[n] for n in DIFFER} for x in problems]
    laws = (
        _of_any(w, facts) if reads(p, w.rule) & differ else w
        for w in c.laws
        if not (reads(p, w.rule) if w.priced else closure(w.rule.when_reads, p.of("let"))) & differ
    )
    return Search(evolve(c, laws=tuple(laws)), cost)


def _of_any(law: Law, facts: Sequence[Mapping[str, Any]]) -> Law:
    """A law that holds where it does with some of the facts."""
    return evolve(law, value=lambda table: np.logical_or.reduce([law.holds(table.assume(**each)) for each in facts]))
