"""Layouts next to the plan that a reader should know.

- `faster`: the faster layout that may run out of memory; a run gets it only if it asks for it.
- `free_choices`: what each pin of the run file costs, by the layout that the run would have without that one pin.
- `rebalanced`: balanced pipeline stages, where Megatron's even split makes the last stage the slowest. The even split
  counts only layers, so the stage with the loss and MTP has more work than the others. A plan uses it where the layers
  divide, because it is Megatron's default; the balanced layout is shown as an alternative.
- `long_twin`: the same run at 4K tokens, which shows what the long sequence changes in the layout and the batch.
- `nearest_shipped`: the recipe that Megatron Bridge ships for the model and GPUs, at the run's own batch. Both layouts
  are priced by the same estimate, with the same batch, length and number formats. A recipe for another number of GPUs
  is not shown: the data parallel size, and with it the layout, would be another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, log2
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import pipeline
from moedsl.cost.estimate import verdict
from moedsl.facts import axes, recipes
from moedsl.facts.recipes import LIKE, Shipped
from moedsl.facts.units import GIB
from moedsl.facts.values import stages
from moedsl.planner.layout import Against4k, Batch, Layout
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.rule import EXPERIMENT, of_rules
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.problem import pinned_row
from moedsl.solver.search import Question, Search, TopK
from moedsl.solver.solve import Chosen, fit_is_read, solve
from moedsl.support.json_form import JsonForm
from moedsl.support.text import change, counted, tokens


@frozen
class Alternative(JsonForm):
    """Another layout."""

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
    """The best layout on more GPUs with the same batch."""

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
    """The layout compared with that of the same run at 4k tokens."""

    changes: tuple[Difference, ...]


@frozen
class ShippedRecipe(JsonForm):
    """A recipe of Bridge's for this model, GPU, number of GPUs and task, with this run's batch and number formats."""

    name: str
    """The function; `--like` takes it."""
    target: str
    """module:function, for lint, verify and diff."""
    layout: Mapping[str, Any]
    """Each axis that it turns on, and its pipeline layout."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with the recipe's values."""
    written_for: Mapping[str, Any]
    """The length, batch and number formats of the recipe that differ from those of this run."""
    refused_by: str | None
    """The law that its layout breaks in this run."""
    because: str | None
    """The reason of that law."""
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
        """Whether it is one of the recipes of NVIDIA's benchmarks, which are not made to train with."""
        return recipes.of_benchmark(self.target)


STATEMENT = "risk oom"
LEAST = 5e-4
"""Least gain that is shown, as a share of the step."""


