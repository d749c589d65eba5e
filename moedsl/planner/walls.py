"""The Three Walls of a plan: the share of memory or of the step that each takes, the dominant one, and its fixes.

Symptoms and fixes of the walls are in stdlib/rules/walls.moe; each symptom has the name of its wall. An axis that a fix
names in backquotes is tried on the plan's own layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.planner.estimate import Estimate
from moedsl.planner.memory import Stage
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import Block, LetName
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.problem import Problem, divisors, with_lets
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import JsonForm


@frozen
class Note(JsonForm):
    """The result of a rule for a run like this one."""

    rule: str
    says: Any
    because: str | None
    cite: tuple[str, ...]


@frozen
class BoughtBack(JsonForm):
    """Memory that one policy saves, and what it costs."""

    by: str
    """The axis."""
    value: Any
    gib: float
    paid_s: float
    """Seconds of the step."""


@frozen
class MemoryWall(JsonForm):
    """The memory wall; shares are of the GPU's memory, except `paid`."""

    share: float
    """Share at the peak."""
    bought_back: tuple[BoughtBack, ...]
    paid_s: float
    """Seconds of the step that saving memory costs."""
    paid: float
    """`paid_s` as a share of the step."""
    graphs_gib: float
    """Memory of CUDA graphs."""


@frozen
class CommunicationWall(JsonForm):
    """Exposed communication by the parallelism that causes it."""

    share: float
    """Share of the step."""
    seconds: Mapping[str, float]
    bubble_s: float
    """The pipeline bubble, which `seconds` counts under pp."""
    shares: Mapping[str, float]


@frozen
class HostWall(JsonForm):
    """Time that the GPU waits for kernel launches."""

    share: float
    """Share of the step."""


@frozen
class Compute(JsonForm):
    """Time of kernels by kind of work."""

    share: float
    """Share of the step."""
    seconds: Mapping[str, float]
    shares: Mapping[str, float]


@frozen
class Try(JsonForm):
    """The effect of changing one axis of this layout."""

    axis: str
    value: Any
    helps: bool
    against_plan: str
    changes: str
    """execution, experiment or benchmark."""


@frozen
class WallFix(JsonForm):
    """How to recognise a wall, and what helps."""

    rule: str
    looks: str | None
    confirm: str | None
    fix: str | None
    cite: tuple[str, ...]
    here: tuple[Try, ...]


@frozen
class Mfu(JsonForm):
    """Model FLOPs utilisation."""

    precision: str
    share: float
    """Share of the dense peak in this precision."""
    of_bf16: float
    """Share of the dense peak in BF16."""


@frozen
class Walls(JsonForm):
    """The walls of the plan, and the one that loses most of the step."""

    memory: MemoryWall
    communication: CommunicationWall
    host: HostWall
    compute: Compute
    dominant: str
    """The wall that loses most of the step; compute if none loses much."""
    usual: Note | None
    """The dominant wall that is usual on this hardware."""
    fixes: Mapping[str, WallFix]
    """Fixes by wall."""
    notes: tuple[Note, ...]
    mfu: Mfu


WALLS = ("memory", "communication", "host", "compute")
OWN_BLOCKS = (Block.WALLS, Block.LADDER, Block.LADDER_ALONE)
"""Blocks whose `measured` members are printed with the walls and the ladder, not as results of a similar run."""
LINKS = {
    "ep": ("expert_communication",),
    "tp": ("tensor_communication",),
    "cp": ("context_communication",),
    "dp": ("data_communication", "stragglers"),
    "pp": ("pipeline_communication", "bubble"),
}
"""The parts of the step that each kind of communication exposes; the pipeline bubble counts as pp, and the wait for the
slowest expert group as dp, in whose reduction it shows."""
HOST = ("launch", "step_overhead")
BACK = tuple(n for n in axes.MEMORY_POLICIES if not axes.BY_NAME[n].is_format)
"""Axes that save memory."""
GRAPHS = "cuda_graph"


def walls(chosen: Chosen, row: Row, env: Mapping[str, Any], estimate: Estimate, near: Sequence[Neighbour]) -> Walls:
    """The four walls of a plan, the dominant one, the usual one on this hardware, and the fixes; `near` are the
    layouts with the values of `tried`."""
    memory, communication = _memory(chosen, row, estimate), _communication(estimate)
    host = HostWall(sum(estimate.breakdown[part] for part in HOST) / estimate.step_time_s)
    lost = {"memory": memory.paid, "communication": communication.share, "host": host.share}
    notes = [note(r, env) for r in measured(chosen.problem, Block.WALLS, env)]
    return Walls(
        memory=memory,
        communication=communication,
        host=host,
        compute=_compute(chosen, row, estimate),
        dominant=_dominant(lost, float(env[LetName.WALL_FLOOR])),
        usual=next((n for n in notes if n.says in WALLS), None),
        fixes=_fixes(chosen, row, near),
        notes=tuple(n for n in notes if n.says not in WALLS),
        mfu=_mfu(chosen, env, estimate),
    )


