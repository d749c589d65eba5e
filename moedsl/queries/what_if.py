"""Answer what other GPUs, lengths, number formats, freezing and sharding would gain.

Each change is a separate program with the same tokens a step, and is compiled on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, fields, frozen

from moedsl.compiler import load_stdlib
from moedsl.facts import axes, families, releases
from moedsl.facts.axes import pairs
from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.symbols import VLM_WORDS
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.planner import experiment
from moedsl.planner.plan import Priced
from moedsl.queries.layouts import Budget, budget_note, cost, figures_table, priced, shared, speed, step_tokens, whole
from moedsl.queries.pareto import held
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate
from moedsl.rules.library import Library
from moedsl.solver.infeasible import briefly, message
from moedsl.solver.laws import Table, obeyed
from moedsl.solver.problem import first_of
from moedsl.solver.solve import Chosen, plan_for, saving
from moedsl.support.json_form import JsonForm
from moedsl.support.text import counted, tokens, wrapped

Progress = Callable[[str], None]
_KEYS = (
    "kind", "change", "hardware", "seq", "global_batch", *(f.name for f in fields(Priced)), "goodput", "speedup",
    "layout", "changes", "another_experiment",
)  # fmt: skip
"""The order of the keys in JSON."""
_ordered = frozen(kw_only=True, field_transformer=lambda _, found: sorted(found, key=lambda f: _KEYS.index(f.name)))


@_ordered
class Base(Priced):
    """The run without any change."""

    hardware: str
    seq: int
    global_batch: int
    goodput: float
    """The share of a month that trains, given failures and checkpoints on this number of GPUs."""
    layout: Mapping[str, Any]


@_ordered
class Changed(Base):
    """The best layout after one change."""

    kind: str
    change: str
    speedup: float
    changes: Mapping[str, Any]
    """Axes that differ from the unchanged run, with their values."""
    another_experiment: Sequence[str]
    """Names of the values that make it another experiment."""


@frozen
class Unsolved(JsonForm):
    """A change that cannot be compiled, or after which no layout fits."""

    kind: str
    change: str
    hardware: str | None = None
    seq: int | None = None
    global_batch: int | None = None
    gpus: int | None = None
    why: str | None = field(default=None, kw_only=True)


@frozen
class Step(JsonForm):
    """The tokens a step, which every change keeps, and the run's own batch and length."""

    tokens: int
    global_batch: int
    seq: int


@frozen
class WhatIf(JsonForm):
    """The changes of one run; `ranks_by` names its ranking, and `by_speed` is true if step time is its first key."""

    name: str
    phase: str
    ranks_by: str
    by_speed: bool
    step: Step
    base: Base
    lines: tuple[Changed | Unsolved, ...]


BY_SPEED = ("score", "step_time")
"""First keys of a ranking by speed: the step time, with or without the factor for advice."""


def profiles(c: Chosen) -> bool:
    """Whether a run is the profile phase of a workflow, which keeps the layout of the phase before it."""
    p = c.problem.program
    return p.workflow is not None and p.phase == "profile"


def what_if(
    chosen: Chosen, library: Library, budget: Budget | None = None, progress: Progress = lambda _: None,
    gpus: Sequence[str] = (),
) -> WhatIf:  # fmt: skip
    """Solve every change of a run; a run that shares its layout with others is first solved on its own. `gpus` are the
    other GPUs to compare; without them, those that a user can get."""
    base = chosen
    if shared(chosen):
        alone = plan_for(held(chosen), chosen.problem.gpus, keep=1)
        base = alone if alone.solution.rows else chosen
    p, ranks, now = chosen.problem.program, chosen.compiled.ranks[0], base.solution.rows[0]
    lines, old = list[Changed | Unsolved](), values(base)
    for c in changes(base, library, gpus):
        if c.program is None or c.program.gpus is None:
            lines.append(Unsolved(c.kind, c.label, why=c.why))
            continue
        progress(f"what if {c.label}")
        changed = plan_for(c.program, c.program.gpus, keep=1)
        if not changed.solution.rows:
            why = message(briefly(changed))
            lines.append(Unsolved(c.kind, c.label, **_sizes(changed), gpus=changed.problem.gpus, why=why))
            continue
        row, new = changed.solution.rows[0], values(changed)
        another = [n for n in {**old, **new} if old.get(n) != new.get(n)]
        gains = {"speedup": now.step_time / row.step_time, "changes": row.changes(now.codes)}
        gains |= {"kind": c.kind, "change": c.label, "another_experiment": another}
        lines.append(_figures(Changed, changed, budget, **gains))
    return WhatIf(
        name=p.name,
        phase=p.phase,
        ranks_by=ranks.rule.name,
        by_speed=print_expr(ranks.expr) in BY_SPEED,
        step=Step(step_tokens(base), base.problem.global_batch, base.problem.values["seq"]),
        base=_figures(Base, base, budget),
        lines=tuple(lines),
    )


AnyBase = TypeVar("AnyBase", bound=Base)


