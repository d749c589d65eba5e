"""`moedsl next` and `moedsl tune`: the next experiment from what was measured, and the loop by itself."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from moedsl.cli import console
from moedsl.cli.commands import launch
from moedsl.compiler import load_stdlib
from moedsl.lang import reader
from moedsl.launch import follow
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_rules
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.results.gather import Run, disambiguate, experiment_folder, gather, job_logs
from moedsl.runs.results.measure import BATCH, remarks, remedy, warning_texts
from moedsl.runs.tune import candidates as proposals
from moedsl.runs.tune import loop, run_file
from moedsl.runs.tune.candidates import Tried
from moedsl.runs.tune.loop import LOST, Ends
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import refusals
from moedsl.support.text import wrapped

EXPERIMENT = "another experiment"
"""Why a run is left out that has other values of what the loss depends on."""


@frozen
class _Seen:
    """A run that was measured: what it says of its layout, if anything, and what must be known of it."""

    tried: Tried | None
    remarks: Sequence[str]


def next_(a: Namespace) -> int:
    """Propose the next experiment. Exit 1 if an input is wrong or nothing was measured."""
    if a.output and os.path.lexists(a.output):
        text, help = f"{a.output} exists, and `next` overwrites nothing", "name another file with -o"
        return console.refused(a, [error("emit.exists", text, help=help)])
    if a.output and (unwritable := refusals(Path(a.output), "next")):
        return console.refused(a, unwritable)
    gathered, found = gather(a.paths)
    runs = [r for r in disambiguate(gathered) if r.plan]
    made = [] if found else [_tried(r) for r in runs]
    wrong = [*found, *(d for m in made if isinstance(m, list) for d in m)]
    seen = [(r, m) for r, m in zip(runs, made, strict=False) if isinstance(m, _Seen)]
    done = [(r, m.tried) for r, m in seen if m.tried]
    notes = [f"{r.name}: {text}" for r, m in seen for text in m.remarks]
    if not wrong and not done:
        first = "`moedsl run` writes a plan.json for each job; `moedsl plan run.moe` is the first experiment"
        text = f"no run with a plan has measured or failed in {' '.join(a.paths)}"
        wrong = [error("tune.nothing", "; ".join([text, *notes]), help=() if notes else first)]
    if wrong:
        return console.refused(a, wrong)
    base = _base(a.run, done)
    if not isinstance(base, run_file.Base):
        return console.refused(a, base)
    return _propose(a, base, done, notes)


def _propose(a: Namespace, base: run_file.Base, done: Sequence[tuple[Run, Tried]], notes: Sequence[str]) -> int:
    """Print the next experiment, and write its run file if requested."""
    each = [(t, _other(r.plan, base.plan) if r.plan else None) for r, t in done]
    same, left = [t for t, why in each if why is None], [(t.name, why) for t, why in each if why]
    if not same:
        here = f"the experiment of {base.source.name} on {run_file.machines(base.plan)}"
        reasons = "; ".join(f"{name}: {why}" for name, why in left)
        return console.refused(a, [error("tune.nothing:all-other-next", experiment=here, reasons=reasons)])
    found = proposals.candidates(base.chosen, base.start, same)
    data = {
        "version": 1,
        **proposals.report(base.chosen, base.start, same, found, a.stop),
        "other_experiments": [name for name, why in left if why == EXPERIMENT],
        "other_machines": [name for name, why in left if why != EXPERIMENT],
        "remarks": [*notes],
    }
    if a.json:
        console.print_json(data)
    else:
        left_out = "".join(f"left out, {why}: {name}\n" for name, why in left)
        console.print_text(lambda: proposals.text(data) + left_out, end="")
        console.print_text(lambda: "".join(f"{wrapped(note, '', '  ', width=110)}\n" for note in notes), end="")
    if not a.output or not data["next"]:
        return 0
    made = run_file.with_layout(base, found[0].codes, "The next experiment, by `moedsl next`")
    if isinstance(made, Diagnostic):
        return console.refused(a, [made])
    return console.written(Path(a.output), made.text, "")


def _other(plan: Plan, base: Plan) -> str | None:
    """Say why the step of a run says nothing of the layouts of another plan, if so."""
    if plan.experiment.fingerprint != base.experiment.fingerprint:
        return EXPERIMENT
    there, here = run_file.machines(plan), run_file.machines(base)
    return f"ran on {there}, not on {here}" if there != here else None


def _base(file: str | None, done: Sequence[tuple[Run, Tried]]) -> run_file.Base | list[Diagnostic]:
    """The program that is varied: of `--run`, else of the plan of the fastest run."""
    if file is not None:
        source, found = reader.read(file)
        return [*found] if source is None else run_file.base(source)
    fastest = proposals.best([t for _, t in done])
    plans = [r.plan for r, t in done if fastest is None or t is fastest]
    assert plans[0] is not None  # runs without a plan are left out
    made = run_file.base(run_file.of_plan(plans[0]))
    if not isinstance(made, run_file.Base) or made.plan.experiment.fingerprint != plans[0].experiment.fingerprint:
        return [error("tune.experiment:program", plan=plans[0].name)]
    return made


def _tried(r: Run) -> _Seen | list[Diagnostic]:
    """Measure one run. With another batch than its plan's it is of another experiment."""
    assert r.plan is not None
    made = priced(r.plan)
    if not isinstance(made, Measured):
        return [*made]
    measured = proposals.row(r, load_stdlib())
    if warning_texts(measured, (BATCH,)):
        return _Seen(None, remarks(measured))
    seen = proposals.tried(r.name, made.row, made.cost, measured)
    nothing = [] if seen else [f"{measured['status']}, {measured['cause']}: {remedy(measured)}"]
    return _Seen(seen, [*remarks(measured), *nothing])


