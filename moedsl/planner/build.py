"""The chosen layout as the plan: values, their origins, what they cost, what else they could be. JSON first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.checker.program import Pin, Program
from moedsl.cost import StageMemory, pipeline
from moedsl.cost.bounds import TIGHT
from moedsl.cost.memory import KINDS
from moedsl.diagnostics.model import Diagnostic, to_json
from moedsl.diagnostics.source import Source
from moedsl.planner import compare_4k, experiment, memory_verdict, rebalance, sweep_table, vlm_parts, walls
from moedsl.planner.notes.advice import Answers, against, answers
from moedsl.planner.version_bounds import bound
from moedsl.rules.ids import LetName
from moedsl.rules.interpreter import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.schema import axes, versions
from moedsl.schema.axes import json_value, said
from moedsl.schema.units import GIB
from moedsl.solver import neighbours
from moedsl.solver.laws import broken
from moedsl.solver.lower import first_of, plain
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row

VERSION = 1
Json = dict[str, Any]


def make_plan(chosen: Chosen, found: Sequence[Diagnostic], sources: Mapping[str, Source]) -> Json:
    """The whole plan of one run, with the keys of the contract."""
    p, row = chosen.problem.program, chosen.solution.rows[0]
    env = chosen.environment(row.codes, row.prices)
    estimate = _estimate(chosen, row, env) | vlm_parts.parts(chosen, row, env)
    asked = answers(chosen, row, env, estimate["memory"]["verdict"] == TIGHT)
    if estimate["memory"]["verdict"] == TIGHT:
        estimate["memory"]["certain"] = _certain(chosen, asked, row)
    plan = {
        "version": VERSION,
        "name": p.name,
        "model": p.model.name,
        "hf": p.model.hf,
        "family": p.model.family,
        "hardware": p.hardware.name,
        "gpus": chosen.problem.gpus,
        "phase": p.phase,
        "task": p.task,
        "target": {"bridge": p.target, **_stands_on(p)},
        "needs": _needs(p, env),
        "device": _device(p),
        "layout": _layout(chosen, env),
        "batch": {k: int(env[k]) for k in ("global_batch", *axes.BATCH, "seq")},
        "policy": _policy(p, env),
        "derived": {r.name: json_value(evaluate(r.expr, env)) for r in _applying(p, "derive", env)},
        "env": {r.name: json_value(evaluate(r.expr, env)) for r in _applying(p, "env", env)},
        "set": dict(p.sets),
        "estimate": estimate,
        "walls": walls.walls(chosen, row, env, estimate),
        "decisions": experiment.with_effects(_decisions(chosen, row, env), p),
        "advice": asked.advice,
        "allowed": [{"rule": a.rule, "because": a.because} for a in p.allows.values()],
        "measured": [_measured(r, env) for r in p.of("measured") if _resembles(r, env)],
        "diagnostics": [to_json(d, sources) for d in found],
        "alternatives": [_alternative(chosen, r, row) for r in chosen.solution.rows[1:]],
        **_rebalanced(chosen, row),
        "steps": [_step(chosen, g, r, row) for g, r in chosen.steps],
        "search": {"legal_layouts": chosen.solution.legal, "rows_priced": chosen.solution.priced},
        **_isolation(p),
        **sweep_table.member(p),
    }
    return compare_4k.compared({**plan, "experiment": experiment.experiment(plan, p)}, chosen)


def _isolation(p: Program) -> Json:
    """Whose variant this is, of what, and which value; nothing where the run isolates nothing."""
    if p.isolate is None:
        return {}
    axis, (variant, *_) = p.isolate.axis, p.isolate.variants
    of = p.name.removesuffix(f".{axis}_{variant.label}")
    return {"isolation": {"of": of, "axis": axis, "value": variant.label}}


def _stands_on(p: Program) -> Json:
    """The versions that the run states, by product."""
    return {n: versions.as_text(p.versions[v]) for n, v in versions.PRODUCTS.items() if v in p.versions}


def _needs(p: Program, env: Mapping[str, Any]) -> list[Json]:
    """The least versions that the laws ask of the container, each with its law."""
    bounds = ((r, bound(r.expr, env)) for r in p.of("require") if holds(r.when, env))
    return [{"product": b[0], "at_least": b[1], "rule": r.id, "because": r.because} for r, b in bounds if b]


def _device(p: Program) -> Json:
    """What the verifier answers when Bridge asks for the GPU; memory in bytes."""
    h = p.hardware
    capability = [int(h.capability), round(h.capability % 1 * 10)]
    nodes = {"gpus_per_node": h.gpus_per_node, "nvlink_domain": h.nvlink_domain}
    return {"name": h.device, "capability": capability, "memory": int(h.memory), "sms": h.sms, **nodes}


def _layout(chosen: Chosen, env: Mapping[str, Any]) -> Json:
    sizes = {n: int(env[n]) for n in axes.LAYOUT}
    p = chosen.problem.program
    layout = p.pipeline_layout or pipeline.layout_string(p.model, sizes["pp"], sizes["vpp"])
    return {**sizes, "sequence_parallel": bool(env["sequence_parallel"]), "pipeline_layout": layout}


def _policy(p: Program, env: Mapping[str, Any]) -> Json:
    policy = {n: json_value(env[n]) for n in axes.POLICY}
    frozen = {f"freeze_{w}": f"freeze_{w}" in p.vlm for w in ("vision", "projection", "language")}
    return {**policy, "data": p.data, "routing": p.routing, **frozen}


def _applying(p: Program, kind: str, env: Mapping[str, Any]) -> list[Rule]:
    """The first rule of each name whose condition holds, in the order of the files; none for what the run sets."""
    names = dict.fromkeys(r.name for r in p.of(kind) if r.name not in p.sets)
    found = (first_of(p.named(kind, n), env) for n in names)
    return [r for r in found if r is not None]


# ---------------------------------------------------------------- prices


def _estimate(chosen: Chosen, row: Row, env: Mapping[str, Any]) -> Json:
    breakdown = chosen.cost.time_report(row.codes)
    tokens = env["global_batch"] * env["seq"]
    per_gpu = tokens / row.step_time / chosen.problem.gpus
    return {
        "memory": {
            "peak_gib": row.peak_memory / GIB,
            "capacity_gib": chosen.problem.program.hardware.memory / GIB,
            "allowed_gib": chosen.problem.program.hardware.memory / GIB * (1 - env[LetName.HEADROOM]),
            "stages": [_stage(s) for s in chosen.cost.memory_report(row.codes)],
            "covers": chosen.cost.covers["memory"],
            **memory_verdict.memory_bounds(chosen.cost, row),
        },
        "step_time_s": row.step_time,
        "tokens_per_s_per_gpu": per_gpu,
        "model_tflops_per_gpu": float(chosen.cost.model_tflops_per_gpu(row.step_time, int(env["tp"]))),
        "breakdown": {k: float(v) for k, v in breakdown.items()},
        "covers": {"step_time": chosen.cost.covers["time"]},
    }


def _stage(s: StageMemory) -> Json:
    sizes = {f"{k}_gib": getattr(s, k) / GIB for k in (*KINDS, "total")}
    params = {"params": s.params + s.expert_params, "expert_params": s.expert_params}
    return {"stage": s.stage, "layers": dict(s.layers), **params, **sizes}


# ---------------------------------------------------------------- decisions


def _decisions(chosen: Chosen, row: Row, env: Mapping[str, Any]) -> list[Json]:
    near = neighbours.neighbours(chosen.compiled, chosen.cost, row)
    out = [
        _decision(chosen, a, env, row, [n for n in near if n.axis == a.name]) | _advised(chosen, a) for a in axes.AXES
    ]
    out += [_derived(chosen.problem.program, n, env) for n in axes.DERIVED]
    out += [_fixed(chosen, n, env) for n in ("seq", "global_batch")]
    for kind in ("derive", "env"):
        out += [
            _from_rule(r, json_value(evaluate(r.expr, env)), "derived")
            for r in _applying(chosen.problem.program, kind, env)
        ]
    return out


def _decision(chosen: Chosen, axis: axes.Axis, env: Mapping[str, Any], row: Row, near: list[Neighbour]) -> Json:
    origin = chosen.problem.origins[axis.name]
    alternatives = [{"value": axis.decode(n.code), "effect": neighbours.effect(n, row)} for n in near]
    value = json_value(env[axis.name])
    if isinstance(origin, Pin):
        varied = chosen.problem.program.isolate
        isolated = varied is not None and origin.span == varied.span
        return _entry(
            axis.name, value, "pinned", None, "varied by `isolate`" if isolated else "pinned by the run file", (), []
        )
    if len(chosen.problem.domains[axis.name]) > 1:
        return _entry(axis.name, value, "chosen", *_why_chosen(chosen, origin, alternatives), alternatives)
    if origin is not None:
        return _entry(axis.name, value, "defaulted", origin.id, origin.because, origin.cites, alternatives)
    return _entry(axis.name, value, "defaulted", None, "the only value that it may take", (), [])


def _advised(chosen: Chosen, axis: axes.Axis) -> Json:
    """Whether a value is advice (a rule's default or one of its candidates) rather than law or pin, and whose."""
    origin = chosen.problem.origins[axis.name]
    advice = isinstance(origin, Rule) and origin.kind in ("candidates", "default")
    return {"advice": advice, "among": origin.id if advice and isinstance(origin, Rule) else None}


def _why_chosen(
    chosen: Chosen, origin: Rule | None, alternatives: list[Json]
) -> tuple[str | None, str, tuple[str, ...]]:
    """A choice is made by the phase's ranking, among the candidates of a rule where one narrows them."""
    rank = chosen.compiled.ranks[0].rule
    others = [f"{said(a['value'])} is {a['effect']}" for a in alternatives[:2]]
    because = f"best by {rank.name}" + (f"; {'; '.join(others)}" if others else "")
    return rank.id, because, (*rank.cites, *(origin.cites if origin else ()))


def _entry(
    name: str,
    value: Any,
    origin: str,
    rule: str | None,
    because: str | None,
    cites: Sequence[str],
    alternatives: list[Json],
) -> Json:
    return {
        "name": name,
        "value": value,
        "origin": origin,
        "rule": rule,
        "because": because,
        "cite": list(dict.fromkeys(cites)),
        "alternatives": alternatives,
    }


def _derived(p: Program, name: str, env: Mapping[str, Any]) -> Json:
    wish = next((r for r in p.rules if r.wish and r.name == name), None)
    rule = next(r for r in p.of("let") if r.name == name)
    if wish is not None:
        return _entry(name, json_value(env[name]), "pinned", None, "pinned by the run file", (), [])
    return _from_rule(rule, json_value(env[name]), "derived")


def _fixed(chosen: Chosen, name: str, env: Mapping[str, Any]) -> Json:
    rule = chosen.problem.defaults[name]
    if rule is not None:
        return _from_rule(rule, json_value(env[name]), "defaulted")
    return _entry(name, json_value(env[name]), "pinned", None, "stated by the run file", (), [])


def _from_rule(r: Rule, value: Any, origin: str) -> Json:
    return _entry(r.name, value, origin, r.id, r.because, r.cites, [])


# ---------------------------------------------------------------- alternatives


def _unfollowed(chosen: Chosen, row: Row) -> set[str]:
    """The advice that a layout does not follow, by id."""
    return {law.rule.id for law in broken(chosen.compiled.advice, chosen.compiled.at(row))}


def _resembles(r: Rule, env: Mapping[str, Any]) -> bool:
    """Whether a published result is of a run like this one."""
    return not r.id.startswith(walls.BESIDE) and holds(r.when, env)


def _measured(r: Rule, env: Mapping[str, Any]) -> Json:
    return {"rule": r.id, "result": evaluate(r.expr, env), "because": r.because, "cite": list(r.cites)}


def _step(chosen: Chosen, gpus: int, other: Row, row: Row) -> Json:
    """What more GPUs would buy, and with which layout."""
    changes = _changes(chosen, other, row)
    return {
        "gpus": gpus,
        "step_time_s": other.step_time,
        "speedup": row.step_time / other.step_time,
        "changes": changes,
    }


def _changes(chosen: Chosen, other: Row, row: Row) -> Json:
    values = plain(other.codes, chosen.problem)
    return {a.name: json_value(values[a.name]) for a in axes.AXES if other.codes[a.name] != row.codes[a.name]}


def _certain(chosen: Chosen, asked: Answers, row: Row) -> Json:
    """The best layout that FITS, and what it costs; null where none does whose step is `within` the plan's."""
    found, other = None, asked.certain
    if other is not None:
        found = {"changes": _changes(chosen, other, row), "peak_gib": other.peak_memory / GIB}
        found |= {"step_time_s": other.step_time, "against_plan": against(other, row)}
    return {"within": asked.within, "layout": found}


def _rebalanced(chosen: Chosen, row: Row) -> Json:
    """The same layout with its layers in a balance of their own, where that is worth it."""
    found = rebalance.rebalanced(chosen, row)
    if found is None:
        return {}
    text, other = found
    return {"rebalanced": {**_alternative(chosen, other, row), "changes": {"pipeline_layout": text}}}


def _alternative(chosen: Chosen, other: Row, row: Row) -> Json:
    return {
        "changes": _changes(chosen, other, row),
        "against_advice": sorted(_unfollowed(chosen, other) - _unfollowed(chosen, row)),
        "step_time_s": other.step_time,
        "useful_tokens_per_s_per_gpu": vlm_parts.useful_rate(chosen, other),
        "peak_gib": other.peak_memory / GIB,
        "against_plan": against(other, row),
    }