def _figures(record: type[AnyBase], c: Chosen, budget: Budget | None, **more: Any) -> AnyBase:
    row = c.solution.rows[0]
    goodput = saving(c.problem, c.cost, c.environment(row.codes), row.step_time).goodput.trains
    return priced(record, c, row, budget, **_sizes(c), goodput=goodput, layout=row.layout, **more)


def _sizes(c: Chosen) -> dict[str, Any]:
    p = c.problem
    return {"hardware": p.program.hardware.name, "seq": p.values["seq"], "global_batch": p.global_batch}


_SETTLED = [a for a in axes.AXES if a.kind in ("enum", "flag") and not a.opened and a.name != "precision"]
"""The axes with one default value; precision is handled separately."""
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
"""The kinds of changes in printed order, with their headings."""
SLOWEST = 1 / 3
"""A GPU counts as an alternative only if its BF16 peak is at least this share of the run's GPU."""
_LABELS = {"sharding fsdp": "Megatron FSDP", "sharding optimizer": "the distributed optimizer instead of FSDP"}


@frozen
class Change:
    """One change. `program` states its GPUs, sequence length and batch; it is None if nothing can be compiled."""

    kind: str
    label: str
    program: Program | None = field(repr=False)
    why: str | None = None
    """Why nothing can be compiled."""


