"""`moedsl compile`: write the recipe, its overrides, the plan and the lock, all or none."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from attrs import evolve, frozen

from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.cli.printing import prints_notes, show
from moedsl.compiler import Result
from moedsl.emit.artifact import files_of_runs
from moedsl.planner.plan import Plan
from moedsl.planner.text import Command
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import left_over, write_all
from moedsl.support.foreign import text_of


def compile(a: Namespace) -> int:
    result, code = compiled(a, a.stop_after or "plan", notes=prints_notes(a))
    if result is None or code:
        return code
    if a.stop_after is None:
        code = _write(a, result)
    if not code:
        show(a, result, _next(a, result))
    return code


def _next(a: Namespace, result: Result) -> list[Command]:
    """The commands that come after the files are written."""
    plan = result.plans[0]
    recipe = Path(a.output) / (plan.name if len(result.plans) > 1 else "") / "recipe.py"
    ranks = min(plan.gpus, plan.device.gpus_per_node)
    verify = (f"moedsl verify {quote(a.output)}", "ask the real Megatron Bridge")
    if a.emit != "launch":
        return [verify, (f"torchrun --nproc-per-node {ranks} {quote(str(recipe))}", "train, on every node")]
    commands: list[Command] = [verify]
    if any(p.hub_weights is not None for p in result.plans):  # a job of launch.py expects them to be there
        program = f"-e {quote(a.expression)}" if a.expression is not None else quote(a.file)
        command = f"moedsl weights import {program} --cluster {quote(a.cluster or '')}".removesuffix(" ''")
        commands.append((command, "first, unless the weights are there"))
    return [*commands, (f"python {quote(str(recipe.with_name('launch.py')))}", "submit it to the cluster")]


@frozen
class _Launches:
    """What is written for a launch."""

    plans: tuple[Plan, ...]
    """The plans, with their weights where the cluster has them."""
    files: Mapping[str, Mapping[str, str]]
    """launch.py and job.sh of each run by its name."""
    diagnostics: list[Diagnostic]


def _launches(a: Namespace, result: Result) -> _Launches:
    """Make the files of a launch, if requested."""
    if a.emit != "launch":
        return _Launches(result.plans, {}, [])
    from moedsl.launch import dryrun, preflight, script
    from moedsl.launch.derive import derive
    from moedsl.rules.check import cluster_rules

    cluster, diagnostics = cluster_rules.choose(result.library, a.cluster or "")
    if cluster is None:
        return _Launches(result.plans, {}, diagnostics)
    plans = tuple(script.with_imported_weights(p, cluster) for p in result.plans)
    derived = [(p, *derive(p, cluster, result.library)) for p in plans]
    diagnostics += [d for _, _, more in derived for d in more if d not in diagnostics]
    for refused in (preflight.unmounted(plans, cluster), *(script.weights_refusals(p, cluster) for p in plans)):
        warnings = [evolve(d, severity="warning") for d in refused]
        diagnostics += [d for d in warnings if d not in diagnostics]
    files = {p.name: dryrun.emitted_files(made, cluster, p) for p, made, _ in derived if made is not None}
    return _Launches(plans, files, diagnostics)


def _write(a: Namespace, result: Result) -> int:
    """Write one folder, or a folder below it for each of several runs: all or none."""
    folder = Path(a.output)
    launches = _launches(a, result)
    diagnostics = launches.diagnostics
    files = files_of_runs(launches.plans, result.source, result.library, launches.files)
    if any(d.is_error for d in diagnostics):
        return console.refused(a, diagnostics, result.sources)
    console.say(diagnostics, result.sources)
    before = {where: _model_in(where) for where in dict.fromkeys((folder / name).parent for name in files)}
    old = left_over(folder, files)
    diagnostics = write_all(folder, files, a.force, old.ours)
    if diagnostics:
        return console.refused(a, diagnostics)
    console.say(old.diagnostics(), {})
    for where, model in before.items():
        others = f", which held a plan of {model}" if model not in (None, _model_in(where)) else ""
        print(f"wrote {where}/{others}", file=sys.stderr)
    return 0


def _model_in(folder: Path) -> str | None:
    """The model of the plan in a folder; None if there is no plan."""
    try:
        plan = foreign.load_json(text_of(folder / "plan.json"))
    except (OSError, ValueError):
        return None
    return plan.get("model") if isinstance(plan, dict) else None
