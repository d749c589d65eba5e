"""Build the plan from the chosen layout: values with their origins, costs and alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.cost import adapters, parameters, pipeline
from moedsl.cost.estimate import TIGHT, Bounds, bounds
from moedsl.facts import axes, recipes, releases
from moedsl.facts.axes import json_value, show
from moedsl.facts.fine_tuning import TARGETS
from moedsl.facts.symbols import VLM_WORDS
from moedsl.facts.units import GIB
from moedsl.planner import checkpoints, experiment, memory, other_layouts, racks, several, walls
from moedsl.planner.advice import Answers, against, answers
from moedsl.planner.decisions import Allowed, Decision, Measured, OtherValue
from moedsl.planner.estimate import Covers, Estimate, Interval, Known, held_by, useful_rate, useful_share, with_parts
from moedsl.planner.estimate import known as known_step
from moedsl.planner.ladder import RanksBy
from moedsl.planner.layout import AdapterPlan, Batch, Layout, Policy, SamplesPlan
from moedsl.planner.memory import Certain, CertainLayout, Faster
from moedsl.planner.other_layouts import Alternative, Compared4k, MoreGpus, ShippedRecipe
from moedsl.planner.plan import VERSION, Device, Member, Need, Plan, Search, Target
from moedsl.planner.version_bounds import bound
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule, of_rules
from moedsl.rules.stdlib import LetName
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.problem import first_of, plain
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.source import Source
from moedsl.support.text import CLOSE


def make_plan(
    chosen: Chosen, diagnostics: Sequence[Diagnostic], sources: Mapping[str, Source], whole: bool = True
) -> Plan:
    """Build the plan of one run; one that is not `whole` is without what a page does not print and takes a search: the
    advice, and the twin at 4K."""
    p, row = chosen.problem.program, chosen.solution.rows[0]
    env = chosen.environment(row.codes, row.prices)
    peaks = bounds(chosen.cost, row.codes)
    tight = peaks.verdict == TIGHT
    answered, rank = answers(chosen, row, env, tight, whole), chosen.compiled.ranks[0].rule
    own, fixes = neighbours.around(chosen.compiled, row), walls.tried(chosen, env)
    judged = neighbours.judged(chosen.compiled, chosen.cost, row, dict.fromkeys([*own, *fixes]))
    each = {(n.axis, n.code): n for n in judged}
    near, tried = ([each[a.name, v] for a, v in pairs if (a.name, v) in each] for pairs in (own, fixes))
    layout = _layout(chosen, env)
    recipe = _shipped(chosen, row, layout)
    free = other_layouts.free_choices(chosen, row)
    known = known_step(chosen.cost, row, _compared(chosen, near, recipe, free.values()))
    estimate = _estimate(chosen, row, env, peaks, _certain(chosen, answered, row) if tight else None, known.interval)
    batch, policy = _batch(env), _policy(p, env)
    derived = {r.name: json_value(evaluate(r.expr, env)) for r in _applying(p, "derive", env)}
    near = [evolve(n, close=known.is_close(n.codes)) for n in near]
    others = {a.name: _others(chosen, a, row, near) for a in axes.AXES}
    others |= {name: (_freed(chosen, name, other, row, known),) for name, other in free.items()}
    decisions = _decisions(chosen, env, others)
    twin = other_layouts.long_twin(chosen, batch) if whole else None
    return Plan(
        version=VERSION,
        name=p.name,
        model=p.model.name,
        hf=p.model.hf,
        revision=p.model.revision or None,
        family=p.model.family,
        hardware=p.hardware.name,
        gpus=chosen.problem.gpus,
        phase=p.phase,
        task=p.task,
        target=Target(p.target, **_stands_on(p)),
        needs=_needs(p, env),
        device=_device(p),
        layout=layout,
        batch=evolve(batch, against_4k=other_layouts.against_4k(twin, layout, batch)) if twin else batch,
        policy=policy,
        samples=_samples(p, env),
        adapter=_adapter(p),
        derived=derived,
        env=_variables(p, env),
        set=dict(p.sets),
        hub_weights=p.hub_weights,
        estimate=estimate,
        checkpoints=checkpoints.checkpoints(chosen, row, env, derived),
        racks=racks.racks(layout.to_json(), chosen.problem.gpus, p.hardware, p.site),
        walls=walls.walls(chosen, row, env, estimate, tried),
        decisions=decisions,
        advice=answered.advice,
        allowed=tuple(Allowed(a.rule, a.because) for a in p.allows.values()),
        measured=tuple(_measured(r, env) for r in p.of("measured") if _resembles(r, env)),
        diagnostics=[to_json(d, sources) for d in diagnostics],
        alternatives=_alternatives(chosen, chosen.solution.rows[1:], row, known),
        rebalanced=_rebalanced(chosen, row),
        shipped=recipe and evolve(recipe, against_plan=_told(recipe, row, known)),
        steps=tuple(_step(chosen, g, r, row) for g, r in chosen.steps),
        search=Search(chosen.solution.legal, chosen.solution.priced, RanksBy(rank.id, rank.because, rank.cites)),
        isolation=_isolation(p),
        sweep=several.sweep_member(p),
        experiment=experiment.experiment(chosen, experiment.settings(batch, policy, layout), derived, decisions),
        against_4k=Compared4k(other_layouts.changes_from_4k(twin, row.codes)) if twin else None,
    )


def variables(chosen: Chosen) -> dict[str, Any]:
    """The environment of a run's ranks, without the rest of its plan."""
    row = chosen.solution.rows[0]
    return _variables(chosen.problem.program, chosen.environment(row.codes, row.prices))