def faster(chosen: Chosen, row: Row) -> Row | None:
    """The layout that `STATEMENT` would choose instead of `row`; None if it is not faster."""
    problem = chosen.problem
    if chosen.must_fit != "high" or problem.program.isolate is not None:
        return None
    same = {n: problem.values[n] for n in ("seq", "global_batch")}
    risky = solve(problem.program, problem.gpus, keep=0, must_fit="best", **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(risky.compiled, risky.cost, None if fit_is_read(problem.program) else chosen.search).fill([query])
    return next((r for r in query.rows if r.step_time < row.step_time * (1 - LEAST)), None)


def free_choices(chosen: Chosen, row: Row) -> dict[str, Row]:
    """The best layout without each pin, where its value is another."""
    found = ((axis, _without(chosen, row, axis)) for axis in _pinned(chosen.problem.program))
    return {axis: other for axis, other in found if other is not None}


def _pinned(p: Program) -> Iterator[str]:
    """The axes that the user fixed, without those that the run varies, takes from a recipe, or needs for its loss."""
    effects = of_rules(p.of("effect"))
    varied = {p.sweep[0]} if p.sweep else {*p.isolate.variants[0].codes} if p.isolate else set[str]()
    for axis, pin in p.pins.items():
        learns = effects.word(axis, axes.BY_NAME[axis].decode(pin.code)) == EXPERIMENT
        if axis not in varied and not learns and not pin.span.file.startswith(LIKE):
            yield axis


def _without(chosen: Chosen, row: Row, axis: str) -> Row | None:
    problem, p = chosen.problem, chosen.problem.program
    same = {n: problem.values[n] for n in ("seq", "global_batch")}
    free = evolve(p, pins={a: pin for a, pin in p.pins.items() if a != axis})
    other = solve(free, problem.gpus, keep=0, must_fit=chosen.must_fit, **same)
    query = TopK(1, Question(but=row.codes), row.keys)
    Search(other.compiled, other.cost, near=chosen.search).fill([query])
    return next((r for r in query.rows if r.codes[axis] != row.codes[axis]), None)


WORTH = 0.01
"""Least share of the step that a layout must save to be shown."""


def rebalanced(chosen: Chosen, row: Row) -> tuple[str, Row] | None:
    """The most balanced layout of the plan's stages, with its prices.

    None if the plan has this layout, or if the layout breaks a law or saves less than `WORTH`.
    """
    p, pp, vpp = chosen.problem.program, row.codes["pp"], row.codes["vpp"]
    if pp == 1 or p.pipeline_layout is not None or pipeline.layout_string(p.model, pp, vpp) is not None:
        return None
    text = pipeline.balanced(p.model, pp, vpp)
    if text is None:
        return None
    other = neighbours.repriced(chosen.compiled, evolve(chosen.cost, layout=text), row)
    if other.refused_by is not None or other.step_time > (1 - WORTH) * row.step_time:
        return None
    prices = {**other.prices, "score": row.score + other.step_time - row.step_time}
    return text, evolve(row, prices=prices)


SHORT = 4096
LONG = 32768
"""Shortest sequence whose plan is compared with its twin, in tokens."""
FREED = tuple(a.name for a in axes.AXES if a.section == "layout" or a.kind == "set" or (a.kind == "enum" and a.opened))
"""Axes that the twin chooses again, pinned or not: the layout, sets of modules, and words that every phase chooses. The
microbatch, the overlap flags and the number formats stay as in the plan."""


@frozen
class Twin:
    """The best layout of the run at 4K tokens. Batch sizes are in sequences."""

    dp: int
    num_microbatches: int
    global_batch: int
    codes: Mapping[str, int]
    """Values of the axes, encoded as in a column."""


def long_twin(chosen: Chosen, batch: Batch) -> Twin | None:
    """The twin of a plan; None if the sequence is short or the twin has no layout."""
    if batch.seq < LONG:
        return None
    return twin(chosen.problem.program, chosen.problem.gpus, chosen.solution.rows[0].codes, batch)


def twin(p: Program, gpus: int, codes: Mapping[str, int], batch: Batch) -> Twin | None:
    """Solve the run at 4K tokens with as many tokens a step on the same GPUs; None if it has no layout."""
    sequences = batch.global_batch * batch.seq // SHORT
    short = solve(_shortened(p, codes), gpus, keep=1, seq=SHORT, global_batch=sequences)
    if not short.solution.rows:
        return None
    row = short.solution.rows[0].codes
    dp = gpus // (row["tp"] * row["cp"] * row["pp"])
    return Twin(dp, sequences // (dp * row["micro_batch"]), sequences, row)


def _shortened(p: Program, codes: Mapping[str, int]) -> Program:
    """Free the axes in FREED, and pin every other axis to the plan's value.

    Requirements on derived values are dropped: they are meant for the run's own length.
    """
    anywhere = next(iter(p.spans.values()))
    pins = {a.name: Pin(a.name, codes[a.name], anywhere) for a in axes.AXES if a.name not in FREED}
    rules = tuple(r for r in p.rules if not (r.wish and r.name in axes.DERIVED))
    same = len(rules) == len(p.rules)  # the same rules keep their lookups
    return evolve(p, pins=pins, rules=p.rules if same else rules, pipeline_layout=None)


def against_4k(t: Twin, layout: Layout, batch: Batch) -> Against4k:
    """Compare batches: microbatches here for the twin's batch, and the batch here for the twin's microbatches."""
    each = layout.dp * batch.micro_batch
    same_batch, same_steps = -(-t.global_batch // each), t.num_microbatches * each
    short, same = counted(t.num_microbatches, "microbatch"), counted(same_batch, "microbatch")
    text = (
        f"dp is {layout.dp} at {tokens(batch.seq)} and {t.dp} at {tokens(SHORT)}. At {tokens(SHORT)}, the same tokens "
        f"are {t.global_batch} sequences in {short}. Here, {t.global_batch} sequences would need {same}; "
        f"{short} hold {same_steps} sequences"
    )
    return Against4k(SHORT, t.dp, t.num_microbatches, t.global_batch, same_batch, same_steps, text)


def changes_from_4k(t: Twin, codes: Mapping[str, int]) -> tuple[Difference, ...]:
    """The axes in which the twin differs, each with its value at 4K and in the plan."""
    named = [axes.BY_NAME[n] for n in FREED if t.codes[n] != codes[n]]
    return tuple(Difference(a.name, a.decode(t.codes[a.name]), a.decode(codes[a.name])) for a in named)


_PIPELINE = "pipeline_layout"
Values = Mapping[str, Any]


def nearest_shipped(found: Sequence[Shipped], chosen: Chosen, row: Row, pipeline: str | None) -> ShippedRecipe:
    """The recipe nearest to the run among those for its model, GPU, number of GPUs and task, priced.

    `pipeline` is the pipeline layout of the plan.
    """
    run = _experiment(chosen, row)
    best, *others = sorted(found, key=lambda r: _distance(r, run))
    own = {"seq": best.seq, "global_batch": best.batch, "mtp_layers": best.mtp_layers, **best.formats}
    return ShippedRecipe(
        name=best.name,
        target=best.target,
        layout=dict(best.layout),
        written_for={n: v for n, v in own.items() if v != run[n]},
        others=tuple(n for n in dict.fromkeys(r.name for r in others) if n != best.name),
        **_priced(best, chosen, row, pipeline),
    )


def _experiment(chosen: Chosen, row: Row) -> Values:
    """What a recipe was written for, as this run has it."""
    formats = {a.name: a.decode(row.codes[a.name]) for a in axes.AXES if a.is_format}
    c = chosen.problem
    own = {"seq": c.values["seq"], "global_batch": c.global_batch, "mtp_layers": c.program.model.mtp_layers}
    return {**own, **formats}


def _distance(r: Shipped, run: Values) -> tuple[Any, ...]:
    """How far a recipe's own run is from this one: its precision, then its length; of equals the plainest name."""
    return r.formats["precision"] != run["precision"], abs(log2(r.seq / run["seq"])), not r.tuned, len(r.name)


def _priced(r: Shipped, chosen: Chosen, row: Row, pipeline: str | None) -> dict[str, Any]:
    """The differences of a recipe's layout from the plan, and its cost or the law that refuses it."""
    p = _as_shipped(chosen.problem.program, r, row)
    theirs = solve(p, chosen.problem.gpus, keep=0, global_batch=chosen.problem.global_batch)
    codes = pinned_row(theirs.problem)
    found = neighbours.repriced(theirs.compiled, theirs.cost, evolve(row, codes=codes))
    law = next((x for x in p.of("require") if x.id == found.refused_by), None)
    # The axes that differ from the plan, and the pipeline layout if its stages do
    changes, text = evolve(row, codes=codes).changes(row.codes), r.layout.get(_PIPELINE)
    same = text is None or (pipeline is not None and stages(text) == stages(pipeline))
    out: dict[str, Any] = {"changes": (changes if same else {**changes, _PIPELINE: text})}
    out |= {"refused_by": law and law.id, "because": law and law.because}
    if isnan(found.step_time):
        return out | dict.fromkeys(("step_time_s", "peak_gib", "verdict", "against_plan"))
    more = float(found.peak_memory - row.peak_memory) / GIB
    return out | {
        "step_time_s": float(found.step_time),
        "peak_gib": float(found.peak_memory) / GIB,
        "verdict": verdict(theirs.cost, codes),
        "against_plan": change(float(found.step_time) / row.step_time - 1, more),
    }


def shipped_codes(layout: Values, row: Row) -> dict[str, int]:
    """A recipe's layout with the run's own number formats."""
    codes = {a.name: a.encode(layout[a.name]) if a.name in layout else a.off for a in axes.AXES}
    return codes | {a.name: row.codes[a.name] for a in axes.AXES if a.is_format}


def _as_shipped(p: Program, r: Shipped, row: Row) -> Program:
    """The run with the recipe's layout and its own number formats."""
    codes = shipped_codes(r.layout, row)
    where = p.spans["hardware"]
    return evolve(p, pins={n: Pin(n, c, where) for n, c in codes.items()}, pipeline_layout=r.layout.get(_PIPELINE))
