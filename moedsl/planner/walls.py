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
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import Block, LetName
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.problem import divisors, with_lets
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import JsonForm
from moedsl.support.text import wrapped


@frozen
class Note(JsonForm):
    """What a rule says about a run like this one."""

    rule: str
    says: Any
    because: str | None
    cite: tuple[str, ...]


@frozen
class BoughtBack(JsonForm):
    """Memory that one policy saves, and what it costs."""

    by: str
    """The axis that saves the memory."""
    value: Any
    gib: float
    paid_s: float
    """Its cost in seconds of the step."""


@frozen
class MemoryWall(JsonForm):
    """The memory wall. Shares are of the GPU's memory, but `paid` is a share of the step time."""

    share: float
    """Share in use at the peak."""
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
    """The pipeline bubble, as in `seconds`."""
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
    """What the change affects: execution, experiment or benchmark."""


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
    """The walls of the plan, and which of them loses most of the step."""

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
"""Blocks whose `measured` rules are printed with the walls and the ladder, not as results of a similar run."""
LINKS = {
    "ep": ("expert_communication",),
    "tp": ("tensor_communication",),
    "cp": ("context_communication",),
    "dp": ("data_communication",),
    "pp": ("pipeline_communication",),
    "bubble": ("bubble",),
    "stragglers": ("stragglers",),
}
"""The parts of the step that each kind of communication exposes, the pipeline's bubble, and the wait for the slowest
expert group."""
HOST = ("launch", "step_overhead")
BACK = tuple(n for n in axes.MEMORY_POLICIES if not axes.BY_NAME[n].is_format)
"""Axes that save memory."""
GRAPHS = "cuda_graph"


def build(chosen: Chosen, row: Row, env: Mapping[str, Any], estimate: Estimate, near: Sequence[Neighbour]) -> Walls:
    """Compute a plan's walls, the dominant one, the usual one on this hardware, and the fixes.

    `near` has the layouts with the values that `tried` lists."""
    step, parts = estimate.step_time_s, estimate.breakdown
    memory = _memory(chosen, row, estimate)
    links = {kind: sum(parts[name] for name in names) for kind, names in LINKS.items()}
    work = {**chosen.cost.work_report(row.codes), "optimizer": parts["optimizer"]}  # without recompute
    lost = {
        "memory": memory.paid,
        "communication": sum(links.values()) / step,
        "host": sum(parts[name] for name in HOST) / step,
    }
    worst = max(lost, key=lambda wall: lost[wall])
    notes = measured(chosen.problem.program, Block.WALLS, env)
    hw, rate = chosen.problem.program.hardware, estimate.model_tflops_per_gpu
    return Walls(
        memory=memory,
        communication=CommunicationWall(lost["communication"], links, parts["bubble"], _shares(links, step)),
        host=HostWall(lost["host"]),
        compute=Compute(sum(work.values()) / step, work, _shares(work, step)),
        dominant=worst if lost[worst] >= float(env[LetName.WALL_FLOOR]) else "compute",
        usual=next((n for n in notes if n.says in WALLS), None),
        fixes=_fixes(chosen, row, near),
        notes=tuple(n for n in notes if n.says not in WALLS),
        mfu=Mfu(env["precision"], rate / hw.tflops[hw.rate_of(env["precision"])], rate / hw.tflops["bf16"]),
    )


def measured(p: Program, block: str, env: Mapping[str, Any]) -> list[Note]:
    """Return the published results in `measured` rules whose id starts with `block` and whose `when` holds in `env`."""
    rules = (r for r in p.of("measured") if r.id.startswith(block) and holds(r.when, env))
    return [Note(r.id, evaluate(r.expr, env), r.because, r.cites) for r in rules]


def _shares(seconds: Mapping[str, float], step: float) -> dict[str, float]:
    return {kind: s / step for kind, s in seconds.items()}


