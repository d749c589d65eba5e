"""Choose the layout of a program, on the GPUs that the run names or on the fewest that work."""

from __future__ import annotations

import functools
import math
import operator
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from moedsl.cost import Cost
from moedsl.facts.facts import Model
from moedsl.facts.fine_tuning import filled
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import SWITCHES
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate
from moedsl.solver import uncertainty
from moedsl.solver.bounds import Prices
from moedsl.solver.laws import Compiled, compile_problem, reads
from moedsl.solver.problem import Problem, cases, first_of, lower, plain, with_lets
from moedsl.solver.saving import saving
from moedsl.solver.search import Search, Solution
from moedsl.solver.table import Row
from moedsl.solver.uncertainty import Preference

KEEP = 6
KERNELS: Mapping[str, Any] = {
    "cross_entropy_loss_fusion": False,
    "cross_entropy_fusion_impl": "native",
    "bias_activation_fusion": False,
    "apply_rope_fusion": False,
}
"""The fields that choose kernels, with Megatron's own choices."""
Progress = Callable[[str], None]
"""Receives the progress of long work, a line at a time."""


@frozen
class Chosen:
    """The best layouts of a program; the first is the plan. `steps` are larger GPU counts and their best layouts."""

    problem: Problem
    compiled: Compiled
    cost: Cost
    solution: Solution
    steps: tuple[tuple[int, Row], ...] = field(factory=tuple)
    preference: Preference | None = None
    """Why the first layout is not the best by the estimate alone, where it is not."""

    @property
    def search(self) -> Search:
        """The search that answers questions about the problem: the one that found the solution, if it has this
        problem."""
        known = self.solution.search
        return known if known is not None and known.c is self.compiled else Search(self.compiled, self.cost)

    @property
    def must_fit(self) -> str:
        """The case of the memory estimate in which the layouts fit."""
        return self.problem.values["must_fit"]

    @property
    def fell_back(self) -> bool:
        """Whether no layout fits in the case of the memory estimate in which the run would have one fit."""
        return self.must_fit != cases(self.problem.program)[0]

    def environment(self, codes: Mapping[str, int], prices: Mapping[str, float] = {}) -> dict[str, Any]:
        """The value of every name of an expression in a layout."""
        return environment(self.problem, self.cost, codes, prices)


@frozen
class NoLayout:
    """A program without a layout: on the GPUs that it names, with their problem `at`, or on any number."""

    program: Program
    at: Chosen | None
    legal: int = 0
    """The largest number of GPUs with a legal layout, none of which fits; 0 if no number has one."""


def choose(p: Program, progress: Progress) -> Chosen | NoLayout:
    """Find the best layouts on the GPUs that the run names, or on the fewest that work."""
    if p.gpus is None:
        # Find the fewest GPUs with a layout that fits, and the gain from the next larger numbers
        legal = 0
        for case in cases(p):
            for gpus in counts(p.hardware):
                progress(f"trying {gpus} GPUs")
                chosen = solve(p, gpus, must_fit=case)
                if chosen.solution.rows:
                    return _with_steps(chosen, progress)
                legal = gpus if chosen.solution.legal else legal
            if not legal:
                break
        return NoLayout(p, None, legal)
    chosen = plan_for(p, p.gpus)
    return chosen if chosen.solution.rows else NoLayout(p, chosen)


def plan_for(p: Program, gpus: int, keep: int = KEEP, **overrides: Any) -> Chosen:
    """Solve, and put the layout first that is nearest to what has run, as a plan does."""
    if not uncertainty.has_run(p, gpus):
        return solve(p, gpus, keep, **overrides)
    found = solve(p, gpus, max(keep, KEEP), **overrides)
    solution, preference = uncertainty.prefer(found.compiled, found.solution)
    return evolve(found, solution=evolve(solution, rows=solution.rows[:keep]), preference=preference)


