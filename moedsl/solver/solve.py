"""Choose the layout of a program, on the GPUs that the run names or on the fewest that work.

`saving` says how a layout saves: the size and time of its checkpoint, the interval, and the share of time that trains.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from moedsl.cost import Cost, goodput
from moedsl.cost.cases import CAPACITY, DROPLESS, Drops
from moedsl.cost.goodput import Goodput, Local, Size, best_interval
from moedsl.cost.memory import trained
from moedsl.facts import common
from moedsl.facts.facts import Hardware
from moedsl.facts.fine_tuning import filled
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import SWITCHES
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate
from moedsl.rules.stdlib import LetName
from moedsl.solver import uncertainty
from moedsl.solver.laws import Compiled, Row, compile_problem, reads
from moedsl.solver.problem import Problem, cases, first_of, lower, plain, with_lets
from moedsl.solver.search import Search, Solution
from moedsl.solver.space import Prices
from moedsl.solver.uncertainty import Preference
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.limits import File, TooLarge

KEEP = 6
KERNELS: Mapping[str, Any] = {
    "cross_entropy_loss_fusion": False,
    "cross_entropy_fusion_impl": "native",
    "bias_activation_fusion": False,
    "apply_rope_fusion": False,
}
"""The fields that choose kernels, with Megatron's defaults."""
Progress = Callable[[str], None]
"""Receives the progress of long work, one line at a time."""


@frozen
class Chosen:
    """The best layouts of a program; the first is the plan. `steps` are larger GPU counts with their best layouts."""

    problem: Problem
    compiled: Compiled
    cost: Cost
    solution: Solution
    steps: tuple[tuple[int, Row], ...] = field(factory=tuple)
    preference: Preference | None = None
    """Why the first layout is not the best by the estimate alone; None if it is."""

    @property
    def search(self) -> Search:
        """Return the search that found the solution, if it has this problem, else a new one; it answers questions about
        the problem."""
        known = self.solution.search
        return known if known is not None and known.c is self.compiled else Search(self.compiled, self.cost)

    @property
    def must_fit(self) -> str:
        """Return the case of the memory estimate in which the layouts fit."""
        return self.problem.values["must_fit"]

    @property
    def fell_back(self) -> bool:
        """Whether no layout fits in the case of the memory estimate that the run asks for first."""
        return self.must_fit != cases(self.problem.program)[0]

    def environment(self, codes: Mapping[str, int], prices: Mapping[str, float] = {}) -> dict[str, Any]:
        """Return the value of every name of an expression in a layout."""
        return environment(self.problem, self.cost, codes, prices)


@frozen
class NoLayout:
    """A program without a layout: on the GPUs that it names, whose problem is `at`, or on any number, with `at`
    None."""

    program: Program
    at: Chosen | None
    legal: int = 0
    """The largest number of GPUs with a legal layout, although no layout fits; 0 if no number has one."""


def choose(p: Program, progress: Progress) -> Chosen | NoLayout:
    """Find the best layouts on the GPUs that the run names, or on the fewest that work."""
    if p.gpus is not None:
        chosen = plan_for(p, p.gpus)
        return chosen if chosen.solution.rows else NoLayout(p, chosen)
    legal = 0
    for case in cases(p):
        for gpus in counts(p.hardware):
            progress(f"trying {gpus} GPUs")
            chosen = solve(p, gpus, must_fit=case)
            if chosen.solution.rows:
                # price twice and four times the GPUs, at the same global batch
                steps = list[tuple[int, Row]]()
                for more in (n for n in (2 * gpus, 4 * gpus) if n <= MOST_GPUS):
                    progress(f"pricing {more} GPUs")
                    wider = solve(p, more, keep=1, global_batch=chosen.problem.global_batch, must_fit=case)
                    steps += [(more, row) for row in wider.solution.rows]
                return evolve(chosen, steps=tuple(steps))
            legal = gpus if chosen.solution.legal else legal
        if not legal:
            break
    return NoLayout(p, None, legal)


def plan_for(p: Program, gpus: int, keep: int = KEEP, **overrides: Any) -> Chosen:
    """Solve as a plan does: put the layout first that is nearest to one that has run."""
    if not uncertainty.has_run(p, gpus):
        return solve(p, gpus, keep, **overrides)
    found = solve(p, gpus, max(keep, KEEP), **overrides)
    solution, preference = uncertainty.prefer(found.compiled, found.solution)
    return evolve(found, solution=evolve(solution, rows=solution.rows[:keep]), preference=preference)


