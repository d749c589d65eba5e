"""`moedsl next` and `moedsl tune`: propose the next experiment from what was measured, or run the whole loop."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from moedsl.cli import console
from moedsl.cli.commands import launch
from moedsl.cli.terminal import Refused
from moedsl.compiler import load_stdlib
from moedsl.lang import reader
from moedsl.launch import follow, nemo, store
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_rules
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.results.gather import disambiguate, experiment_folder, gather, job_logs
from moedsl.runs.results.measure import BATCH, remarks, remedy, warning_texts
from moedsl.runs.tune import candidates as proposals
from moedsl.runs.tune import loop, run_file
from moedsl.runs.tune.candidates import Tried
from moedsl.runs.tune.loop import LOST, Ends
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import refusals
from moedsl.support.source import Source
from moedsl.support.text import wrapped


def next_(a: Namespace) -> int:
    """Propose the next experiment. Exit 1 if an input is wrong or nothing was measured."""
    if a.output and os.path.lexists(a.output):
        text, help = f"{a.output} exists, and `next` overwrites nothing", "name another file with -o"
        raise Refused([error("emit.exists", text, help=help)])
    console.stop_on(refusals(Path(a.output), "next") if a.output else ())
    gathered, wrong = gather(a.paths)
    done: list[tuple[Plan, Tried]] = []
    notes: list[str] = []
    for r in () if wrong else disambiguate(gathered):
        if r.plan is None:
            continue
        made = priced(r.plan)
        if not isinstance(made, Measured):
            wrong += made
            continue
        row = proposals.row(r, load_stdlib())
        said = [*remarks(row)]
        if not warning_texts(row, (BATCH,)):  # a batch other than its plan's makes it another experiment
            if tried := proposals.tried(r.name, made.row, made.cost, row):
                done.append((r.plan, tried))
            else:
                said.append(f"{row['status']}, {row['cause']}: {remedy(row)}")
        notes += [f"{r.name}: {text}" for text in said]
    console.stop_on(wrong)
    if not done:
        first = "`moedsl run` writes a plan.json for each job; for another, LOG=FILE names the run file or script"
        text = f"no run with a plan has measured or failed in {' '.join(a.paths)}"
        raise Refused([error("tune.nothing", "; ".join([text, *notes]), help=() if notes else first)])
    return _propose(a, done, notes)


def _propose(a: Namespace, done: Sequence[tuple[Plan, Tried]], notes: Sequence[str]) -> int:
    """Print the next experiment, and write its run file if requested."""
    # The program to vary: from `--run`, else from the plan of the fastest run
    if a.run is not None:
        base = _varied(console.program_of(a.run))
        if base.source.name.endswith(console.IMPORTED):  # its pins are what ran, and no wish
            base = _varied(run_file.of_plan(base.plan))
    else:
        fastest = proposals.best([t for _, t in done])
        plan = next(plan for plan, t in done if fastest is None or t is fastest)
        base = run_file.base(run_file.of_plan(plan))
        if not isinstance(base, run_file.Base) or base.plan.experiment.fingerprint != plan.experiment.fingerprint:
            raise Refused([error("tune.experiment:program", plan=plan.name)])
    here = run_file.machines(base.plan)
    same: list[Tried] = []
    others: dict[str, list[str]] = {"other_experiments": [], "other_machines": []}
    left: list[tuple[str, str]] = []
    for plan, t in done:
        there = run_file.machines(plan)
        if plan.experiment.fingerprint != base.plan.experiment.fingerprint:
            others["other_experiments"].append(t.name)
            left.append((t.name, "another experiment"))
        elif there != here:
            others["other_machines"].append(t.name)
            left.append((t.name, f"ran on {there}, not on {here}"))
        else:
            same.append(t)
    if not same:
        experiment = f"the experiment of {base.source.name} on {here}"
        reasons = "; ".join(f"{name}: {why}" for name, why in left)
        raise Refused([error("tune.nothing:all-other-next", experiment=experiment, reasons=reasons)])
    found = proposals.candidates(base.chosen, base.start, same)
    data = {"version": 1, **proposals.report(base.chosen, base.start, same, found, a.stop), **others, "remarks": notes}
    left_out = "".join(f"left out, {why}: {name}\n" for name, why in left)
    console.print_answer(a, data, lambda: proposals.text(data) + left_out, end="")
    if not a.json:
        console.print_text(lambda: "".join(f"{wrapped(note, '', '  ', width=110)}\n" for note in notes), end="")
    if not a.output or not data["next"]:
        return 0
    made = console.accepted(run_file.with_layout(base, found[0].codes, "The next experiment, by `moedsl next`"))
    return console.written(Path(a.output), made.text, "")


def _varied(source: Source, sources: Mapping[str, Source] = {}) -> run_file.Base:
    base = run_file.base(source)
    if not isinstance(base, run_file.Base):
        raise Refused(base, sources)
    return base


def tune(a: Namespace) -> int:
    """Run the whole loop. Exit 1 if a job cannot be submitted or measured."""
    source = console.read(*reader.read(a.file))
    base = _varied(source, {source.name: source})
    cluster, found = cluster_rules.choose(base.library, a.cluster)
    if cluster is None:
        raise Refused(found[:1])
    if cluster.executor == "local":
        raise Refused([error("tune.local")])
    if cluster.executor == "kubeflow":
        console.accepted(follow.no_kubectl())
    folder = Path(a.output or f"{Path(a.file).stem}_tune")
    machines = run_file.machines(base.plan)
    journal = console.accepted(loop.opened(folder, base.plan.experiment.fingerprint, machines))
    try:
        ended = loop.tune(base, journal, Cluster(a.cluster, a.no_preflight), Ends(a.budget, a.stop), _say)
    except KeyboardInterrupt:
        print("\nthe job goes on without this process; the same command goes on from here", file=sys.stderr)
        return 130
    if not console.accepted(ended):
        print((journal.folder / loop.FILE).read_text(encoding="utf-8") if a.json else journal.table, end="")
    return console.accepted(ended)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@frozen
class Cluster:
    """Submits jobs to one cluster as `moedsl run` does, and waits for them."""

    name: str
    no_preflight: bool

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        """Submit a file as `moedsl run FILE --cluster NAME --detach` does."""
        options = {"expression": None, "like": "", "run": None, "dryrun": False, "json": False, "sequential": False,
                   "exclude_bad": False, "backend": "bridge"}  # fmt: skip
        words = Namespace(file=str(file), cluster=self.name, detach=True, no_preflight=self.no_preflight, **options)
        try:
            return launch.run(words, named)
        except Refused as why:
            return console.refused(words, why)

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        """Wait for jobs as `moedsl logs ID -f` does, and return their logs; reconnect if the connection is lost."""
        for pause in nemo.PAUSES_S:
            found = self._wait(id)
            if not isinstance(found, Diagnostic) or found.id != nemo.NO_CONNECTION or not nemo.was_open():
                return found
            _say(f"{found.message}; trying again in {pause:.0f} s")
            time.sleep(pause)
            nemo.try_again()
        return self._wait(id)

    def _wait(self, id: str) -> Sequence[Path] | Diagnostic:
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
        # a job that succeeded without a log says nothing about its layout
        return error("tune.no_log", name=id, folder=jobs[0].folder) if lost else logs
