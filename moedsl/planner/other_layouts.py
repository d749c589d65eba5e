"""Other layouts that a reader of the plan should know, one function for each.

A recipe that Megatron Bridge ships is priced like the plan: by the same estimate, with the run's own batch, length and
number formats. A recipe for another number of GPUs is not shown: its data parallel size, and so its layout, would
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, log2
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import pipeline
from moedsl.cost.estimate import verdict
from moedsl.facts import axes, recipes
from moedsl.facts.recipes import LIKE, Shipped
from moedsl.facts.units import GIB
from moedsl.facts.values import stages
from moedsl.planner.advice import against
from moedsl.planner.estimate import Estimate, Faster, Known, chance, useful_rate
from moedsl.planner.layout import Against4k, Batch, Layout
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.rule import EXPERIMENT
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.problem import pinned_row
from moedsl.solver.search import Question, Search, TopK
from moedsl.solver.solve import Chosen, fit_is_read, solve
from moedsl.support.json_form import JsonForm
from moedsl.support.text import change, counted, tokens, wrapped


@frozen
class Alternative(JsonForm):
    """Another layout, compared with the plan."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    against_advice: tuple[str, ...]
    """Advice that the plan follows and this layout does not."""
    step_time_s: float
    useful_tokens_per_s_per_gpu: float
    peak_gib: float
    against_plan: str


@frozen
class MoreGpus(JsonForm):
    """The best layout on a larger number of GPUs, with the plan's batch."""

    gpus: int
    step_time_s: float
    speedup: float
    changes: Mapping[str, Any]


@frozen
class Difference(JsonForm):
    """An axis whose value differs in the same run at 4k tokens."""

    name: str
    at_4k: Any
    here: Any


@frozen
class Compared4k(JsonForm):
    """How the layout differs from the same run's layout at 4k tokens."""

    changes: tuple[Difference, ...]


@frozen
class ShippedRecipe(JsonForm):
    """A Bridge recipe for this model, GPU, number of GPUs and task, priced with this run's batch and number formats."""

    name: str
    """The name of its function, as `--like` takes it."""
    target: str
    """module:function, for lint, verify and diff."""
    layout: Mapping[str, Any]
    """Each axis that the recipe turns on, and its pipeline layout."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with the recipe's values."""
    written_for: Mapping[str, Any]
    """The recipe's length, batch and number formats where they differ from this run's."""
    refused_by: str | None
    """The law that its layout breaks in this run."""
    because: str | None
    """The reason that the law gives."""
    step_time_s: float | None
    """Null if Megatron would refuse the layout."""
    peak_gib: float | None
    """Null if Megatron would refuse the layout."""
    verdict: str | None
    """FITS, TIGHT or DOES NOT FIT."""
    against_plan: str | None
    """The difference from the plan in words."""
    others: tuple[str, ...]
    """Further recipes for the same model, GPU, number of GPUs and task."""

    @property
    def is_benchmark(self) -> bool:
        """Whether this is an NVIDIA benchmark recipe, which is not meant for training."""
        return recipes.of_benchmark(self.target)


_SIZES = ("seq", "global_batch")
LEAST = 5e-4
"""Smallest gain that is shown, as a share of the step time."""
WORTH = 0.01
"""Smallest share of the step time that a balanced layout must save to be shown."""