def solve(p: Program, gpus: int, keep: int = KEEP, like: Search | None = None, **overrides: Any) -> Chosen:
    """Search on a number of GPUs, in the first case of the memory estimate in which a layout fits, or in `must_fit`.

    With `keep` 0 the problem is only compiled, in the first case. The tables of `like` are reused if it has the same
    space.
    """
    if not keep:
        return _compiled(p, gpus, keep, overrides, like)

    def on(case: str, like: Search | None) -> Chosen:
        return _compiled(p, gpus, keep, {**overrides, "must_fit": case}, like)

    first, *others = [overrides["must_fit"]] if "must_fit" in overrides else cases(p)
    chosen = on(first, like)
    if others and chosen.search.seems_full and not fit_is_read(p):
        least = on(others[-1], chosen.search)  # a layout needs the least memory in the last case
        if not least.search.could_fit():
            return evolve(least, solution=evolve(least.solution, legal=least.search.legal.rows))
    chosen = evolve(chosen, solution=chosen.search.run())
    for case in others:
        if chosen.solution.rows or not chosen.solution.legal:  # without a legal mesh, no case has a layout
            break
        chosen = on(case, chosen.search)
        chosen = evolve(chosen, solution=chosen.search.run())
    return chosen


def of_same_space(search: Search | None, c: Compiled, prices: Prices) -> Search | None:
    """Return `search` if this problem can reuse it: its meshes, policies and prices are the same; else None."""
    if search is None or prices != search.prices:
        return None
    if [w.rule for w in c.laws if not w.priced] != [w.rule for w in search.c.laws if not w.priced]:
        return None
    # The domains and every value that a law can read must be equal
    a, b = c.problem, search.c.problem
    unread = () if fit_is_read(a.program) else ("must_fit",)
    codes = ({n: v for n, v in x.codes.items() if n not in unread} for x in (a, b))
    same = operator.eq(*codes) and all(np.array_equal(d, b.domains[n]) for n, d in a.domains.items())
    return search if same else None


def fit_is_read(p: Program) -> bool:
    """Whether a rule of the run reads `must_fit`, so that the legal layouts can differ between its cases."""
    return any("must_fit" in reads(p, r) for r in p.rules if not r.is_std)


def _compiled(p: Program, gpus: int, keep: int, overrides: Mapping[str, Any], like: Search | None) -> Chosen:
    problem = lower(p, gpus, overrides)
    cost = make_cost(problem)
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    search = Search(compiled, cost, of_same_space(like, compiled, cost), keep=keep or 1)
    return Chosen(problem, compiled, cost, Solution((), 0, 0, search))


def environment(
    problem: Problem, cost: Cost, codes: Mapping[str, int], prices: Mapping[str, float] = {}
) -> dict[str, Any]:
    """Return the value of every name of an expression in a layout, `has_layout` included, with prices if known and what
    follows from them."""
    values = {**plain(codes, problem), **prices}
    env = with_lets(problem.program, {**values, "has_layout": lambda pp, vpp: bool(cost.has_layout(pp, vpp))})
    step_time = prices.get("step_time", math.nan)
    return env if math.isnan(step_time) else {**env, **saving(problem, cost, env, step_time).names}


_RECENT = deque[Cost](maxlen=8)
"""The cost models of the last problems; if one is made again, it has already priced rows."""


def make_cost(problem: Problem) -> Cost:
    """Make the cost model of a problem."""
    p = problem.program
    seq, batch, kernels = problem.values["seq"], problem.global_batch, _kernels(problem)
    # a run may balance the router by a loss other than the model's
    loss = p.sets.get("model.moe_router_load_balancing_type")
    model = p.model if loss is None else evolve(p.model, router_balanced=loss != "none")
    samples, span = p.samples, 0.0
    if samples is not None and samples.lengths and problem.values["pack"]:
        span = filled(samples.lengths, seq, True, 1).span
    cost = Cost(
        model, p.hardware, problem.gpus, seq, batch, p.task, p.vlm, p.adapter, p.pipeline_layout, p.routing,
        span=span, **kernels,
    )  # fmt: skip
    known = next((c for c in tuple(_RECENT) if c == cost), None)  # another thread may add one meanwhile
    if known is None:
        _RECENT.appendleft(cost)
    return known or cost