def _memory(chosen: Chosen, row: Row, estimate: Estimate) -> MemoryWall:
    """Compute the share of capacity at the peak, the memory that policies save, and the time that they cost.

    For the savings of each active policy, the layout is priced without that policy, even if a law forbids this.
    """
    m, codes, cost = estimate.memory, row.codes, chosen.cost
    on = [axes.BY_NAME[n] for n in (*BACK, GRAPHS) if codes[n] != axes.BY_NAME[n].off]
    columns = {a.name: np.full(len(on), codes[a.name], dtype=np.int64) for a in axes.AXES}
    for i, a in enumerate(on):
        columns[a.name][i] = a.off
    prices = zip(on, cost.memory(columns), cost.time(columns), strict=True) if on else ()
    bought = [
        BoughtBack(a.name, a.decode(codes[a.name]), float(gib - row.peak_memory) / GIB, row.step_time - float(time))
        for a, gib, time in prices
    ]
    graphs_gib = next((-b.gib for b in bought if b.by == GRAPHS), 0.0)
    bought = [b for b in bought if b.by != GRAPHS]
    if axes.BY_NAME["sharding"].decode(codes["sharding"]) == "optimizer":
        # on the most loaded stage, at no cost: the distributed optimizer moves as many bytes as an all-reduce
        stage = max(m.stages, key=lambda s: s.total_gib)
        dense, expert = (codes[a] * codes["pp"] * b / chosen.problem.gpus for a, b in (("tp", 1), ("etp", codes["ep"])))
        held = (stage.params - stage.expert_params) * dense + stage.expert_params * expert
        whole = stage.optimizer_gib / held * stage.params if held else 0.0
        if whole > stage.optimizer_gib:
            bought.append(BoughtBack("sharding", "optimizer", whole - stage.optimizer_gib, 0.0))
    paid = sum(max(b.paid_s, 0.0) for b in bought)
    return MemoryWall(m.peak_gib / m.visible_gib, tuple(bought), paid, paid / estimate.step_time_s, graphs_gib)


def symptoms(rules: Sequence[Rule]) -> Iterator[tuple[Rule, list[str]]]:
    """Yield the symptoms that are named after a wall, each with the axes that its fix names."""
    for r in rules:
        if r.kind == "symptom" and r.id.startswith(Block.WALLS) and r.name in WALLS:
            yield r, [a for a in re.findall(r"`(\w+)`", r.fix or "") if a in axes.BY_NAME]


def _fixes(chosen: Chosen, row: Row, near: Sequence[Neighbour]) -> dict[str, WallFix]:
    """Return for each wall how to recognise it, what helps, and the best change of each axis that its fix names."""
    p, out = chosen.problem.program, dict[str, WallFix]()
    effects = {r.name: evaluate(r.expr, {}) for r in p.of("effect")}

    def saved_for_time(n: Neighbour) -> float:
        """Return the change in bytes per second of longer step (at least 0.1% of the step); the lowest saves most."""
        return (n.peak_memory - row.peak_memory) / max(n.step_time - row.step_time, 1e-3 * row.step_time)

    for r, named in symptoms(p.rules):
        here = list[Try]()
        for axis in named:
            if not (values := [n for n in near if n.axis == axis]):
                continue
            legal = [n for n in values if n.refused_by is None] or values[:1]
            if r.name == "memory":
                best = min(legal, key=saved_for_time)
                helps = best.peak_memory < row.peak_memory
            else:
                best = min(legal, key=lambda n: n.step_time)
                helps = best.step_time < row.step_time
            value, effect = axes.BY_NAME[axis].decode(best.code), effects.get(axis, "execution")
            helps = best.refused_by is None and bool(helps)
            here.append(Try(axis, value, helps, neighbours.effect(best, row), effect))
        out[r.name] = WallFix(r.id, r.because, r.confirm, r.fix, r.cites, tuple(here))
    return out