def _variables(p: Program, env: Mapping[str, Any]) -> dict[str, Any]:
    return {r.name: json_value(evaluate(r.expr, env)) for r in _applying(p, "env", env)}


def _shipped(chosen: Chosen, row: Row, layout: Layout) -> ShippedRecipe | None:
    """The recipe that Bridge ships for the run; None for most runs."""
    p = chosen.problem.program
    found = recipes.find(p.model.hf, p.hardware.name, chosen.problem.gpus, p.task)
    if not found:
        return None
    return other_layouts.nearest_shipped(found, chosen, row, layout.pipeline_layout)


def _shipped_codes(r: ShippedRecipe, row: Row) -> Mapping[str, int]:
    return other_layouts.shipped_codes(r.layout, row)


def _told(r: ShippedRecipe, row: Row, known: Known) -> str | None:
    """What the recipe costs against the plan, and whether the estimate can tell."""
    close = r.changes and r.step_time_s and known.is_close(_shipped_codes(r, row))
    return f"{CLOSE}{r.against_plan}" if close else r.against_plan


def _isolation(p: Program) -> Member | None:
    """The run, axis and value that this variant belongs to; None if the run has no `isolate`."""
    if p.isolate is None:
        return None
    axis, (variant, *_) = p.isolate.axis, p.isolate.variants
    return Member(p.name.removesuffix(f".{axis}_{variant.label}"), axis, variant.label)


def _stands_on(p: Program) -> dict[str, str]:
    """The versions that the run states, by product."""
    return {n: releases.as_text(p.versions[v]) for n, v in releases.PRODUCTS.items() if v in p.versions}


def _needs(p: Program, env: Mapping[str, Any]) -> tuple[Need, ...]:
    """The least versions that the laws require of the container, each with its law."""
    bounds = ((r, bound(r.expr, env)) for r in p.of("require") if holds(r.when, env))
    return tuple(Need(*b, r.id, r.because) for r, b in bounds if b)


def _device(p: Program) -> Device:
    """The facts that the verifier returns when Bridge queries the GPU; memory in bytes."""
    h = p.hardware
    capability = (int(h.capability), round(h.capability % 1 * 10))
    return Device(h.device, capability, int(h.total), h.sms, h.gpus_per_node, h.nvlink_domain)


def _batch(env: Mapping[str, Any]) -> Batch:
    sizes: dict[str, Any] = {k: int(env[k]) for k in ("global_batch", *axes.BATCH, "seq")}
    return Batch(**sizes)


def _layout(chosen: Chosen, env: Mapping[str, Any]) -> Layout:
    sizes = {n: int(env[n]) for n in axes.LAYOUT}
    p = chosen.problem.program
    layout = p.pipeline_layout or pipeline.layout_string(p.model, sizes["pp"], sizes["vpp"])
    return Layout(**sizes, sequence_parallel=bool(env["sequence_parallel"]), pipeline_layout=layout)