def faster(chosen: Chosen, row: Row) -> Faster | None:
    """Return the layout that the run would choose with `risk oom`; None if it is not faster than the plan."""
    problem, cost = chosen.problem, chosen.cost
    if chosen.must_fit != "high" or problem.program.isolate is not None:
        return None
    same = {n: problem.values[n] for n in _SIZES}
    risky = solve(problem.program, problem.gpus, keep=0, must_fit="best", **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(risky.compiled, risky.cost, None if fit_is_read(problem.program) else chosen.search).fill([query])
    other = next((r for r in query.rows if r.step_time < row.step_time * (1 - LEAST)), None)
    if other is None:
        return None
    low, high = ((cost.hardware.shown - float(cost.spare(other.codes, case)[0])) / GIB for case in ("low", "high"))
    gain = f"{other.step_time - row.step_time:+.2f} s, {against(other, row)}"
    peak = other.peak_memory / GIB
    odds = chance(cost, other.codes)
    return Faster(other.changes(row.codes), peak, low, high, odds, other.step_time, gain, "risk oom")


def free_choices(chosen: Chosen, row: Row) -> dict[str, Row]:
    """For each pin of the user, find the best layout without it, if that has another value on the pinned axis.

    Skips axes that the run varies or takes from a recipe, and values that affect the loss."""
    p, out = chosen.problem.program, dict[str, Row]()
    effects = p.effects
    varied = {p.sweep[0]} if p.sweep else {*p.isolate.variants[0].codes} if p.isolate else set[str]()
    for axis, pin in p.pins.items():
        learns = effects.word(axis, axes.BY_NAME[axis].decode(pin.code)) == EXPERIMENT
        if not (axis in varied or learns or pin.span.file.startswith(LIKE)) and (other := _unpinned(chosen, row, axis)):
            out[axis] = other
    return out


def _unpinned(chosen: Chosen, row: Row, axis: str) -> Row | None:
    """Return the best layout without one pin, or None if it has the pinned value; the searched space is freed."""
    problem, p = chosen.problem, chosen.problem.program
    same = {n: problem.values[n] for n in _SIZES}
    free = evolve(p, pins={a: pin for a, pin in p.pins.items() if a != axis})
    solved = solve(free, problem.gpus, keep=0, must_fit=chosen.must_fit, **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(solved.compiled, solved.cost, near=chosen.search).fill([query])
    return next((r for r in query.rows if r.codes[axis] != row.codes[axis]), None)


def alternatives(chosen: Chosen, others: Sequence[Row], row: Row, known: Known | None) -> tuple[Alternative, ...]:
    """Describe other layouts, each with the advice that the plan follows and the layout does not.

    Without `known`, none counts as equally fast within the estimate's error.
    """
    table = chosen.compiled.table([{**r.codes, **r.prices} for r in (row, *others)])
    followed = [(law.rule.id, *law.holds(table).tolist()) for law in chosen.compiled.advice]
    return tuple(
        Alternative(
            changes=other.changes(row.codes),
            against_advice=tuple(sorted(id for id, mine, *its in followed if mine and not its[i])),
            step_time_s=other.step_time,
            useful_tokens_per_s_per_gpu=useful_rate(chosen, other.codes, other.step_time),
            peak_gib=other.peak_memory / GIB,
            against_plan=against(other, row, known is not None and known.is_close(other.codes)),
        )
        for i, other in enumerate(others)
    )


def rebalanced(chosen: Chosen, row: Row) -> Alternative | None:
    """Return the same layout with the most balanced pipeline stages.

    None if the plan has these stages, or if they break a law or save less than `WORTH`. Megatron's default, the even
    split, counts only layers: its last stage also computes the loss and MTP.
    """
    p, pp, vpp = chosen.problem.program, row.codes["pp"], row.codes["vpp"]
    if pp == 1 or p.pipeline_layout is not None or pipeline.layout_string(p.model, pp, vpp) is not None:
        return None
    if (text := pipeline.balanced(p.model, pp, vpp)) is None:
        return None
    other = neighbours.repriced(chosen.compiled, evolve(chosen.cost, layout=text), row)
    if other.refused_by is not None or other.step_time > (1 - WORTH) * row.step_time:
        return None
    prices = {**other.prices, "score": row.score + other.step_time - row.step_time}
    (found,) = alternatives(chosen, [evolve(row, prices=prices)], row, None)
    return evolve(found, changes={_PIPELINE: text})


SHORT = 4096
LONG = 32768
"""Shortest sequence, in tokens, whose plan is compared with the same run at `SHORT`."""
FREED = tuple(a.name for a in axes.AXES if a.section == "layout" or a.kind == "set" or (a.kind == "enum" and a.opened))
"""Axes that the run at 4K chooses again, pinned or not: the layout, sets of modules, and options that every phase
chooses. The microbatch, the overlap flags and the number formats stay as in the plan."""


def twin(p: Program, gpus: int, codes: Mapping[str, int], batch: Batch) -> Chosen | None:
    """Solve a run of length `LONG` or more at 4K, with the same tokens a step and GPUs; None if it has no layout.

    The axes in `FREED` are free, and all others are pinned to the plan's values. Requirements on derived values are
    dropped: they are meant for the run's own length. None for a shorter run, too.
    """
    if batch.seq < LONG:
        return None
    sequences = batch.global_batch * batch.seq // SHORT
    anywhere = next(iter(p.spans.values()))
    pins = {a.name: Pin(a.name, codes[a.name], anywhere) for a in axes.AXES if a.name not in FREED}
    rules = tuple(r for r in p.rules if not (r.wish and r.name in axes.DERIVED))
    shortened = evolve(p, pins=pins, rules=rules, pipeline_layout=None)
    short = solve(shortened, gpus, keep=1, seq=SHORT, global_batch=sequences)
    return short if short.solution.rows else None


def against_4k(twin: Chosen, layout: Layout, batch: Batch) -> Against4k:
    """Compare batches: the microbatches here for the 4K run's batch, and the batch here for its microbatches."""
    env = twin.environment(twin.solution.rows[0].codes)
    dp, microbatches, sequences = (int(env[n]) for n in ("dp", "num_microbatches", "global_batch"))
    each = layout.dp * batch.micro_batch
    same_batch, same_steps = -(-sequences // each), microbatches * each
    short, same = counted(microbatches, "microbatch"), counted(same_batch, "microbatch")
    text = (
        f"dp is {layout.dp} at {tokens(batch.seq)} and {dp} at {tokens(SHORT)}. At {tokens(SHORT)}, the same tokens "
        f"are {sequences} sequences in {short}. Here, {sequences} sequences would need {same}; "
        f"{short} hold {same_steps} sequences"
    )
    return Against4k(SHORT, dp, microbatches, sequences, same_batch, same_steps, text)


def compared_4k(twin: Chosen, codes: Mapping[str, int]) -> Compared4k:
    """List the axes that differ at 4K, each with its value at 4K and in the plan."""
    short = twin.solution.rows[0].codes
    named = [axes.BY_NAME[n] for n in FREED if short[n] != codes[n]]
    return Compared4k(tuple(Difference(a.name, a.decode(short[a.name]), a.decode(codes[a.name])) for a in named))


_PIPELINE = "pipeline_layout"


def shipped(chosen: Chosen, row: Row, pipeline: str | None) -> ShippedRecipe | None:
    """Price the nearest of Bridge's recipes for the run's model, GPU, number of GPUs and task; None if there is none.

    `pipeline` is the pipeline layout of the plan."""
    problem, p = chosen.problem, chosen.problem.program
    found = recipes.find(p.model.hf, p.hardware.name, problem.gpus, p.task)
    if not found:
        return None
    run = {"seq": problem.values["seq"], "global_batch": problem.global_batch, "mtp_layers": p.model.mtp_layers}
    run |= {a.name: a.decode(row.codes[a.name]) for a in axes.AXES if a.is_format}

    def distance(r: Shipped) -> tuple[Any, ...]:
        """Compare a recipe with the run: its precision, then its length, then how plain its name is."""
        return r.formats["precision"] != run["precision"], abs(log2(r.seq / run["seq"])), not r.tuned, len(r.name)

    best, *others = sorted(found, key=distance)
    own = {"seq": best.seq, "global_batch": best.batch, "mtp_layers": best.mtp_layers, **best.formats}
    # The recipe's layout in this run, and its cost or the law that refuses it
    text = best.layout.get(_PIPELINE)
    pins = {n: Pin(n, c, p.spans["hardware"]) for n, c in shipped_codes(best.layout, row).items()}
    pinned = evolve(p, pins=pins, pipeline_layout=text)
    theirs = solve(pinned, problem.gpus, keep=0, global_batch=problem.global_batch)
    codes = pinned_row(theirs.problem)
    other = evolve(row, codes=codes)
    priced = neighbours.repriced(theirs.compiled, theirs.cost, other)
    law = next((r for r in p.of("require") if r.id == priced.refused_by), None)
    changes = other.changes(row.codes)
    if text is not None and (pipeline is None or stages(text) != stages(pipeline)):
        changes[_PIPELINE] = text
    refused, more = isnan(priced.step_time), (priced.peak_memory - row.peak_memory) / GIB
    return ShippedRecipe(
        name=best.name,
        target=best.target,
        layout=dict(best.layout),
        changes=changes,
        written_for={n: v for n, v in own.items() if v != run[n]},
        refused_by=law and law.id,
        because=law and law.because,
        step_time_s=None if refused else priced.step_time,
        peak_gib=None if refused else priced.peak_memory / GIB,
        verdict=None if refused else verdict(theirs.cost, codes),
        against_plan=None if refused else change(priced.step_time / row.step_time - 1, more),
        others=tuple(n for n in dict.fromkeys(r.name for r in others) if n != best.name),
    )


def shipped_codes(layout: Mapping[str, Any], row: Row) -> dict[str, int]:
    """Return the codes of a recipe's layout with the run's own number formats."""
    codes = {a.name: a.encode(layout[a.name]) if a.name in layout else a.off for a in axes.AXES}
    return codes | {a.name: row.codes[a.name] for a in axes.AXES if a.is_format}


def shipped_text(r: ShippedRecipe, gpus: int, hardware: str, here: Estimate) -> str:
    """Print a recipe's name and layout, both predictions, and the command that shows the differences."""
    lines = [f"layout: {axes.pairs(r.layout)}"]
    if r.step_time_s is None or r.peak_gib is None:
        lines.append(f"refused in this run by {r.refused_by}: {r.because}")
    elif not r.changes:
        lines.append("this plan has its layout")
    else:
        theirs = f"{r.step_time_s:.2f} s a step ({r.against_plan}), {r.peak_gib:.1f} GiB, {r.verdict}"
        own = f"{here.step_time_s:.2f} s a step, {here.memory.peak_gib:.1f} GiB, {here.memory.verdict}"
        lines.append(f"at this run's batch {theirs}; this plan {own}")
    lines += [f"written for {axes.pairs(r.written_for)}"] if r.written_for else []
    if r.others:
        others = f"{counted(len(r.others), 'other recipe')} for this model on {gpus} {hardware}"
        lines.append(f"{others}: {', '.join(r.others)}")
    lines += [f"moedsl diff FILE --like {r.name}"] if r.changes else []
    return "\n".join([f"NVIDIA's recipe  {r.name}", *(wrapped(line, rest="    ") for line in lines)])