def tune(a: Namespace) -> int:
    """Run the loop by itself. Exit 1 if a job cannot be submitted or measured."""
    source, found = reader.read(a.file)
    base = run_file.base(source) if source else [*found]
    if not isinstance(base, run_file.Base):
        return console.refused(a, base, {source.name: source} if source else {})
    wrong = _refused(a, base)
    folder = Path(a.output or f"{Path(a.file).stem}_tune")
    opened = wrong or loop.opened(folder, base.plan.experiment.fingerprint, run_file.machines(base.plan))
    if isinstance(opened, Diagnostic):
        return console.refused(a, [opened])
    try:
        ended = loop.tune(base, opened, Cluster(a.cluster, a.no_preflight), Ends(a.budget, a.stop), _say)
    except KeyboardInterrupt:
        print("\nthe job goes on without this process; the same command goes on from here", file=sys.stderr)
        return 130
    if isinstance(ended, Diagnostic):
        return console.refused(a, [ended])
    if not ended:
        print((opened.folder / loop.FILE).read_text(encoding="utf-8") if a.json else opened.table, end="")
    return ended


def _refused(a: Namespace, base: run_file.Base) -> Diagnostic | None:
    """Say why the cluster cannot run jobs one after the other from here."""
    cluster, found = cluster_rules.choose(base.library, a.cluster)
    if cluster is None:
        return found[0]
    if cluster.executor == "kubeflow":
        return follow.no_kubectl()
    if cluster.executor != "local":
        return None
    return error("tune.local")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@frozen
class Cluster:
    """Jobs of `moedsl run` on one cluster."""

    name: str
    no_preflight: bool

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        """Submit as `moedsl run FILE --cluster --detach` does."""
        options = {"expression": None, "like": "", "run": None, "dryrun": False, "json": False, "sequential": False,
                   "exclude_bad": False}  # fmt: skip
        words = Namespace(file=str(file), cluster=self.name, detach=True, no_preflight=self.no_preflight, **options)
        return launch.run(words, named)

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        """Wait as `moedsl logs ID -f` does, and fetch the logs. A connection that is lost is made again."""
        from moedsl.launch import nemo

        for pause in nemo.PAUSES_S:
            found = self._wait(id)
            if not isinstance(found, Diagnostic) or found.id != nemo.NO_CONNECTION or not nemo.was_open():
                return found
            _say(f"{found.message}; trying again in {pause:.0f} s")
            time.sleep(pause)
            nemo.try_again()
        return self._wait(id)

    def _wait(self, id: str) -> Sequence[Path] | Diagnostic:
        from moedsl.launch import nemo, store

        experiment = store.find(id)
        if isinstance(experiment, Diagnostic):
            return experiment
        try:
            jobs = follow.wait(experiment)
        except nemo.failures() as problem:
            if not experiment.is_far:
                raise
            return experiment.disconnected(problem)
        if all(job.state == store.NOT_SUBMITTED for job in jobs):
            return error(LOST, f"{id} was not submitted", help="`moedsl jobs` lists what was")
        folder = experiment_folder(id)
        assert folder is not None  # it was found above
        if isinstance(folder, Diagnostic):
            return folder
        logs = job_logs(folder)
        lost = any(job.state == "SUCCEEDED" for job in jobs) and not any(log.stat().st_size for log in logs)
        # a job that succeeded without a log is no result of its layout
        return error("tune.no_log", name=id, folder=jobs[0].folder) if lost else logs