def _policy(p: Program, env: Mapping[str, Any]) -> Policy:
    frozen: dict[str, Any] = {w: w in p.vlm for w in VLM_WORDS}
    return Policy(**{n: json_value(env[n]) for n in axes.POLICY}, data=p.data, routing=p.routing, **frozen)


def _samples(p: Program, env: Mapping[str, Any]) -> SamplesPlan | None:
    s, held = p.samples, held_by(p, env)
    if s is None:
        return None
    known = {"per_sequence": held.samples if held else None, "span": held.span if held else None}
    pack, multiple = bool(env["pack"]), int(env[LetName.SAMPLE_MULTIPLE])
    return SamplesPlan(s.source, s.split, s.subset, pack, multiple, [axes.json_value(n) for n in s.lengths], **known)


def _adapter(p: Program) -> AdapterPlan | None:
    """What is trained instead of all weights, each adapter of a shared expert counted once."""
    a, whole = p.adapter, pipeline.layout_for(p.model, 1, 1)
    if a is None or whole is None:
        return None
    params = adapters.stage(p.model, a, whole, 0, 1, 1, 1).total
    return AdapterPlan(
        a.method, a.rank, a.alpha, a.dropout, [t for t in TARGETS if t in a.targets], a.experts, a.normalized,
        a.regather, params, params / parameters.unique(p.model),
    )  # fmt: skip


def _applying(p: Program, kind: str, env: Mapping[str, Any]) -> list[Rule]:
    """The first rule that holds for each name, in the order of the files, without names that the run sets."""
    names = dict.fromkeys(r.name for r in p.of(kind) if r.name not in p.sets)
    return [r for n in names if (r := first_of(p.named(kind, n), env)) is not None]


def _compared(
    chosen: Chosen, near: Sequence[Neighbour], recipe: ShippedRecipe | None, free: Iterable[Row]
) -> list[tuple[Mapping[str, int], float]]:
    """List the layouts whose steps a plan compares with its own."""
    first, *others = chosen.solution.rows
    legal = [(n.codes, n.step_time) for n in near if n.refused_by is None]
    theirs = [(_shipped_codes(recipe, first), recipe.step_time_s)] if recipe and recipe.step_time_s else []
    return [*legal, *theirs, *((r.codes, r.step_time) for r in (*others, *free))]


def _estimate(
    chosen: Chosen, row: Row, env: Mapping[str, Any], peaks: Bounds, certain: Certain | None, known: Interval
) -> Estimate:
    tokens, cost = env["global_batch"] * env["seq"], chosen.cost
    estimate = Estimate(
        memory=memory.memory(chosen, row, peaks, certain, _faster(chosen, row)),
        step_time_s=row.step_time,
        interval=known,
        tokens_per_s_per_gpu=tokens / row.step_time / chosen.problem.gpus,
        model_tflops_per_gpu=float(cost.model_tflops_per_gpu(row.step_time, int(env["tp"]))),
        breakdown={k: float(v) for k, v in cost.time_report(row.codes).items()},
        covers=Covers(cost.covers["time"]),
        useful_share=useful_share(chosen.problem.program, env),
        useful_tokens_per_s_per_gpu=useful_rate(chosen, row.codes, row.step_time),
    )
    return with_parts(estimate, chosen, row, float(env[LetName.VISION_SHARE_FLOOR]))


def _decisions(
    chosen: Chosen, env: Mapping[str, Any], others: Mapping[str, tuple[OtherValue, ...]]
) -> tuple[Decision, ...]:
    p, effects = chosen.problem.program, of_rules(chosen.problem.program.of("effect"))
    out = [_axis(chosen, a, env, others[a.name]) for a in axes.AXES]
    out += [_derived(p, n, env) for n in axes.DERIVED]
    fixed = ("seq", "global_batch", *(["pack"] if p.samples else []))
    out += [_fixed(chosen, n, env) for n in fixed]
    out += [_field(p, r, env) for kind in ("derive", "env") for r in _applying(p, kind, env)]
    return tuple(evolve(d, effect=experiment.decision_effect(d.name, d.value, p, effects)) for d in out)