def tried(chosen: Chosen, env: Mapping[str, Any]) -> list[tuple[axes.Axis, int]]:
    """List every value that some phase may choose for the axes that fixes name.

    These are the values in the first `candidates` rule that holds; without such a rule, every divisor of the number of
    GPUs, every option of an axis, or on."""
    p = chosen.problem.program
    own = {a.name: env[a.name] for a in axes.AXES}  # conditions may read them
    phases = [with_lets(p, {**chosen.problem.values, "phase": phase}) | own for phase in axes.PHASES]
    out: list[tuple[axes.Axis, int]] = []
    for name in dict.fromkeys(a for _, named in symptoms(p.rules) for a in named):
        axis, rules, codes = axes.BY_NAME[name], [r for r in p.of("candidates") if r.name == name], list[int]()
        for values in phases:
            rule = next((r for r in rules if holds(r.when, values)), None)
            if rule is not None and isinstance(rule.expr, ast.List):
                codes += [axis.encode(evaluate(item, {**values})) for item in rule.expr.items]
            elif axis.kind == "int":
                codes += divisors(chosen.problem.gpus)
            else:
                codes += [1] if axis.kind == "flag" else range(len(axis.words))
        out += [(axis, code) for code in dict.fromkeys(codes)]
    return out


KINDS = {
    "ep": "expert", "tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline",
    "bubble": "bubbles", "stragglers": "stragglers",
    "matrix": "matrix products", "attention": "attention", "scan": "scan", "passes": "passes over memory",
    "vision": "vision tower", "optimizer": "optimizer",
}  # fmt: skip
"""Printed names of the parts of a step."""
SMALL = 0.005
"""Shares below this are not listed."""


def text(w: Walls) -> str:
    """Print a line for each wall, then the largest loss with the effect of its fixes on this layout."""
    m, wires, saved = w.memory, w.communication, list[str]()
    for b in (b for b in m.bought_back if b.gib >= 0.05):
        saver = f"{b.by} {'+'.join(b.value) if isinstance(b.value, list) else b.value}"
        if b.by == "sharding":
            saver = "FSDP" if b.value == "fsdp" else "the distributed optimizer"
        saved.append(f"{saver} saves {b.gib:.1f} GiB")
    saved += [f"this costs {m.paid:.1%} of the step"] if m.paid >= SMALL / 10 else []
    saved += [f"CUDA graphs hold {m.graphs_gib:.1f} GiB"] if m.graphs_gib >= 0.05 else []
    lost = {"memory": m.paid, "communication": wires.share, "host": w.host.share}.get(w.dominant)
    largest = f"largest loss: {w.dominant}, {lost:.1%} of the step" if lost is not None else "no large loss: compute"
    if w.usual is not None:
        same = w.usual.says == w.dominant
        largest += ", as is usual on this hardware" if same else f"; usual on this hardware: {w.usual.says}"
    lines = [
        "Walls",
        "; ".join([f"  memory         {m.share:6.1%} of capacity at the peak", *saved]),
        f"  communication  {wires.share:6.1%} of the step exposed{listed(wires.shares)}",
        f"  host           {w.host.share:6.1%} of the step waits for launches",
        f"  compute        {w.compute.share:6.1%} of the step{listed(w.compute.shares)}",
        f"  {largest}",
    ]
    if fix := w.fixes.get(w.dominant):
        lines.append(wrapped((fix.fix or "").replace("`", ""), "    "))
        helpful = [t for t in fix.here if t.helps]
        # a refused size is not worth a line
        refused = [t for t in fix.here if "refused" in t.against_plan and isinstance(t.value, str | list | bool)]
        for t in (*helpful, *refused):
            experiment = " (changes the experiment)" if t.changes == "experiment" else ""
            lines.append(f"    {t.axis}={axes.show(t.value)}: {t.against_plan}{experiment}")
        lines += [] if helpful else ["    none of these alone helps this layout"]
    lines += [wrapped(f"{n.says}: {n.because}") for n in w.notes]
    if w.mfu.precision != "bf16":
        lines.append(f"  MFU {w.mfu.share:.1%} of the {w.mfu.precision} peak, {w.mfu.of_bf16:.1%} of the bf16 peak")
    return "\n".join(lines)


def listed(shares: Mapping[str, float], most: int | None = None) -> str:
    """List the shares of at least `SMALL`, the largest first, at most `most`."""
    parts = sorted(((s, k) for k, s in shares.items() if s >= SMALL), reverse=True)[:most]
    return "".join(f"{': ' if i == 0 else ', '}{KINDS[k]} {s:.1%}" for i, (s, k) in enumerate(parts))
