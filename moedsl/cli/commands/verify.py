"""`moedsl verify` and `moedsl rehearse`: build recipes with the real Megatron Bridge, and train them shrunk."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from attrs import evolve

from moedsl.bridge.verify import cases, client, environments
from moedsl.bridge.verify.cases import Report, from_plan, runs_in
from moedsl.bridge.verify.client import INSTALL, is_installed
from moedsl.cli import console
from moedsl.cli.terminal import Refused
from moedsl.compiler import Result as Compiled
from moedsl.emit.artifact import files_of
from moedsl.facts.releases import BY_VERSION, default
from moedsl.planner.plan import Plan
from moedsl.rehearse.launch import Gpus, Ranks, available, lacking
from moedsl.rehearse.prepare import Prepared, prepare, run_file
from moedsl.rehearse.result import Result, checks, diagnosis, text, to_json
from moedsl.rehearse.shrink import Rehearsal, in_place_of, shrink
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import write_all
from moedsl.support.source import of_stdlib


def verify(a: Namespace) -> int:
    """Ask the real Megatron Bridge. Exit 1 if it refuses a recipe or a plan differs."""
    with ExitStack() as stack:
        paths: list[tuple[str, str]] = []
        programs = [(file, None) for file in a.files] + ([("<text>", a.expression)] if a.expression is not None else [])
        if not programs:
            print("give a recipe, a folder that `compile` wrote, a .moe file, or -e 'TEXT'", file=sys.stderr)
            return 1
        for file, text in programs:
            if text is None and not file.endswith(".moe"):
                paths += [(f, f) for f in runs_in(file)]
                continue
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-")))
            asked = Namespace(**{**vars(a), "file": file, "expression": text, "like": ""})
            result = console.compiled(asked, "plan", asks="recipe")
            for plan in result.plans:
                console.say(write_all(folder / plan.name, files_of(plan, result.source, result.library)), {})
                name = f"{file}:{plan.name}" if len(result.plans) > 1 else file
                paths.append((name, str(folder / plan.name)))
        folders = [p for _, p in paths]
        if a.read_only:
            from moedsl.bridge.lint.run import against_plan

            reports: Sequence[Report] = [against_plan(path, a.gpu, a.world) for path in folders]
        else:
            if is_installed():
                print("starting the real Megatron Bridge (about ten seconds)", file=sys.stderr, flush=True)
            number = count(1)

            def progress(r: Report) -> None:
                console.tell(f"{next(number)} of {len(folders)}: {r.verdict}")

            reports = client.verify(folders, a.jobs, progress, a.gpu, a.world)
    reports = [evolve(r, file=name) for (name, _), r in zip(paths, reports, strict=True)]
    console.print_answer(a, [r.to_json() for r in reports], lambda: "\n".join(map(cases.render, reports)))
    return int(not all(r.ok for r in reports))


Run = tuple[Chosen, Plan]
SHIPPED = {"ampere": "a100_80gb", "hopper": "h100", "blackwell": "b200", "rubin": "vr200"}
"""A GPU of the stdlib for each architecture."""


def rehearse(a: Namespace) -> int:
    """Train the shrunk plan with NVIDIA's own `pretrain()` on this machine. Exit 1 if it fails."""
    made = console.compiled(a, "plan", asks="recipe")
    wanted = [(c, p) for c, p in zip(made.chosen, made.plans, strict=True) if a.run in (None, p.name)]
    console.stop_on(_problems(a, made, wanted))
    gpus = 0 if a.cpu or a.dryrun else available()
    if not a.dryrun and (absent := lacking([c.problem.program.model for c, _ in wanted], gpus > 0)):
        raise Refused([absent])
    small: list[Rehearsal] = []
    for chosen, plan in wanted:
        own = made.library.hardware[plan.hardware].span
        shipped = own is not None and of_stdlib(own.file)
        # if the run file declares its hardware itself, the small run uses the stdlib's GPU of that architecture
        instead = "" if shipped else SHIPPED[chosen.problem.program.hardware.arch]
        small.append(shrink(plan, chosen.problem.program.model, min(a.ranks, gpus or a.ranks), instead, gpus > 0))
    if a.dryrun:
        return _print(a, [Result(r, plan, "cpu") for (_, plan), r in zip(wanted, small, strict=True)])
    with ExitStack() as stack:
        base = Path(a.output or stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-rehearse-")))
        prepared = _prepared(a, wanted, small, base, gpus > 0)
        for other in dict.fromkeys(in_place_of(plan.task) for _, plan in wanted):
            print(other, file=sys.stderr, flush=True) if other else None
        host = stack.enter_context(Gpus() if gpus else Ranks())
        results: dict[str, Result] = {}
        for key, one in prepared.items():
            outcome = host.run(one, a.timeout, lambda text, r=one.rehearsal: console.tell(f"{r.name}: {text}"))
            found = checks(one, outcome.answers) if outcome.failure is None else ()
            results[key] = Result(one.rehearsal, one.plan, host.device, one, outcome, found, diagnosis(one, outcome))
    each = zip(wanted, small, strict=True)
    return _print(a, [evolve(results[run_file(r)], rehearsal=r, plan=plan) for (_, plan), r in each])


def _problems(a: Namespace, made: Compiled, wanted: Sequence[Run]) -> Iterator[Diagnostic]:
    """Yield why nothing can be rehearsed here. Also makes the folder of the traces, before anything is trained."""
    others = [p.target.bridge for _, p in wanted if not environments.is_installed(BY_VERSION[p.target.bridge])]
    if not wanted:
        yield error("rehearse.no_run", run=a.run, names=", ".join(p.name for p in made.plans))
    elif a.dryrun:
        return
    elif not is_installed():
        python = sys.version.split()[0]
        yield error("rehearse.no_bridge:python", executable=sys.executable, python=python, install=INSTALL)
    elif others:
        yield error("rehearse.no_bridge:plan", other=others[0], minor=default().minor)
    elif a.profile:
        try:
            Path(a.profile).mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            yield error("emit.unwritable:cannot-write", folder=a.profile, strerror=refused.strerror)


def _prepared(
    a: Namespace, wanted: list[Run], small: list[Rehearsal], base: Path, on_gpus: bool
) -> dict[str, Prepared]:
    """Write each distinct rehearsal to disk, by its run file; runs that shrink to the same file share one."""
    out: dict[str, Prepared] = {}
    for (chosen, plan), r in zip(wanted, small, strict=True):
        if run_file(r) in out:
            continue
        device, model = from_plan(plan), chosen.problem.program.model
        assert device is not None, "every plan has a device"
        folder = base / r.name if len(wanted) > 1 else base
        traces = str(Path(a.profile, r.name if len(wanted) > 1 else "").resolve()) if a.profile else ""
        made = prepare(r, model.hf, folder, a.iterations, device, on_gpus, traces)
        if isinstance(made, list):
            raise Refused(made)
        out[run_file(r)] = made
    return out


def _print(a: Namespace, results: list[Result]) -> int:
    """Print all results; return the exit code."""
    data = {"version": 1, "runs": [to_json(r) for r in results]}
    console.print_answer(a, data, lambda: "\n".join(map(text, results)), end="")
    return int(not all(r.ok for r in results))
