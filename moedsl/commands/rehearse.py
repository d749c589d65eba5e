"""`moedsl rehearse`: the plan, shrunk, through NVIDIA's own `pretrain()` on this machine. Exit 1 where it fails."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import evolve

from moedsl.bridge.client import INSTALL, is_installed
from moedsl.bridge.gpu import from_plan
from moedsl.choose import Chosen
from moedsl.commands import talk
from moedsl.commands.programs import compiled
from moedsl.compiler import Result as Compiled
from moedsl.diagnostics import Diagnostic, error
from moedsl.rehearse import failure, program
from moedsl.rehearse.checks import checks
from moedsl.rehearse.gpus import Gpus, available
from moedsl.rehearse.launch import Host
from moedsl.rehearse.prepare import Prepared, prepare
from moedsl.rehearse.result import Result, to_json
from moedsl.rehearse.shrink import Rehearsal, shrink
from moedsl.rehearse.text import text

Run = tuple[Chosen, dict[str, Any]]


def run(a: Namespace) -> int:
    made, code = compiled(a, "plan")
    if made is None or code:
        return code
    wanted = [(c, p) for c, p in zip(made.chosen, made.plans, strict=True) if a.run in (None, p["name"])]
    problem = _problem(a, made, wanted)
    if problem is not None:
        return _refused(a, [problem])
    gpus = 0 if a.cpu or a.dryrun else available()
    small = [_shrunk(made, r, min(a.ranks, gpus or a.ranks), gpus > 0) for r in wanted]
    results = _shown(wanted, small) if a.dryrun else _rehearsed(a, wanted, small, gpus)
    if isinstance(results[-1], list):
        return _refused(a, results[-1])
    found = [r for r in results if isinstance(r, Result)]
    _print(a, found)
    return int(not all(r.ok for r in found))


def _problem(a: Namespace, made: Compiled, wanted: list[Run]) -> Diagnostic | None:
    if not wanted:
        names = ", ".join(p["name"] for p in made.plans)
        return error("rehearse.no_run", f"no run is called {a.run}", help=f"--run takes one of {names}")
    if not a.dryrun and not is_installed():
        text = f"Megatron Bridge is not installed beside {sys.executable} (Python {sys.version.split()[0]})"
        return error("rehearse.no_bridge", text, help=f"{INSTALL}; --dryrun shows what would run")
    return None


def _refused(a: Namespace, found: list[Diagnostic]) -> int:
    if a.json:
        talk.print_json(talk.failed_json(found, {}))
    talk.say(found, {})
    return 1


def _shrunk(made: Compiled, run: Run, ranks: int, on_gpus: bool) -> Rehearsal:
    """Hardware that the run file declares is not there in the small run's file: another of its architecture is."""
    chosen, plan = run
    own = made.library.hardware[plan["hardware"]].span
    shipped = own is not None and own.file.startswith("stdlib/")
    instead = "h100" if chosen.problem.program.hardware.arch == "hopper" else "b200"
    return shrink(plan, chosen.problem.program.model, ranks, "" if shipped else instead, on_gpus)


def _shown(wanted: list[Run], small: list[Rehearsal]) -> list[Result | list[Diagnostic]]:
    return [Result(r, plan, "cpu") for (_, plan), r in zip(wanted, small, strict=True)]


def _rehearsed(a: Namespace, wanted: list[Run], small: list[Rehearsal], gpus: int) -> list[Result | list[Diagnostic]]:
    """A result for each run, or diagnostics in the end; runs with the same rehearsal share one."""
    out: list[Result | list[Diagnostic]] = []
    known: dict[str, Result] = {}
    with ExitStack() as stack:
        host = stack.enter_context(Gpus() if gpus else Host())
        base = Path(a.output or stack.enter_context(tempfile.TemporaryDirectory(prefix="moedsl-rehearse-")))
        for (chosen, plan), r in zip(wanted, small, strict=True):
            key = program.text(r)
            folder = base / r.name if len(wanted) > 1 else base
            if key not in known:
                device = from_plan(plan)
                assert device is not None, "every plan has a device"
                model = chosen.problem.program.model
                prepared = prepare(r, (model.hf, model.family), folder, a.iterations, device, bool(gpus))
                if isinstance(prepared, list):
                    return [*out, prepared]
                known[key] = _one(a, prepared, plan, host)
            out.append(evolve(known[key], rehearsal=r, plan=plan))
    return out


def _one(a: Namespace, prepared: Prepared, plan: dict[str, Any], host: Host | Gpus) -> Result:
    name = prepared.rehearsal.name
    outcome = host.run(prepared, a.timeout, lambda text: print(f"  {name}: {text}", file=sys.stderr, flush=True))
    answers = checks(prepared, outcome.answers) if outcome.failure is None else ()
    diagnosis = failure.diagnosis(prepared, outcome)
    return Result(prepared.rehearsal, plan, host.device, prepared, outcome, answers, diagnosis)


def _print(a: Namespace, results: list[Result]) -> None:
    data = [to_json(r) for r in results]
    if a.json:
        talk.print_json({"version": 1, "runs": data})
        return
    for one in data:
        print(text(one), end="\n" if one is not data[-1] else "")
        said = one["trained"] and one["trained"]["failure"] and one["trained"]["failure"]["diagnosis"]
        if said:
            print("\n" + failure.text(said), end="")