def _axis(chosen: Chosen, axis: axes.Axis, env: Mapping[str, Any], others: tuple[OtherValue, ...]) -> Decision:
    origin, entry = chosen.problem.origins[axis.name], _decision(chosen, axis, env, others)
    among = origin.id if isinstance(origin, Rule) and origin.kind in ("candidates", "default") else None
    return evolve(entry, advice=among is not None, among=among)


def _decision(
    chosen: Chosen, axis: axes.Axis, env: Mapping[str, Any], alternatives: tuple[OtherValue, ...]
) -> Decision:
    origin = chosen.problem.origins[axis.name]
    value = json_value(env[axis.name])
    if isinstance(origin, Pin):
        varied = chosen.problem.program.isolate
        isolated = varied is not None and origin.span == varied.span
        by = "varied by `isolate`" if isolated else f"pinned by {origin.by}"
        return _entry(axis.name, value, "pinned", None, by, (), alternatives)
    if len(chosen.problem.domains[axis.name]) > 1:
        return _entry(axis.name, value, "chosen", *_why_chosen(chosen, axis, origin, alternatives), alternatives)
    if origin is not None:
        return _entry(axis.name, value, "defaulted", origin.id, origin.because, origin.cites, alternatives)
    return _entry(axis.name, value, "defaulted", None, "the only possible value")


def _others(chosen: Chosen, axis: axes.Axis, row: Row, near: Sequence[Neighbour]) -> tuple[OtherValue, ...]:
    """Each other value that the solver chose from, with all else as it is."""
    mine = (n for n in near if n.axis == axis.name)
    return tuple(OtherValue(axis.decode(n.code), _effect(chosen, n, row), _slower(n, row)) for n in mine)


def _freed(chosen: Chosen, name: str, other: Row, row: Row, known: Known) -> OtherValue:
    """The value that the run would choose without its pin, with what else that changes."""
    changes = _changes(chosen, other, row)
    value = changes.pop(name)
    rest = f", with {axes.pairs(changes)}" if changes else ""
    effect = against(other, row, known.is_close(other.codes)) + rest
    return OtherValue(value, effect, other.step_time / row.step_time - 1)


def _effect(chosen: Chosen, n: Neighbour, row: Row) -> str:
    """The effect of another value; of one that is faster, also why the plan does not have it."""
    faster = n.refused_by is None and n.step_time < row.step_time
    reason = neighbours.outranked(chosen.compiled, n, row) if faster else ""
    farther = ", but farther from what has run" if faster and chosen.preference else ""
    return neighbours.effect(n, row) + (reason or farther)


def _slower(n: Neighbour, row: Row) -> float | None:
    return n.step_time / row.step_time - 1 if n.refused_by is None else None


def _why_chosen(
    chosen: Chosen, axis: axes.Axis, origin: Rule | None, alternatives: Sequence[OtherValue]
) -> tuple[str | None, str, tuple[str, ...]]:
    """Give rule, reason and citations of a choice: the phase's ranking, and the rule that narrows the candidates."""
    rank = chosen.compiled.ranks[0].rule
    others = [f"{show(a.value)} is {a.effect}" for a in alternatives[:2]]
    because = "; ".join([_best(chosen, axis), *others])
    return rank.id, because, (*rank.cites, *(origin.cites if origin else ()))


def _best(chosen: Chosen, axis: axes.Axis) -> str:
    """The first reason of a choice: the ranking, or what has run with this layout where the ranking cannot tell."""
    rank, preference = chosen.compiled.ranks[0].rule.name, chosen.preference
    near = preference.reason(axis, chosen.solution.rows[0].codes[axis.name], rank) if preference else ""
    return near or f"best by {rank}"


def _entry(
    name: str, value: Any, origin: str, rule: str | None, because: str | None, cites: Sequence[str] = (),
    alternatives: tuple[OtherValue, ...] = (),
) -> Decision:  # fmt: skip
    cite = tuple(dict.fromkeys(cites))
    return Decision(
        name=name, value=value, origin=origin, rule=rule, because=because, cite=cite, alternatives=alternatives,
        effect="",
    )  # fmt: skip


def _derived(p: Program, name: str, env: Mapping[str, Any]) -> Decision:
    wish = next((r for r in p.rules if r.wish and r.name == name), None)
    rule = next(r for r in p.of("let") if r.name == name)
    if wish is not None:
        return _entry(name, json_value(env[name]), "pinned", None, "pinned by the run file")
    return _from_rule(rule, json_value(env[name]), "derived")