def solve(p: Program, gpus: int, keep: int = KEEP, like: Search | None = None, **overrides: Any) -> Chosen:
    """Search on a number of GPUs, in the first case of the memory estimate in which a layout fits, or in `must_fit`.

    With `keep` 0 the problem is only compiled, in the first case. The tables of `like` are used if the space is its.
    """
    if not keep:
        return _compiled(p, gpus, keep, overrides, like)
    if "must_fit" in overrides:
        return _run(_compiled(p, gpus, keep, overrides, like))

    def on(case: str, like: Search | None) -> Chosen:
        return _compiled(p, gpus, keep, {**overrides, "must_fit": case}, like)

    *others, last = cases(p)
    for case in others:
        chosen = on(case, like)
        like = chosen.search
        if case == others[0] and like.seems_full and not fit_is_read(p):
            least = on(last, like)  # a layout needs the least memory in the last case
            if not least.search.could_fit():
                return evolve(least, solution=evolve(least.solution, legal=least.search.legal.rows))
        chosen = _run(chosen)
        if chosen.solution.rows or not chosen.solution.legal:  # without a legal mesh, no case has a layout
            return chosen
    return _run(on(last, like))


def of_same_space(search: Search | None, c: Compiled, prices: Prices) -> Search | None:
    """A search, if the legal meshes and policies of a problem, and their prices, are those of the search."""
    if search is None or prices != search.prices:
        return None
    same_laws = [w.rule for w in c.laws if not w.priced] == [w.rule for w in search.c.laws if not w.priced]
    return search if same_laws and _same_facts(c.problem, search.c.problem) else None


def _same_facts(a: Problem, b: Problem) -> bool:
    """Whether the domains and every value that a law can read are equal."""
    unread = () if fit_is_read(a.program) else ("must_fit",)
    codes = ({n: v for n, v in x.codes.items() if n not in unread} for x in (a, b))
    return operator.eq(*codes) and all(np.array_equal(d, b.domains[n]) for n, d in a.domains.items())


def fit_is_read(p: Program) -> bool:
    """Whether a rule of the run reads `must_fit`, so that the legal layouts can differ between its cases."""
    return any("must_fit" in reads(p, r) for r in p.rules if not r.is_std)


def _compiled(p: Program, gpus: int, keep: int, overrides: Mapping[str, Any], like: Search | None) -> Chosen:
    problem = lower(p, gpus, overrides)
    cost = make_cost(problem)
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    search = Search(compiled, cost, of_same_space(like, compiled, cost), keep=keep or 1)
    return Chosen(problem, compiled, cost, Solution((), 0, 0, search))


def _run(c: Chosen) -> Chosen:
    return evolve(c, solution=c.search.run())


def environment(
    problem: Problem, cost: Cost, codes: Mapping[str, int], prices: Mapping[str, float] = {}
) -> dict[str, Any]:
    """The value of every name of an expression in a layout, `has_layout` included; prices if known, and what follows
    from them."""
    values = {**plain(codes, problem), **prices}
    env = with_lets(problem.program, {**values, "has_layout": lambda pp, vpp: bool(cost.has_layout(pp, vpp))})
    step_time = prices.get("step_time", math.nan)
    return env if math.isnan(step_time) else {**env, **saving(problem, cost, env, step_time).names}


_RECENT = deque[Cost](maxlen=8)
"""The cost models of the last problems: one that is made again has priced rows already."""


def make_cost(problem: Problem) -> Cost:
    """Make the cost model of a problem."""
    p = problem.program
    seq, batch, kernels = problem.values["seq"], problem.global_batch, _kernels(problem)
    # a run may balance the router by another loss than the model's
    loss = p.sets.get("model.moe_router_load_balancing_type")
    trained = _one(p.model if loss is None else evolve(p.model, router_balanced=loss != "none"))
    cost = Cost(
        trained, p.hardware, problem.gpus, seq, batch, p.task, p.vlm, p.adapter, p.pipeline_layout, p.routing,
        span=_span(problem), **kernels,
    )  # fmt: skip
    known = next((c for c in tuple(_RECENT) if c == cost), None)  # another thread may add one meanwhile
    if known is None:
        _RECENT.appendleft(cost)
    return known or cost