def measured(problem: Problem, block: str, env: Mapping[str, Any]) -> list[Rule]:
    """The `measured` members of a block that hold here."""
    return [r for r in problem.program.of("measured") if r.id.startswith(block) and holds(r.when, env)]


def note(r: Rule, env: Mapping[str, Any]) -> Note:
    """Evaluate a `measured` member in a row with the values `env`."""
    return Note(r.id, evaluate(r.expr, env), r.because, r.cites)


def _memory(chosen: Chosen, row: Row, estimate: Estimate) -> MemoryWall:
    """The share of capacity at the peak, the memory that policies save, and the time that they cost."""
    m = estimate.memory
    each = _without(chosen, row, (*BACK, GRAPHS))
    graphs = [b for b in each if b.by == GRAPHS]
    bought = [*(b for b in each if b.by != GRAPHS), *_distributed(chosen, row, m.stages)]
    paid = sum(max(b.paid_s, 0.0) for b in bought)
    return MemoryWall(
        share=m.peak_gib / m.visible_gib,
        bought_back=tuple(bought),
        paid_s=paid,
        paid=paid / estimate.step_time_s,
        graphs_gib=-graphs[0].gib if graphs else 0.0,
    )


def _without(chosen: Chosen, row: Row, names: Sequence[str]) -> list[BoughtBack]:
    """What each active policy saves in GiB and costs in seconds: the layout is priced without it, without the laws."""
    on = [n for n in names if row.codes[n] != axes.BY_NAME[n].off]
    if not on:
        return []
    columns = {a.name: np.full(len(on), row.codes[a.name], dtype=np.int64) for a in axes.AXES}
    for i, name in enumerate(on):
        columns[name][i] = axes.BY_NAME[name].off
    memory, time = chosen.cost.memory(columns), chosen.cost.time(columns)
    return [
        BoughtBack(
            by=name,
            value=axes.BY_NAME[name].decode(row.codes[name]),
            gib=float(memory[i] - row.peak_memory) / GIB,
            paid_s=row.step_time - float(time[i]),
        )
        for i, name in enumerate(on)
    ]


def _distributed(chosen: Chosen, row: Row, stages: Sequence[Stage]) -> Iterator[BoughtBack]:
    """What the distributed optimizer saves on the most loaded stage; it moves as many bytes as an all-reduce."""
    if axes.BY_NAME["sharding"].decode(row.codes["sharding"]) != "optimizer":
        return
    stage = max(stages, key=lambda s: s.total_gib)
    gpus, codes = chosen.problem.gpus, row.codes
    dense, expert = (codes[a] * codes["pp"] * b / gpus for a, b in (("tp", 1), ("etp", codes["ep"])))
    held = (stage.params - stage.expert_params) * dense + stage.expert_params * expert
    whole = stage.optimizer_gib / held * stage.params if held else 0.0
    if whole > stage.optimizer_gib:
        yield BoughtBack("sharding", "optimizer", whole - stage.optimizer_gib, 0.0)


def _communication(estimate: Estimate) -> CommunicationWall:
    """Exposed seconds by kind; `bubble_s` repeats the pipeline bubble."""
    parts, step = estimate.breakdown, estimate.step_time_s
    seconds = {kind: sum(parts[name] for name in names) for kind, names in LINKS.items()}
    return CommunicationWall(sum(seconds.values()) / step, seconds, parts["bubble"], _shares(seconds, step))


def _shares(seconds: Mapping[str, float], step: float) -> dict[str, float]:
    return {kind: s / step for kind, s in seconds.items()}


def _compute(chosen: Chosen, row: Row, estimate: Estimate) -> Compute:
    """Compute time without recompute, by kind of work, and the optimizer."""
    step = estimate.step_time_s
    seconds = {**chosen.cost.work_report(row.codes), "optimizer": estimate.breakdown["optimizer"]}
    return Compute(sum(seconds.values()) / step, seconds, _shares(seconds, step))


