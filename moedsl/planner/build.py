"""Build the plan from the chosen layout, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.cost.estimate import TIGHT, bounds
from moedsl.facts.axes import json_value
from moedsl.planner import advice, checkpoints, container, decisions, estimate, experiment, layout, other_layouts, walls
from moedsl.planner.decisions import Allowed, Measured, applying
from moedsl.planner.ladder import RanksBy
from moedsl.planner.other_layouts import MoreGpus
from moedsl.planner.plan import VERSION, Member, Plan, Search
from moedsl.planner.simpler import simpler
from moedsl.planner.training import build as training_of
from moedsl.planner.training import recipe_name
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, holds
from moedsl.solver import neighbours
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.source import Source
from moedsl.support.text import CLOSE


def make_plan(
    chosen: Chosen, diagnostics: Sequence[Diagnostic], sources: Mapping[str, Source], whole: bool = True
) -> Plan:
    """Build one run's plan; only a `whole` plan has advice and the comparison with 4K, which a page does not print."""
    p, gpus, (row, *next_best) = chosen.problem.program, chosen.problem.gpus, chosen.solution.rows
    env = chosen.environment(row.codes, row.prices)
    peaks, rank = bounds(chosen.cost, row.codes), chosen.compiled.ranks[0].rule
    advised, certain = advice.judge(chosen, row, env, peaks.verdict == TIGHT, whole)
    # Price each other value of an axis once, for both the decisions and the fixes of the walls
    own, fixes = neighbours.around(chosen.compiled, row), walls.tried(chosen, env)
    judged = neighbours.judged(chosen.compiled, chosen.cost, row, dict.fromkeys([*own, *fixes]))
    each = {(n.axis, n.code): n for n in judged}
    near, tried = ([each[a.name, v] for a, v in pairs if (a.name, v) in each] for pairs in (own, fixes))
    meshes, batch, policy = layout.layout(p, env), layout.batch(env), layout.policy(p, env)
    recipe = other_layouts.shipped(chosen, row, meshes.pipeline_layout)
    free = other_layouts.free_choices(chosen, row)
    # Layouts that may be as fast as the plan within the estimate's error
    compared = [(n.codes, n.step_time) for n in near if n.refused_by is None]
    if recipe and recipe.step_time_s:
        compared.append((other_layouts.shipped_codes(recipe.layout, row), recipe.step_time_s))
    compared += [(r.codes, r.step_time) for r in (*next_best, *free.values())]
    known = estimate.known(chosen.cost, row, compared)
    if recipe and recipe.step_time_s and recipe.changes:
        close = CLOSE * known.is_close(other_layouts.shipped_codes(recipe.layout, row))
        recipe = evolve(recipe, against_plan=f"{close}{recipe.against_plan}")
    near = [evolve(n, close=known.is_close(n.codes)) for n in near]
    held = estimate.memory_of(chosen, row, peaks, certain, other_layouts.faster(chosen, row))
    estimated = estimate.build(chosen, row, env, held, known.interval)
    derived = _values(p, "derive", env)
    decided = decisions.build(chosen, env, decisions.other_values(chosen, row, near, free, known))
    name = recipe_name(p.model.name, p.task, gpus, p.hardware.name, policy.precision)
    twin = other_layouts.twin(p, gpus, row.codes, batch) if whole else None
    return Plan(
        version=VERSION,
        name=p.name,
        model=p.model.name,
        hf=p.model.hf,
        revision=p.model.revision or None,
        family=p.model.family,
        hardware=p.hardware.name,
        gpus=gpus,
        phase=p.phase,
        task=p.task,
        target=container.target(p),
        needs=container.needs(p, env),
        device=container.device(p),
        layout=meshes,
        batch=evolve(batch, against_4k=other_layouts.against_4k(twin, meshes, batch)) if twin else batch,
        policy=policy,
        samples=layout.samples(p, env),
        adapter=layout.adapter(p),
        derived=derived,
        env=_values(p, "env", env),
        set=dict(p.sets),
        hub_weights=p.hub_weights,
        estimate=estimated,
        checkpoints=checkpoints.build(chosen, row, env, derived),
        training=training_of(name, p.task, batch, policy, derived, p.sets, decided),
        racks=layout.racks(meshes.to_json(), gpus, p.hardware, p.site),
        walls=walls.build(chosen, row, env, estimated, tried),
        decisions=decided,
        advice=advised,
        allowed=tuple(Allowed(a.rule, a.because) for a in p.allows.values()),
        measured=tuple(
            Measured(r.id, evaluate(r.expr, env), r.because, r.cites)
            for r in p.of("measured")
            if not r.id.startswith(walls.OWN_BLOCKS) and holds(r.when, env)
        ),
        diagnostics=[to_json(d, sources) for d in diagnostics],
        alternatives=other_layouts.alternatives(chosen, next_best, row, known),
        rebalanced=other_layouts.rebalanced(chosen, row),
        simpler=simpler(chosen, row),
        shipped=recipe,
        steps=tuple(
            MoreGpus(n, r.step_time, row.step_time / r.step_time, r.changes(row.codes)) for n, r in chosen.steps
        ),
        search=Search(chosen.solution.legal, chosen.solution.priced, RanksBy(rank.id, rank.because, rank.cites)),
        isolation=p.isolate and Member.of_run(p.name, p.isolate.axis, p.isolate.variants[0].label),
        sweep=p.sweep and Member.of_run(p.name, p.sweep[0], p.name.rpartition(f".{p.sweep[0]}_")[2]),
        experiment=experiment.experiment(chosen, experiment.settings(batch, policy, meshes), derived, decided),
        against_4k=other_layouts.compared_4k(twin, row.codes) if twin else None,
    )


def variables(chosen: Chosen) -> dict[str, Any]:
    """Return the environment variables of a run's ranks, without building the rest of its plan."""
    row = chosen.solution.rows[0]
    return _values(chosen.problem.program, "env", chosen.environment(row.codes, row.prices))


def _values(p: Program, kind: str, env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that rules of a kind give, by name: Bridge fields (derive) or environment variables (env)."""
    return {r.name: json_value(evaluate(r.expr, env)) for r in applying(p, kind, env)}