def _kernels(problem: Problem) -> dict[str, Any]:
    """Return the kernels that the recipe asks for, and the other prices that follow from what a run sets.

    A kernel is what the run sets, else what rules derive, else Megatron's default (core
    transformer/transformer_config.py:482, 499, model_parallel_config.py:320, 325). Recipes of vision models do not
    overlap data parallelism.
    """
    decided, p = {**KERNELS}, problem.program
    env = with_lets(p, problem.values)
    for name, default in KERNELS.items():
        rule = first_of(p.named("derive", name), env)
        derived = default if rule is None else evaluate(rule.expr, env)
        decided[name] = p.sets.get(f"model.{name}", derived)
    factors = {"capacity": CAPACITY[p.routing]} | {
        name: float(p.sets[path]) for name, path in _FACTORS.items() if p.sets.get(path) is not None
    }
    overlap = dict.fromkeys(_OVERLAP, p.model.vision is None)
    for section in ("ddp", "comm_overlap"):  # Bridge copies the second to the first for the distributed optimizer
        overlap |= {name: p.sets[path] for name in _OVERLAP if (path := f"{section}.{name}") in p.sets}
    # The bytes that attention keeps for each score. Separate kernels keep the probabilities in BF16; with dropout also
    # its mask and its result (te pytorch/attention/dot_product_attention/backends.py:734, :748)
    unfused = p.sets.get("model.attention_backend") == "unfused"
    dropped = p.sets.get("model.moe_expert_capacity_factor")
    return {
        **factors,
        "drops": DROPLESS
        if dropped is None
        else Drops(float(dropped), p.sets.get(SWITCHES["drop_and_pad"][0]) is True),
        "wire": 1 - sum(p.sets.get(path) == "mxfp8" for path in _MXFP8_WIRE) / 8,
        "loss": decided["cross_entropy_fusion_impl"] if decided["cross_entropy_loss_fusion"] else "unfused",
        "fused_activation": bool(decided["bias_activation_fusion"]),
        "fused_rotary": bool(decided["apply_rope_fusion"]),
        "scores": (5.0 if p.sets.get("model.attention_dropout") else 2.0) if unfused else 0.0,
        "fp8": tuple(0 not in problem.domains["precision"] and p.sets.get(path) is True for path in _FP8),
        "accumulates": p.sets.get("model.gradient_accumulation_fusion") is not False,
        "fp8_weights": p.sets.get(SWITCHES["fp8_weights"][0]),
        "overlap": tuple(map(bool, overlap.values())),
    }


_FACTORS = {
    "stash": "model.moe_paged_stash_buffer_size_factor_cuda",
    "capacity": "model.moe_expert_rank_capacity_factor",
}
_MXFP8_WIRE = ("model.moe_dispatch_fwd_dtype", "model.moe_combine_bwd_dtype")
"""Two of the four transfers of a layer, each of which MXFP8 halves."""
_FP8 = ("mixed_precision.fp8_dot_product_attention", "model.fp8_output_proj")
_OVERLAP = ("overlap_grad_reduce", "overlap_param_gather")


PAYS = 0.005
"""Minimum goodput that saves on the nodes' own disks must add."""
INTERVAL = "checkpoint.save_interval"
MONTH = 30 * 86400.0
"""The interval of a run that saves only at its end."""
FORWARD = 1 / 3
"""The share of a step in its forward pass; the backward pass computes two gradients for each matrix product."""
FORWARD_FROZEN = 1 / 2
"""The same share with frozen weights, where the backward pass computes only the gradient of the input."""
_RESTARTS_IN_JOB = ("ft.enable_ft_package", "inprocess_restart.enabled")


@frozen
class Saving:
    """How a layout saves its checkpoints; times in seconds."""

    size: Size
    is_async: bool
    write: float
    """From the start of a save until a run can return to it."""
    load: float
    steps: int
    """Steps between two checkpoints."""
    best_steps: int
    """Steps between two checkpoints if the run does not set them."""
    best: float
    """The interval that keeps the most training, without a limit."""
    limit: str
    """What moved the interval away from `best`: loss, write, step, or empty."""
    goodput: Goodput
    local_steps: int
    """Steps between saves on the nodes' own disks; 0 if these saves do not pay."""
    local_disk: str

    @property
    def names(self) -> dict[str, Any]:
        """Return what rules read about saving (`symbols.SAVES`)."""
        return {
            "goodput": self.goodput.trains,
            "save_steps": self.best_steps,
            "local_save_steps": self.local_steps,
            "local_disk": self.local_disk,
        }