def _field(p: Program, rule: Rule, env: Mapping[str, Any]) -> Decision:
    """A field or a variable that a rule derives; a `set` of the run stands above the rule."""
    path = experiment.path_of(rule.name)
    if rule.kind == "derive" and path in p.sets:
        return _entry(rule.name, json_value(p.sets[path]), "pinned", None, "set by the run file")
    return _from_rule(rule, json_value(evaluate(rule.expr, env)), "derived")


def _fixed(chosen: Chosen, name: str, env: Mapping[str, Any]) -> Decision:
    rule = chosen.problem.defaults[name]
    if rule is not None:
        return _from_rule(rule, json_value(env[name]), "defaulted")
    return _entry(name, json_value(env[name]), "pinned", None, "stated by the run file")


def _from_rule(r: Rule, value: Any, origin: str) -> Decision:
    return _entry(r.name, value, origin, r.id, r.because, r.cites)


def _resembles(r: Rule, env: Mapping[str, Any]) -> bool:
    """Whether a published result is from a run like this one."""
    return not r.id.startswith(walls.OWN_BLOCKS) and holds(r.when, env)


def _measured(r: Rule, env: Mapping[str, Any]) -> Measured:
    return Measured(r.id, evaluate(r.expr, env), r.because, r.cites)


def _step(chosen: Chosen, gpus: int, other: Row, row: Row) -> MoreGpus:
    """The gain from more GPUs, and the layout for it."""
    return MoreGpus(gpus, other.step_time, row.step_time / other.step_time, _changes(chosen, other, row))


def _changes(chosen: Chosen, other: Row, row: Row) -> dict[str, Any]:
    values = plain(other.codes, chosen.problem)
    return {a.name: json_value(values[a.name]) for a in axes.AXES if other.codes[a.name] != row.codes[a.name]}


def _certain(chosen: Chosen, answered: Answers, row: Row) -> Certain:
    """The best layout that FITS with its cost; no layout if none FITS with a step `within` the limit."""
    other = answered.certain
    if other is None:
        return Certain(answered.within, None)
    changes = _changes(chosen, other, row)
    return Certain(
        answered.within, CertainLayout(changes, other.peak_memory / GIB, other.step_time, against(other, row))
    )


def _faster(chosen: Chosen, row: Row) -> Faster | None:
    """The layout that the run would choose if it risked running out of memory, if that is faster."""
    other = other_layouts.faster(chosen, row)
    if other is None:
        return None
    shown = chosen.cost.hardware.shown
    low, high = ((shown - float(chosen.cost.spare(other.codes, case)[0])) / GIB for case in ("low", "high"))
    gain = f"{other.step_time - row.step_time:+.2f} s, {against(other, row)}"
    sizes = (other.peak_memory / GIB, low, high)
    return Faster(_changes(chosen, other, row), *sizes, other.step_time, gain, other_layouts.STATEMENT)


def _rebalanced(chosen: Chosen, row: Row) -> Alternative | None:
    """The same layout with balanced pipeline stages, if that saves enough."""
    balanced = other_layouts.rebalanced(chosen, row)
    if balanced is None:
        return None
    text, other = balanced
    (alternative,) = _alternatives(chosen, [other], row, None)
    return evolve(alternative, changes={"pipeline_layout": text})


def _alternatives(chosen: Chosen, others: Sequence[Row], row: Row, known: Known | None) -> tuple[Alternative, ...]:
    """Other layouts with the advice that they leave; without `known` the estimate can tell all steps."""
    table = chosen.compiled.table([{**r.codes, **r.prices} for r in (row, *others)])
    followed = [(law.rule.id, *law.holds(table).tolist()) for law in chosen.compiled.advice]
    out = list[Alternative]()
    for i, other in enumerate(others):
        left = sorted(id for id, mine, *its in followed if mine and not its[i])
        close, rate = (
            known is not None and known.is_close(other.codes),
            useful_rate(chosen, other.codes, other.step_time),
        )
        changes, peak = _changes(chosen, other, row), other.peak_memory / GIB
        out.append(Alternative(changes, tuple(left), other.step_time, rate, peak, against(other, row, close)))
    return tuple(out)