def _dominant(lost: Mapping[str, float], floor: float) -> str:
    """The wall other than compute that takes most of the step, if its share reaches `floor`; else compute."""
    worst = max(lost, key=lambda w: lost[w])
    return worst if lost[worst] >= floor else "compute"


def _mfu(chosen: Chosen, env: Mapping[str, Any], estimate: Estimate) -> Mfu:
    """Divide model FLOPs by the dense peak of the run's precision, and by that of BF16."""
    hw, rate = chosen.problem.program.hardware, estimate.model_tflops_per_gpu
    peak = hw.tflops[hw.rate_of(env["precision"])]
    return Mfu(env["precision"], rate / peak, rate / hw.tflops["bf16"])


@frozen
class Fix:
    """A wall's symptom and the axes that its fix names."""

    wall: str
    rule: Rule
    axes: tuple[str, ...]


def table(rules: Sequence[Rule]) -> list[Fix]:
    """The symptoms that have the name of a wall, with their fixes."""
    return [
        Fix(r.name, r, tuple(a for a in re.findall(r"`(\w+)`", r.fix or "") if a in axes.BY_NAME))
        for r in rules
        if r.kind == "symptom" and r.id.startswith(Block.WALLS) and r.name in WALLS
    ]


def _fixes(chosen: Chosen, row: Row, near: Sequence[Neighbour]) -> dict[str, WallFix]:
    """For each wall: how to recognise it, what helps, and the effect of each fix on this layout."""
    effects = {r.name: evaluate(r.expr, {}) for r in chosen.problem.program.of("effect")}
    return {
        f.wall: WallFix(
            rule=f.rule.id,
            looks=f.rule.because,
            confirm=f.rule.confirm,
            fix=f.rule.fix,
            cite=f.rule.cites,
            here=tuple(_here(a, near, row, f.wall, effects) for a in f.axes if any(n.axis == a for n in near)),
        )
        for f in table(chosen.problem.program.rules)
    }


def _here(axis: str, near: Sequence[Neighbour], row: Row, wall: str, effects: Mapping[str, str]) -> Try:
    """The best change of one axis: for the memory wall, most bytes saved for its time; else the shortest step."""
    mine = [n for n in near if n.axis == axis]
    legal = [n for n in mine if n.refused_by is None]
    best = min(legal or mine[:1], key=lambda n: -_frugality(n, row) if wall == "memory" else n.step_time)
    less = best.peak_memory < row.peak_memory if wall == "memory" else best.step_time < row.step_time
    return Try(
        axis=axis,
        value=axes.BY_NAME[axis].decode(best.code),
        helps=best.refused_by is None and bool(less),
        against_plan=neighbours.effect(best, row),
        changes=effects.get(axis, "execution"),
    )


def _frugality(n: Neighbour, row: Row) -> float:
    """Bytes saved per second of longer step; the longer step counts as at least a thousandth."""
    return (row.peak_memory - n.peak_memory) / max(n.step_time - row.step_time, 1e-3 * row.step_time)


def tried(chosen: Chosen, env: Mapping[str, Any]) -> list[tuple[axes.Axis, int]]:
    """Every value that some phase may choose of the axes of fixes; mesh sizes are the divisors of the number of
    GPUs."""
    p = chosen.problem.program
    names = dict.fromkeys(a for f in table(p.rules) for a in f.axes)
    lets = [with_lets(p, {**chosen.problem.values, "phase": phase}) for phase in axes.PHASES]
    out: list[tuple[axes.Axis, int]] = []
    for name in names:
        axis, rules = axes.BY_NAME[name], [r for r in p.of("candidates") if r.name == name]
        pairs = [(_first(rules, {**values, **_settled(env)}), values) for values in lets]
        codes = [c for r, values in pairs for c in _codes(axis, r, values, chosen)]
        out += [(axis, code) for code in dict.fromkeys(codes)]
    return out


def _settled(env: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the plan's axes, for conditions that read them."""
    return {a.name: env[a.name] for a in axes.AXES}


def _first(rules: Sequence[Rule], values: Mapping[str, Any]) -> Rule | None:
    return next((r for r in rules if holds(r.when, values)), None)


def _codes(axis: axes.Axis, rule: Rule | None, values: Mapping[str, Any], chosen: Chosen) -> list[int]:
    """The values that a rule lists; without a rule, every divisor of the GPUs, every word, or the flag on."""
    if rule is not None and isinstance(rule.expr, ast.List):
        return [axis.encode(evaluate(item, values)) for item in rule.expr.items]
    if axis.kind == "int":
        return divisors(chosen.problem.gpus)
    return [1] if axis.kind == "flag" else list(range(len(axis.words)))