def saving(problem: Problem, cost: Cost, env: Mapping[str, Any], step_time: float) -> Saving:
    """Price the checkpoints of a layout with the step time `step_time`."""
    p, h, gpus = problem.program, cost.hardware, problem.gpus
    sets, c = p.sets, h.constants
    validates = _validates(p, env)
    step = step_time * (1 + validates)  # with its share of the next validation
    is_async = bool(sets.get("checkpoint.async_save", env[LetName.SAVES_ASYNC]))
    size = goodput.size(
        p.model, trained(p.vlm, p.adapter), sets.get("optimizer.optimizer", "adam"), env["sharding"] == "fsdp",
        sets.get("checkpoint.save_optim", True),
    )  # fmt: skip
    write = size.total / goodput.write_rate(h, gpus, p.site.storage_write)
    blocked = goodput.blocked(h, gpus, size.total, write, is_async, c.save_start)
    durable, load = write if is_async else 0.0, c.load_times * write
    mtbf = goodput.mtbf(gpus, p.site.gpu_mtbf or c.gpu_mtbf)
    best = best_interval(blocked, mtbf)
    lost = p.site.most_lost or 60.0 * float(env[LetName.MOST_LOST_MINUTES])
    # a save begins after the previous one is written, and a failure loses at most what is stated
    if best < max(durable, step):
        wanted, limit = max(durable, step), "write" if durable > step else "step"
    else:
        most = lost - durable
        wanted, limit = (max(most, durable, step), "loss") if most < best else (best, "")
    best_steps = max(1, (math.ceil if limit == "write" else round)(wanted / step))
    steps = sets.get(INTERVAL, best_steps) or max(1, round(MONTH / step))
    share = c.in_place if any(p.sets.get(path) for path in _RESTARTS_IN_JOB) else 0.0
    back = share * goodput.back_in_job(c) + (1 - share) * goodput.back(c, gpus)
    shared = Goodput(steps * step, blocked, durable, mtbf, back + load, validation=validates / (1 + validates))
    near, local_steps = shared, 0
    if share and p.site.local_disk and is_async:
        near, local_steps = _local(shared, h, gpus, size.total, share, step, load)
    return Saving(
        size, is_async, blocked + durable, load, steps, best_steps, best, limit, near, local_steps, p.site.local_disk
    )


def _validates(p: Program, env: Mapping[str, Any]) -> float:
    """Return the time of validation (forward passes through the same pipeline) relative to the time of the steps."""
    batches = p.sets.get(common.ITERATIONS, common.validation_iterations(p.task, p.data == "mock"))
    every = p.sets.get(common.INTERVAL, common.validation_interval(p.task))
    if not batches or not every:
        return 0.0
    smallest = common.smallest_validation_batch(env["micro_batch"], env["dp"], env["pp"], env["vpp"])
    batch = p.sets.get(common.BATCH) or (smallest if p.samples else env["global_batch"])
    filling = (env["pp"] - 1) / env["vpp"]  # microbatches that pass while the pipeline fills and empties
    passes = batch / (env["micro_batch"] * env["dp"]) + filling
    forward = FORWARD_FROZEN if p.adapter else FORWARD
    return forward * batches / every * passes / (env["num_microbatches"] + filling)


def _local(
    shared: Goodput, h: Hardware, gpus: int, nbytes: float, share: float, step_time: float, load: float
) -> tuple[Goodput, int]:
    """Return the goodput with saves on the nodes' own disks, and the steps between them; 0 steps if they add too
    little.

    Loading such a save takes as long as writing it.
    """
    write = goodput.local_write(h, gpus, nbytes)
    blocked = goodput.blocked(h, gpus, nbytes, write, True, h.constants.local_start)
    wanted = max(best_interval(blocked, shared.mtbf / share), write, step_time)
    intervals = round(shared.interval / wanted)
    if intervals < 2:
        return shared, 0
    steps = max(1, round(shared.interval / intervals / step_time))
    back = shared.back - share * (load - write)
    near = evolve(shared, back=back, local=Local(intervals, blocked, write, share))
    return (near, steps) if near.trains - shared.trains > PAYS else (shared, 0)


def diagnostic(reached: TooLarge) -> Diagnostic:
    """Return an error that names the run or the file, and the axes of the run with the most values."""
    part = reached.part
    if isinstance(part, File):
        return error("read.too_large", part=part.name, limit=reached.limit)
    values: dict[str, object] = {}
    if isinstance(part, Program):
        domains = lower(part, part.gpus or part.hardware.gpus_per_node).domains
        largest = sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:4]
        values = {"domains": ", ".join(f"{len(domains[name])} values of {name}" for name in largest)}
    name = f"`{part.name}`" if isinstance(part, Program) else "the input"
    return error("solve.too_large", name=name, limit=reached.limit, values=values)
