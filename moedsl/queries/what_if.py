"""Answer what other GPUs, lengths, number formats, freezing and sharding would gain.

Each change is a program of its own with the same tokens a step, and is compiled alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from moedsl.facts import axes, families, releases
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.symbols import VLM_WORDS
from moedsl.lang.printer import print_expr
from moedsl.planner import experiment
from moedsl.planner.plan import Priced
from moedsl.queries.layouts import Budget, priced, shared, step_tokens
from moedsl.queries.pareto import held
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate
from moedsl.rules.library import Library
from moedsl.rules.rule import of_rules
from moedsl.solver.laws import Table, obeyed
from moedsl.solver.problem import first_of
from moedsl.solver.solve import Chosen, plan_for, saving
from moedsl.support.text import counted, tokens

BY_SPEED = ("score", "step_time")
"""First keys of a ranking that mean speed: the step time, with or without the factor of advice."""
Json = dict[str, Any]
Progress = Callable[[str], None]


def profiles(c: Chosen) -> bool:
    """Whether a run is profiling in a workflow, which has the layout of the phase before it."""
    p = c.problem.program
    return p.workflow is not None and p.phase == "profile"


def what_if(
    chosen: Chosen, library: Library, budget: Budget | None = None, progress: Progress = lambda _: None
) -> Json:
    """`name`, `phase`, `ranks_by`, `by_speed` (whether it ranks by step time first), `step`, `base`, `lines`.

    `step` has the tokens that every line keeps, and now `global_batch` x `seq`. A line has `kind`, `change`,
    `hardware`, `seq` and `global_batch`; then the keys of `Priced`, `goodput`, `speedup`, `layout`, `changes` (from
    the base) and `another_experiment` (names that make it one), or `why` it has no layout.
    """
    base = _alone(chosen)
    step = {"tokens": step_tokens(base), "global_batch": base.problem.global_batch, "seq": base.problem.values["seq"]}
    row = base.solution.rows[0]
    figures = priced(Priced, base, row, budget).to_json()
    first = {**_sizes(base), **figures, "goodput": _goodput(base), "layout": row.layout}
    lines = [_line(base, c, budget, progress) for c in changes(base, library)]
    p, first_key = chosen.problem.program, chosen.compiled.ranks[0]
    ranked = {"ranks_by": first_key.rule.name, "by_speed": print_expr(first_key.expr) in BY_SPEED}
    return {"name": p.name, "phase": p.phase, **ranked, "step": step, "base": first, "lines": lines}


def _alone(chosen: Chosen) -> Chosen:
    """Solve the run alone if it shares its layout with others."""
    if not shared(chosen):
        return chosen
    alone = plan_for(held(chosen), chosen.problem.gpus, keep=1)
    return alone if alone.solution.rows else chosen


def _line(base: Chosen, c: Change, budget: Budget | None, progress: Progress) -> Json:
    """Solve one change."""
    head = {"kind": c.kind, "change": c.label}
    if c.program is None or c.program.gpus is None:
        return {**head, "why": c.why}
    progress(f"what if {c.label}")
    changed = plan_for(c.program, c.program.gpus, keep=1)
    head |= _sizes(changed)
    if not changed.solution.rows:
        # Explain why a change has no layout, in one line
        from moedsl.solver.infeasible import briefly, message

        return {**head, "gpus": changed.problem.gpus, "why": message(briefly(changed))}
    row, now = changed.solution.rows[0], base.solution.rows[0]
    return {
        **head,
        **priced(Priced, changed, row, budget).to_json(),
        "goodput": _goodput(changed),
        "speedup": now.step_time / row.step_time,
        "layout": row.layout,
        "changes": row.changes(now.codes),
        "another_experiment": another(base, changed),
    }


def _goodput(c: Chosen) -> float:
    """The share of a month that trains, with failures and checkpoints of as many GPUs."""
    row = c.solution.rows[0]
    return saving(c.problem, c.cost, c.environment(row.codes), row.step_time).goodput.trains


def _sizes(c: Chosen) -> Json:
    p = c.problem
    return {"hardware": p.program.hardware.name, "seq": p.values["seq"], "global_batch": p.global_batch}


_SETTLED = [a for a in axes.AXES if a.kind in ("enum", "flag") and not a.opened and a.name != "precision"]
"""The axes with one default value; precision has changes of its own."""
KINDS = {
    "gpus": "More and fewer GPUs",
    "hardware": "Other GPUs",
    "seq": "Sequence length",
    "target": "Other releases of Megatron Bridge",
    "precision": "Number formats",
    "freeze": "Freezing",
    "sharding": "Sharding",
    **{a.name: a.doc[0].upper() + a.doc[1:] for a in _SETTLED if not a.is_format and a.name != "sharding"},
}
"""The kinds of changes in order, with their headings."""
SLOWEST = 1 / 3
"""The BF16 peak of another GPU that is asked, over that of the run: a slower one is no alternative."""
_LABELS = {"sharding fsdp": "Megatron FSDP", "sharding optimizer": "the distributed optimizer instead of FSDP"}


@frozen
class Change:
    """One change. `program` states its GPUs, sequence length and batch; it is None if nothing can be compiled."""

    kind: str
    label: str
    program: Program | None = field(repr=False)
    why: str | None = None
    """Why nothing can be compiled."""


def changes(chosen: Chosen, library: Library) -> list[Change]:
    """Make every change of a run, in the order of `KINDS`."""
    p = held(chosen)
    frozen_parts = _freezing(p) if p.model.vision is not None else ()
    return [
        *_gpus(p), *_hardware(p, library), *_seq(p), *_target(p), *_precision(chosen, p),
        *_settled(chosen, p, formats=True), *frozen_parts, *_settled(chosen, p, formats=False),
    ]  # fmt: skip


def _gpus(p: Program) -> Iterator[Change]:
    assert p.gpus is not None
    for times in (2, 4):
        gpus = p.gpus * times
        label = f"{times}x GPUs: {gpus} {p.hardware.name}"
        if gpus > MOST_GPUS:
            yield Change("gpus", label, None, f"more than {MOST_GPUS} GPUs are not supported")
        else:
            yield Change("gpus", label, evolve(p, gpus=gpus))
    if p.gpus % 2:
        yield Change("gpus", "half the GPUs", None, f"{p.gpus} is an odd number")
    else:
        yield Change("gpus", f"half the GPUs: {p.gpus // 2} {p.hardware.name}", evolve(p, gpus=p.gpus // 2))


def _hardware(p: Program, library: Library) -> Iterator[Change]:
    """Every other declared GPU that is fast enough: as many of them, and as many nodes if that is another number."""
    assert p.gpus is not None
    for name in sorted(library.hardware.keys() - {p.hardware.name}):
        h, diagnostics = library.gpu(name)
        if h is None:
            yield Change("hardware", f"{p.gpus} {name}", None, f"its declaration is wrong: {diagnostics[0].message}")
            continue
        if h.tflops["bf16"] < SLOWEST * p.hardware.tflops["bf16"]:
            continue
        yield Change("hardware", f"{p.gpus} {name}", evolve(p, hardware=h))
        nodes = -(-p.gpus // p.hardware.gpus_per_node)
        same_nodes = nodes * h.gpus_per_node
        if p.gpus >= p.hardware.gpus_per_node and same_nodes not in (p.gpus, 0) and same_nodes <= MOST_GPUS:
            label = f"{same_nodes} {name} ({counted(nodes, 'node')}, as now)"
            yield Change("hardware", label, evolve(p, hardware=h, gpus=same_nodes))


def _seq(p: Program) -> Iterator[Change]:
    """Twice and half the length, with as many tokens a step."""
    assert p.batch is not None
    step = p.batch * p.seq
    for seq, word in ((p.seq * 2, "2x"), (p.seq // 2, "half")):
        label = f"{word} the sequence: {tokens(seq)}"
        if seq == 0 or step % seq or (word == "half" and p.seq % 2):
            yield Change("seq", label, None, f"the {step} tokens of a step do not divide into such sequences")
        else:
            yield Change("seq", label, evolve(p, seq=seq, batch=step // seq))


def _target(p: Program) -> Iterator[Change]:
    """Every other release of Bridge, newest first."""
    for r in reversed(releases.RELEASES):
        if r.bridge != p.target:
            refused = families.why_unbuilt(p.model, r.bridge)
            model = evolve(p.model, query_norm=r.query_norm)
            yield Change(
                "target", f"Bridge {r.bridge}", None if refused else evolve(p, target=r.bridge, model=model), refused
            )


def _precision(chosen: Chosen, p: Program) -> Iterator[Change]:
    """Every other number format of matrix products on this GPU."""
    for word in supported(chosen):
        code = axes.PRECISION.index(word)
        if code != chosen.solution.rows[0].codes["precision"]:
            yield Change("precision", f"precision {word}", _pinned(evolve(p, precision=word), "precision", code))


def supported(chosen: Chosen) -> list[str]:
    """The number formats that no law refuses in every layout, and of which the GPU has a rate."""
    codes = np.arange(len(axes.PRECISION))
    table = Table({"precision": codes}, chosen.problem.codes, chosen.compiled.lets)
    laws = [w for w in chosen.compiled.laws if w.needs == {"precision"} and not w.rule.wish]
    hw = chosen.problem.program.hardware
    priced = (w == "bf16" or hw.rate_of(w) != "bf16" for w in axes.PRECISION)
    return [w for w, legal, p in zip(axes.PRECISION, obeyed(laws, table), priced, strict=True) if legal and p]


def _settled(chosen: Chosen, p: Program, formats: bool) -> Iterator[Change]:
    """Every other value of the axes of `_SETTLED`: of the number formats, or of the others."""
    for axis in (a for a in _SETTLED if a.is_format == formats):
        for code in range(len(axis.words) or 2):
            text = f"{axis.name} {axes.show(axis.decode(code))}"
            if code != chosen.solution.rows[0].codes[axis.name]:
                kind = "precision" if formats else axis.name
                yield Change(kind, _LABELS.get(text, text), _pinned(p, axis.name, code))


def _pinned(p: Program, axis: str, code: int) -> Program:
    """Pin a value; the pin points at the hardware if the run does not state the axis."""
    span = p.pins[axis].span if axis in p.pins else p.spans.get(axis, p.spans["hardware"])
    return evolve(p, pins={**p.pins, axis: Pin(axis, code, span)})


def _freezing(p: Program) -> Iterator[Change]:
    for word in VLM_WORDS:
        part = word.removeprefix("freeze_")
        label = f"train the {part} too" if word in p.vlm else f"freeze the {part}"
        yield Change("freeze", label, evolve(p, vlm=p.vlm ^ {word}))


def another(a: Chosen, b: Chosen) -> list[str]:
    """The keywords and fields of Bridge that make two runs different experiments."""
    old, new = values(a), values(b)
    return [n for n in {**old, **new} if old.get(n) != new.get(n)]


def values(c: Chosen) -> dict[str, Any]:
    """The experiment's values for the best layout, as `experiment.values` gives them for its plan."""
    p, row = c.problem.program, c.solution.rows[0]
    env = c.environment(row.codes, row.prices)
    sizes = {n: int(env[n]) for n in ("global_batch", "seq")}
    fixed = {"data": p.data, "routing": p.routing, **{n: n in p.vlm for n in VLM_WORDS}}
    return experiment.values(
        p,
        c.problem.gpus,
        sizes | fixed | experiment.packing(c) | row.layout,
        _derived(c, env),
        of_rules(p.of("effect")),
    )


def _derived(c: Chosen, env: dict[str, Any]) -> dict[str, Any]:
    """The fields that follow from the layout, by the first rule of each that applies."""
    p = c.problem.program
    rules = {r.name: first_of(p.named("derive", r.name), env) for r in p.of("derive")}
    return {n: evaluate(r.expr, env) for n, r in rules.items() if r is not None}
