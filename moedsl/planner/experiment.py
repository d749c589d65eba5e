"""The experiment of a plan: the values that two runs must share to compare their losses, with a fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import fields, frozen

from moedsl.facts import axes, fine_tuning
from moedsl.facts.facts import Model, Vision
from moedsl.facts.fields import path_of
from moedsl.planner.decisions import Decision
from moedsl.planner.layout import Batch, Layout, Policy
from moedsl.rules.check.program import Program
from moedsl.rules.rule import BENCHMARK, EXECUTION, EXPERIMENT, WORDS, Effects
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, note
from moedsl.support.json_form import JsonForm
from moedsl.support.text import wrapped


@frozen
class Benchmark(JsonForm):
    """A value that makes the run a benchmark: its trained model is useless."""

    name: str
    value: Any
    because: str | None


@frozen
class Experiment(JsonForm):
    """What two runs must share for their losses to be compared."""

    values: Mapping[str, Any]
    fingerprint: str
    """Hash of the values and of the architecture."""
    origins: Mapping[str, str]
    """pinned, defaulted, derived or chosen, by name."""
    benchmark: tuple[Benchmark, ...]


LENGTH = 12
"""Hexadecimal digits of a fingerprint, enough to avoid collisions within a project."""


def values(p: Program, gpus: int, words: Mapping[str, Any], derived: Mapping[str, Any]) -> dict[str, Any]:
    """Return every value of a run that affects more than its execution, by keyword or by Bridge field.

    `words` are the values of layout, batch and policy. A field that the user sets is included if no `effect` rule names
    it: it may change what the model learns.
    """
    effects, method = p.effects, {"adapter": p.adapter.method} if p.adapter else {}
    run = {"model": p.model.name, "task": p.task, **method, "phase": p.phase, "gpus": gpus, "hardware": p.hardware.name}
    named = run | {n: v for n, v in words.items() if n in WORDS} | {"target": p.target}
    frozen = {n for n, v in named.items() if n.startswith("freeze_") and not v}
    out = {n: v for n, v in named.items() if n not in frozen and effects.word(n, v) in (EXPERIMENT, BENCHMARK)}
    call = fine_tuning.call(p.adapter, p.model.vision is not None) if p.adapter else None
    trained = {f"peft.{n}": v for n, v in call.kwargs.items()} if call else {}
    fields = {path_of(n): v for n, v in derived.items()} | trained | dict(p.sets)
    return out | {n: v for n, v in fields.items() if effects.field(n) != EXECUTION}


def packing(c: Chosen) -> dict[str, bool]:
    """Return whether the run packs its samples, by keyword; empty if it reads none."""
    return {"pack": c.problem.values["pack"]} if c.problem.program.samples else {}


def settings(*sections: Layout | Batch | Policy) -> dict[str, Any]:
    """Return the values in sections of a plan whose names are keywords of the language."""
    return {n: v for s in sections for n, v in s.to_json().items() if n in WORDS}


def fingerprint(values: Mapping[str, Any], facts: str = "") -> str:
    """Hash the values and the model's facts, with the same result on every machine."""
    text = json.dumps([facts, dict(values)], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def facts_of(model: Model) -> str:
    """Write the architecture as text: models with the same name but different facts are different experiments.

    Defaults are left out, so that adding a fact to the language changes no fingerprint of models that do not state it.
    """
    return json.dumps(_stated(model), sort_keys=True, default=_stated)


def _stated(facts: Model | Vision) -> dict[str, Any]:
    every = ((f, getattr(facts, f.name)) for f in fields(facts.__class__))
    return {f.name: value for f, value in every if f.name != "revision" and value != f.default}


def experiment(
    c: Chosen, words: Mapping[str, Any], derived: Mapping[str, Any], decisions: Sequence[Decision]
) -> Experiment:
    """Build a plan's experiment: values, fingerprint, origins, and the values that make it a benchmark."""
    p, effects = c.problem.program, c.problem.program.effects
    found = values(p, c.problem.gpus, {**words, **packing(c)}, derived)
    decided = {d.name: d.origin for d in decisions}
    # `precision fp8` stands for a different format on each GPU: rules choose this GPU's
    pinned = dict.fromkeys((*p.sets, *(["precision"] if p.precision not in ("", "auto") else [])), "pinned")
    stated, origins = dict.fromkeys((*p.spans, *p.vlm), "pinned"), dict[str, str]()
    for n in found:
        decision = pinned.get(n) or decided.get(n) or decided.get(n.removeprefix("model."))
        origins[n] = decision or stated.get(n, "defaulted")
    return Experiment(found, fingerprint(found, facts_of(p.model)), origins, benchmarks(found, effects))


def benchmarks(values: Mapping[str, Any], effects: Effects) -> tuple[Benchmark, ...]:
    """List the values that make a run a benchmark, with reasons."""
    return tuple(Benchmark(n, v, effects.reason(n, v)) for n, v in values.items() if effects.is_benchmark(n, v))


def notes(chosen: Sequence[Chosen]) -> Iterator[Diagnostic]:
    """Note what affects a comparison of losses: experiment values that moedsl chose, and sweeps over such values."""
    sweeps: dict[str, list[Chosen]] = {}
    for c in chosen:
        p, domains, layout = c.problem.program, c.problem.domains, c.solution.rows[0].layout
        effects = p.effects
        if p.sweep is not None:
            sweeps.setdefault(p.name.rsplit(f".{p.sweep[0]}_", 1)[0], []).append(c)
        if p.precision == "auto" and "precision" not in p.pins:
            others = [str(axes.BY_NAME["precision"].decode(int(v))) for v in domains["precision"]]
            among = f"the fastest of {', '.join(others)}" if len(others) > 1 else f"the only precision in {p.phase}"
            yield note("plan.precision_auto", p.spans["precision"], value=layout["precision"], among=among)
        for name, value in layout.items():
            if len(domains[name]) > 1 and name != "precision" and effects.word(name, value) == EXPERIMENT:
                words = {"axis": name, "value": axes.show(value), "reason": effects.reason(name, value)}
                yield note("plan.experiment_chosen", p.spans["hardware"], **words)
    for runs in sweeps.values():
        yield from _sweep_changes(runs)


def _sweep_changes(runs: Sequence[Chosen]) -> Iterator[Diagnostic]:
    """Note a sweep whose runs are different experiments, with the values that differ."""
    p = runs[0].problem.program
    assert p.sweep is not None
    effects = p.effects
    sizes = ({n: c.problem.values[n] for n in ("seq", "global_batch")} for c in runs)
    values = [{**size, **c.solution.rows[0].layout} for size, c in zip(sizes, runs, strict=True)]
    differing: dict[str, list[str]] = {}
    for name in values[0]:
        shown = list(dict.fromkeys(axes.show(v[name]) for v in values))
        if len(shown) > 1 and any(effects.word(name, v[name]) == EXPERIMENT for v in values):
            differing[name] = shown
    if p.sweep[0] == "gpus" and p.batch is None:
        batch = runs[0].problem.global_batch
        yield note("plan.batch_held", p.spans["sweep"], batch=batch, batch_gpus=p.batch_gpus)
    if differing:
        which = "; ".join(f"{n} {', '.join(v)}" for n, v in differing.items())
        yield note("plan.sweep_experiment", p.spans["sweep"], which=which)


def text(e: Experiment) -> str:
    """Print the values to keep equal between runs, and those that make this run a benchmark."""
    lines = [f"Experiment {e.fingerprint}: keep these equal between runs that you compare", wrapped(summary(e))]
    lines += [wrapped(f"from defaults and rules, not from the run file: {unstated(e)}")] if unstated(e) else []
    lines += [wrapped(f"BENCHMARK ONLY, {b.name} {axes.show(b.value)}: {b.because}") for b in e.benchmark]
    return "\n".join(lines)


def summary(e: Experiment) -> str:
    """Write the experiment in one line: the values to keep between runs."""
    v = dict(e.values)
    batch = f"batch {v.pop('global_batch', '?')} x {v.pop('seq', '?')} tokens"
    head = [str(v.pop("model", "")), str(v.pop("task", "")), batch, str(v.pop("precision", ""))]
    rest = [n if value is True else f"{n.removeprefix('model.')} {axes.show(value)}" for n, value in v.items()]
    return ", ".join(x for x in (*head, *rest) if x)


def unstated(e: Experiment) -> str:
    """Write the values that come from defaults and rules, not from the run file, in one line."""
    names = [n for n, origin in e.origins.items() if origin in ("defaulted", "derived")]
    return ", ".join(f"{n.removeprefix('model.')} {axes.show(e.values[n])}" for n in names)
