"""`moedsl compile`: write the recipe, its overrides, the plan and the lock, all or none."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from attrs import evolve

from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.cli.printing import prints_notes, show
from moedsl.cli.terminal import Refused
from moedsl.compiler import Result
from moedsl.emit import megatron_lm
from moedsl.emit.artifact import files_of_runs
from moedsl.planner.text import Command
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import left_over, write_all
from moedsl.support.foreign import text_of


def compile(a: Namespace) -> int:
    result = compiled(a, a.stop_after or "plan", prints_notes(a), asks="plans" if a.stop_after else "recipe")
    if a.stop_after is None:
        _write(a, result)
    # The commands to run after the files are written
    plan = result.plans[0]
    recipe = Path(a.output) / (plan.name if len(result.plans) > 1 else "") / "recipe.py"
    ranks = min(plan.gpus, plan.device.gpus_per_node)
    commands: list[Command] = [(f"moedsl verify {quote(a.output)}", "ask the real Megatron Bridge")]
    if a.backend == "megatron_lm":
        script = f"bash {quote(str(recipe.with_name('pretrain.sh')))}"
        commands.append((f"MEGATRON_LM=FOLDER {script}", "train with Megatron-LM, on every node"))
    elif a.emit != "launch":
        commands.append((f"torchrun --nproc-per-node {ranks} {quote(str(recipe))}", "train, on every node"))
    else:
        if any(p.hub_weights is not None for p in result.plans):  # a job of launch.py expects them to be there
            program = f"-e {quote(a.expression)}" if a.expression is not None else quote(a.file)
            command = f"moedsl weights import {program} --cluster {quote(a.cluster or '')}".removesuffix(" ''")
            commands.append((command, "first, unless the weights are there"))
        commands.append((f"python {quote(str(recipe.with_name('launch.py')))}", "submit it to the cluster"))
    show(a, result, commands)
    return 0


def _write(a: Namespace, result: Result) -> None:
    """Write one folder, or a folder below it for each of several runs: all or none."""
    folder, plans = Path(a.output), result.plans
    launches: dict[str, Mapping[str, str]] = {}  # further files of each run by its name
    diagnostics: list[Diagnostic] = []
    if a.emit == "launch":
        from moedsl.launch import dryrun, preflight, script
        from moedsl.launch.derive import derive
        from moedsl.rules.check import cluster_rules

        cluster, diagnostics = cluster_rules.choose(result.library, a.cluster or "")
        cluster = console.read(cluster, diagnostics)
        plans = tuple(script.with_imported_weights(p, cluster) for p in plans)
        for plan in plans:
            made, more = derive(plan, cluster, result.library)
            diagnostics += more
            launches |= {plan.name: dryrun.emitted_files(made, cluster, plan)} if made else {}
        refused = [
            *preflight.unmounted(plans, cluster),
            *(d for p in plans for d in script.weights_refusals(p, cluster)),
        ]
        diagnostics += [evolve(d, severity="warning") for d in refused]
        diagnostics = [d for i, d in enumerate(diagnostics) if d not in diagnostics[:i]]
    if a.backend == "megatron_lm":
        for plan, chosen in zip(plans, result.chosen, strict=True):
            model = chosen.problem.program.model
            diagnostics += (refused := megatron_lm.refusals(plan, model))
            text = {} if refused else {"pretrain.sh": megatron_lm.script_text(plan, model)}
            launches[plan.name] = {**launches.get(plan.name, {}), **text}
    files = files_of_runs(plans, result.source, result.library, launches)
    if any(d.is_error for d in diagnostics):
        raise Refused(diagnostics, result.sources)
    console.say(diagnostics, result.sources)
    before = {where: _model_in(where) for where in dict.fromkeys((folder / name).parent for name in files)}
    old = left_over(folder, files)
    console.stop_on(write_all(folder, files, a.force, old.ours))
    console.say(old.diagnostics(), {})
    for where, model in before.items():
        others = f", which held a plan of {model}" if model not in (None, _model_in(where)) else ""
        print(f"wrote {where}/{others}", file=sys.stderr)


def _model_in(folder: Path) -> str | None:
    """Return the model of the plan in a folder; None if there is no plan."""
    try:
        plan = foreign.load_json(text_of(folder / "plan.json"))
    except (OSError, ValueError):
        return None
    return plan.get("model") if isinstance(plan, dict) else None