def changes(chosen: Chosen, library: Library, gpus: Sequence[str] = ()) -> list[Change]:
    """Make every change of a run, in the order of `KINDS`; `gpus` as in `what_if`."""
    p, out = held(chosen), list[Change]()
    assert p.gpus is not None
    for more in (p.gpus * 2, p.gpus * 4):
        why = f"more than {MOST_GPUS} GPUs are not supported" if more > MOST_GPUS else None
        label = f"{more // p.gpus}x GPUs: {more} {p.hardware.name}"
        out.append(Change("gpus", label, None if why else evolve(p, gpus=more), why))
    half, odd = p.gpus // 2, f"{p.gpus} is an odd number" if p.gpus % 2 else None
    label = "half the GPUs" if odd else f"half the GPUs: {half} {p.hardware.name}"
    out.append(Change("gpus", label, None if odd else evolve(p, gpus=half), odd))
    out += _hardware(p, library, gpus)
    # Twice and half the sequence length, with the same tokens a step
    assert p.batch is not None
    step = p.batch * p.seq
    for seq, word in ((p.seq * 2, "2x"), (p.seq // 2, "half")):
        divides = seq > 0 and step % seq == 0 and (word == "2x" or p.seq % 2 == 0)
        other = evolve(p, seq=seq, batch=step // seq) if divides else None
        why = None if divides else f"the {step} tokens of a step do not divide into such sequences"
        out.append(Change("seq", f"{word} the sequence: {tokens(seq)}", other, why))
    for r in reversed(releases.RELEASES):  # newest first
        if r.bridge != p.target:
            refused = families.why_unbuilt(p.model, r.bridge)
            other = None if refused else evolve(p, target=r.bridge, model=evolve(p.model, query_norm=r.query_norm))
            out.append(Change("target", f"Bridge {r.bridge}", other, refused))
    for word in supported(chosen):
        if (code := axes.PRECISION.index(word)) != chosen.solution.rows[0].codes["precision"]:
            pinned = _pinned(evolve(p, precision=word), "precision", code)
            out.append(Change("precision", f"precision {word}", pinned))
    out += _settled(chosen, p, formats=True)
    for word in VLM_WORDS if p.model.vision is not None else ():
        part = word.removeprefix("freeze_")
        label = f"train the {part} too" if word in p.vlm else f"freeze the {part}"
        out.append(Change("freeze", label, evolve(p, vlm=p.vlm ^ {word})))
    return [*out, *_settled(chosen, p, formats=False)]


RENTED = ("a100_40gb", "a100_80gb", "b200", "b300", "gb200", "gb300", "h100", "h200")
"""GPUs that large clouds rent to anyone: AWS P4d to P6e, Google A2 to A4X, Azure ND A100 v4 to GB300 v6."""


def _hardware(p: Program, library: Library, gpus: Sequence[str]) -> Iterator[Change]:
    """Yield other GPUs: the same number of them, and the same number of nodes. Without `gpus`, these are the rented
    ones, those of the clusters and those that the file declares, if they are fast enough."""
    assert p.gpus is not None
    node, nodes = p.hardware.gpus_per_node, -(-p.gpus // p.hardware.gpus_per_node)
    clusters = (e.value.id for c in library.clusters.values() for e in c.facts if isinstance(e.value, ast.Name))
    own = {*clusters, *(library.hardware.keys() - load_stdlib().hardware.keys())}
    for name in sorted((({*gpus} or {*RENTED, *own}) & library.hardware.keys()) - {p.hardware.name}):
        h, diagnostics = library.gpu(name)
        if h is None:
            yield Change("hardware", f"{p.gpus} {name}", None, f"its declaration is wrong: {diagnostics[0].message}")
            continue
        if not gpus and h.tflops["bf16"] < SLOWEST * p.hardware.tflops["bf16"]:
            continue
        yield Change("hardware", f"{p.gpus} {name}", evolve(p, hardware=h))
        same_nodes = nodes * h.gpus_per_node
        if p.gpus >= node and same_nodes not in (p.gpus, 0) and same_nodes <= MOST_GPUS:
            label = f"{same_nodes} {name} ({counted(nodes, 'node')})"
            yield Change("hardware", label, evolve(p, hardware=h, gpus=same_nodes))


def supported(chosen: Chosen) -> list[str]:
    """List the precisions for which the GPU has a rate and that no law on precision refuses."""
    codes = np.arange(len(axes.PRECISION))
    table = Table({"precision": codes}, chosen.problem.codes, chosen.compiled.lets)
    laws = [w for w in chosen.compiled.laws if w.needs == {"precision"} and not w.rule.wish]
    hw = chosen.problem.program.hardware
    priced = (w == "bf16" or hw.rate_of(w) != "bf16" for w in axes.PRECISION)
    return [w for w, legal, p in zip(axes.PRECISION, obeyed(laws, table), priced, strict=True) if legal and p]


def _settled(chosen: Chosen, p: Program, formats: bool) -> Iterator[Change]:
    """Yield every other value of the axes in `_SETTLED`: of number formats if `formats`, else of the others."""
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


def values(c: Chosen) -> dict[str, Any]:
    """Return the experiment's values for the best layout, as `experiment.values` would for its plan."""
    p, row = c.problem.program, c.solution.rows[0]
    env = c.environment(row.codes, row.prices)
    sizes = {n: int(env[n]) for n in ("global_batch", "seq")}
    fixed = {"data": p.data, "routing": p.routing, **{n: n in p.vlm for n in VLM_WORDS}}
    words = sizes | fixed | experiment.packing(c) | row.layout
    # The fields that follow from the layout: each from its first rule that applies
    rules = {r.name: first_of(p.named("derive", r.name), env) for r in p.of("derive")}
    derived = {n: evaluate(r.expr, env) for n, r in rules.items() if r is not None}
    return experiment.values(p, c.problem.gpus, words, derived)


ALONE = "Each line is compiled separately: it is the best layout by {rank} of the {phase} phase"
NOT_BY_SPEED = ", not by speed: write `throughput first` to compare the speed of tuned layouts."
ELSEWHERE = "E: a different experiment, whose loss cannot be compared with the base's; it differs in: "


def what_if_text(a: WhatIf) -> str:
    """Print the unchanged run, then under each heading a line for every change, or why it has no layout."""
    base, solved = a.base, [f for f in a.lines if isinstance(f, Changed)]
    layout = whole(base.layout, sorted({name for f in solved for name in f.changes}))
    what = f"now: {base.gpus} {base.hardware}, {tokens(base.seq)}"

    def figures(f: Base, speedup: float) -> tuple[str, ...]:
        return (*speed(f).values(), f"{speedup:.2f}x", *(cost(f).values() if f.budget else ()))

    costs = cost(base) if base.budget else ()  # without a budget a cost is the rate again
    rows = [("", "", *speed(base), "speedup", *costs, "layout"), (what, "", *figures(base, 1.0), "")]
    for f in solved:
        stated = {n: v for n, v in f.changes.items() if n not in f.change.split() and n != f.kind}
        kept = f"goodput {f.goodput:.1%} " if abs(f.goodput - base.goodput) >= NOTABLE else ""
        mark = "E" if f.another_experiment else ""
        rows.append((f.change, mark, *figures(f, f.speedup), f"{kept}{pairs(stated) or 'the same'}"))
    title, now, *cells = (_cut(line.rstrip()) for line in figures_table(rows, left=2))
    line_of = dict(zip((f.change for f in solved), cells, strict=True))
    s = a.step
    step = f"{s.tokens:,} tokens a step (now {s.global_batch} sequences of {tokens(s.seq)})"
    lines = [wrapped(f"{a.name}: what if, with the same {step}", "", "  "), title, now, wrapped(layout, "    ", "    ")]
    for kind, heading in KINDS.items():
        mine = [f for f in a.lines if f.kind == kind]
        lines += [heading] if mine else []
        for f in mine:
            none = f"{f.change}: {f.why}" if isinstance(f, Unsolved) else ""
            lines.append(wrapped(none, "  ", "    ") if none else line_of[f.change])
    # Name the ranking of the lines, and how to compare by speed if it is another
    ranking = ALONE.format(rank=a.ranks_by, phase=a.phase)
    lines.append(wrapped(ranking + ("." if a.by_speed else NOT_BY_SPEED)))
    names = dict.fromkeys(n for f in solved for n in f.another_experiment)
    lines += [wrapped(ELSEWHERE + ", ".join(names))] if names else []
    return "\n".join([*lines, *budget_note(base)]) + "\n"


WIDTH = 100
NOTABLE = 0.005
"""A goodput is named if it differs by at least this from the run's."""


def _cut(line: str) -> str:
    """Return a line of the table, without the last values of its layout where it is too long."""
    return line if len(line) <= WIDTH else line[: line.rfind(" ", 0, WIDTH - 3)] + " ..."