@functools.lru_cache(256)
def _one(model: Model) -> Model:
    """The first of equal models: what is kept by model compares identities, which is faster than facts."""
    return model


def _span(problem: Problem) -> float:
    """The tokens of the sample that a token attends to; 0 is the whole sequence, also where lengths are not known."""
    samples = problem.program.samples
    if samples is None or not samples.lengths or not problem.values["pack"]:
        return 0
    return filled(samples.lengths, problem.values["seq"], True, 1).span


def _kernels(problem: Problem) -> dict[str, Any]:
    """The kernels that the recipe asks for: what the run sets, else what the rules derive; Megatron's own choice where
    neither does (core transformer/transformer_config.py:482, 499, model_parallel_config.py:320, 325)."""
    decided, p = {**KERNELS}, problem.program
    env = with_lets(p, problem.values)
    for name, default in KERNELS.items():
        rule = first_of(p.named("derive", name), env)
        derived = default if rule is None else evaluate(rule.expr, env)
        decided[name] = p.sets.get(f"model.{name}", derived)
    kernels = {
        "loss": decided["cross_entropy_fusion_impl"] if decided["cross_entropy_loss_fusion"] else "unfused",
        "fused_activation": bool(decided["bias_activation_fusion"]),
        "fused_rotary": bool(decided["apply_rope_fusion"]),
    }
    return {**kernels, **_set(p)}


_FACTORS = {
    "stash": "model.moe_paged_stash_buffer_size_factor_cuda",
    "capacity": "model.moe_expert_rank_capacity_factor",
}
_OVERLAP = ("overlap_grad_reduce", "overlap_param_gather")
_SECTIONS = ("ddp", "comm_overlap")
"""Both have these fields; Bridge copies the second to the first for the distributed optimizer."""


def _set(p: Program) -> dict[str, Any]:
    """The other prices that follow what a run sets. Recipes of vision models do not overlap data parallelism."""
    weights, _ = SWITCHES["fp8_weights"]
    factors = {name: float(p.sets[path]) for name, path in _FACTORS.items() if p.sets.get(path) is not None}
    overlap = dict.fromkeys(_OVERLAP, p.model.vision is None)
    for section in _SECTIONS:
        overlap |= {name: p.sets[path] for name in _OVERLAP if (path := f"{section}.{name}") in p.sets}
    return {
        **factors,
        "scores": _scores(p.sets),
        "accumulates": p.sets.get("model.gradient_accumulation_fusion") is not False,
        "fp8_weights": p.sets.get(weights),
        "overlap": tuple(map(bool, overlap.values())),
    }


def _scores(sets: Mapping[str, Any]) -> float:
    """The bytes that attention keeps for each score. Separate kernels keep the probabilities in BF16; with dropout also
    a mask, and what it leaves of them (te pytorch/attention/dot_product_attention/backends.py:734, :748)."""
    if sets.get("model.attention_backend") != "unfused":
        return 0.0
    return 5.0 if sets.get("model.attention_dropout") else 2.0


def _with_steps(c: Chosen, progress: Progress) -> Chosen:
    """Solve for twice and four times the GPUs, at the same global batch."""
    p, steps = c.problem.program, []
    for times in (2, 4):
        gpus = c.problem.gpus * times
        if gpus > MOST_GPUS:
            break
        progress(f"pricing {gpus} GPUs")
        more = solve(p, gpus, keep=1, global_batch=c.problem.global_batch, must_fit=c.must_fit)
        if more.solution.rows:
            steps.append((gpus, more.solution.rows[0]))
    return Chosen(c.problem, c.compiled, c.cost, c.solution, tuple(steps))
