"""`moedsl verify` and `moedsl rehearse`: build recipes with the real Megatron Bridge, and train them shrunk."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve

from moedsl.bridge.verify import cases, client, environments
from moedsl.bridge.verify.cases import Report, from_plan, runs_in
from moedsl.bridge.verify.client import INSTALL, is_installed
from moedsl.cli import console
from moedsl.cli.console import compiled
from moedsl.compiler import Result as Compiled
from moedsl.compiler import compile_source
from moedsl.emit.artifact import files_of
from moedsl.facts.releases import BY_VERSION, default
from moedsl.lang import reader
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
        for file in a.files:
            made = _compiled(a, file, stack) if file.endswith(".moe") else [(f, f) for f in runs_in(file)]
            if made is None:
                return 1
            paths += made
        folders = [p for _, p in paths]
        if a.read_only:
            from moedsl.bridge.lint.run import against_plan

            reports: Sequence[Report] = [against_plan(path, a.gpu, a.world) for path in folders]
        else:
            reports = client.verify(folders, a.jobs, _Progress(len(folders)), a.gpu, a.world)
    reports = [evolve(r, file=name) for (name, _), r in zip(paths, reports, strict=True)]
    if a.json:
        console.print_json([r.to_json() for r in reports])
    else:
        console.print_text(lambda: "\n".join(cases.render(r) for r in reports))
    return int(not all(r.ok for r in reports))


def _compiled(a: Namespace, file: str, stack: ExitStack) -> list[tuple[str, str]] | None:
    """Compile a .moe file into a temporary folder for the verification; returns its runs with their folders."""
    source, found = reader.read(file)
    if source is None:
        console.refused(a, found)
        return None
    result = compile_source(source, progress=console.Progress(), target=a.target)
    if result.failed:
        console.refused(a, result.diagnostics, result.sources)
        return None
    console.say(result.diagnostics, result.sources)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-")))
    out: list[tuple[str, str]] = []
    for plan in result.plans:
        console.say(write_all(folder / plan.name, files_of(plan, source, result.library)), {})
        out.append((f"{file}:{plan.name}" if len(result.plans) > 1 else file, str(folder / plan.name)))
    return out


class _Progress:
    """Count reports on stderr; the first takes as long as importing Bridge."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        if is_installed():
            print("starting the real Megatron Bridge (about ten seconds)", file=sys.stderr, flush=True)

    def __call__(self, report: Report) -> None:
        self._done += 1
        print(f"  {self._done} of {self._total}: {report.verdict}", file=sys.stderr, flush=True)


Run = tuple[Chosen, Plan]
SHIPPED = {"ampere": "a100_80gb", "hopper": "h100", "blackwell": "b200", "rubin": "vr200"}
"""A GPU of the stdlib for each architecture."""


def rehearse(a: Namespace) -> int:
    """Train the shrunk plan with NVIDIA's own `pretrain()` on this machine. Exit 1 if it fails."""
    made, code = compiled(a, "plan")
    if made is None or code:
        return code
    wanted = [(c, p) for c, p in zip(made.chosen, made.plans, strict=True) if a.run in (None, p.name)]
    problem = _problem(a, made, wanted)
    if problem is not None:
        return console.refused(a, [problem])
    gpus = 0 if a.cpu or a.dryrun else available()
    absent = None if a.dryrun else lacking([c.problem.program.model for c, _ in wanted], gpus > 0)
    if absent is not None:
        return console.refused(a, [absent])
    small = [_shrunk(made, r, min(a.ranks, gpus or a.ranks), gpus > 0) for r in wanted]
    if a.dryrun:
        return _print(a, [Result(r, plan, "cpu") for (_, plan), r in zip(wanted, small, strict=True)])
    with ExitStack() as stack:
        base = Path(a.output or stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-rehearse-")))
        prepared, found = _prepared(a, wanted, small, base, gpus > 0)
        if found:
            return console.refused(a, found)
        for other in dict.fromkeys(in_place_of(plan.task) for _, plan in wanted):
            print(other, file=sys.stderr, flush=True) if other else None
        host = stack.enter_context(Gpus() if gpus else Ranks())
        results = {key: _one(a, one, host) for key, one in prepared.items()}
    each = zip(wanted, small, strict=True)
    return _print(a, [evolve(results[run_file(r)], rehearsal=r, plan=plan) for (_, plan), r in each])


def _problem(a: Namespace, made: Compiled, wanted: list[Run]) -> Diagnostic | None:
    if not wanted:
        names = ", ".join(p.name for p in made.plans)
        return error("rehearse.no_run", run=a.run, names=names)
    if not a.dryrun and not is_installed():
        return error(
            "rehearse.no_bridge:python", executable=sys.executable, split=sys.version.split()[0], install=INSTALL
        )
    other = next(
        (p.target.bridge for _, p in wanted if not environments.is_installed(BY_VERSION[p.target.bridge])), None
    )
    if not a.dryrun and other is not None:
        return error("rehearse.no_bridge:plan", other=other, minor=default().minor)
    return _unwritable(a.profile) if a.profile and not a.dryrun else None


def _unwritable(folder: str) -> Diagnostic | None:
    """Make the folder of the traces, or say why that is impossible, before anything is trained."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        return error("emit.unwritable:cannot-write", folder=folder, strerror=refused.strerror)
    return None


def _shrunk(made: Compiled, run: Run, ranks: int, on_gpus: bool) -> Rehearsal:
    """Replace hardware that the run file declares by the stdlib's of its architecture, for the small run's file."""
    chosen, plan = run
    own = made.library.hardware[plan.hardware].span
    shipped = own is not None and of_stdlib(own.file)
    instead = SHIPPED[chosen.problem.program.hardware.arch]
    return shrink(plan, chosen.problem.program.model, ranks, "" if shipped else instead, on_gpus)


def _prepared(
    a: Namespace, wanted: list[Run], small: list[Rehearsal], base: Path, on_gpus: bool
) -> tuple[dict[str, Prepared], list[Diagnostic]]:
    """Write each different rehearsal to disk, by its run file: runs that shrink to the same one share it."""
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
            return {}, made
        out[run_file(r)] = made
    return out, []


def _one(a: Namespace, prepared: Prepared, host: Ranks | Gpus) -> Result:
    r = prepared.rehearsal
    outcome = host.run(prepared, a.timeout, lambda text: print(f"  {r.name}: {text}", file=sys.stderr, flush=True))
    found = checks(prepared, outcome.answers) if outcome.failure is None else ()
    return Result(r, prepared.plan, host.device, prepared, outcome, found, diagnosis(prepared, outcome))


def _print(a: Namespace, results: list[Result]) -> int:
    """Print all results; returns the exit code."""
    if a.json:
        console.print_json({"version": 1, "runs": [to_json(r) for r in results]})
    else:
        console.print_text(lambda: "\n".join(text(r) for r in results), end="")
    return int(not all(r.ok for r in results))
