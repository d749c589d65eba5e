"""`moedsl results`, `watch` and `calibrate`: what runs measured, and the constants fitted to it."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console, terminal
from moedsl.cli.terminal import Refused
from moedsl.compiler import load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.facts.calibration import first_guess
from moedsl.launch import nemo
from moedsl.runs import calibrate as fits
from moedsl.runs import measured_runs, watch_logs
from moedsl.runs import watch as watched
from moedsl.runs.measured_runs import Measured
from moedsl.runs.results import compare
from moedsl.runs.results.compare import WORSE, as_table, comparisons, regressions, repeats
from moedsl.runs.results.gather import Given, Numbers, Run, disambiguate, gather, numbers
from moedsl.runs.results.measure import calibration_lines, measure, read_all, unfit
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.files import refusals, stamp, write_file
from moedsl.support.source import Source, Span
from moedsl.support.text import in_json


def results(a: Namespace) -> int:
    """Measure runs. Exit 1 if an input is wrong, no run has a measurement, or one is slower than its baseline."""
    console.stop_on(refusals(Path(a.measured), "results", force=a.force) if a.measured else ())
    runs, rows, found = _measured(a, a.paths)
    before, old, more = _measured(a, a.baseline or [])
    console.stop_on([*found, *more])
    compared = comparisons(rows)
    judged = regressions(repeats(rows, runs), repeats(old, before), a.tolerance) if a.baseline else []
    data = {"version": 1, "runs": rows, "comparisons": compared}
    if a.baseline:
        data |= {"baseline": old, "regressions": judged}
    judgement = f"\n{as_table(judged)}" if a.baseline else ""
    console.print_answer(a, data, lambda: compare.text(data) + judgement, end="")
    if not any(c["winner"] for c in compared):
        return 1
    if a.measured:
        lines = calibration_lines([(r.plan, row) for r, row in zip(runs, rows, strict=True)])
        for r, row in zip(runs, rows, strict=True):
            for why in unfit(r.plan, row) if r.plan else ():
                print(f"{row['name']}: no line for `moedsl calibrate`: {why}", file=sys.stderr)
        if not lines:
            print("no run has both a plan and figures: nothing to calibrate with", file=sys.stderr)
            return 1
        path, count = Path(a.measured), lines.count("\n")
        if code := console.written(path, lines, f": {count} runs for `moedsl calibrate {path}`"):
            return code
    return int(any(r["verdict"] in WORSE for r in judged))


def _measured(a: Namespace, paths: Sequence[str]) -> tuple[list[Run], list[dict[str, Any]], list[Diagnostic]]:
    """Find the runs in some paths, and measure them."""
    gathered, found = gather(paths)
    runs = disambiguate(gathered)
    if found:
        return runs, [], found
    each = numbers(runs, Given(a.seq, a.gpus, a.global_batch))
    found += [n for n in each if isinstance(n, Diagnostic)]
    if found:
        return runs, [], found
    known = symptoms(load_stdlib())
    pairs = [(r, n) for r, n in zip(runs, each, strict=True) if isinstance(n, Numbers)]
    return runs, [measure(r, read_all(r.logs, known), n, a.warmup) for r, n in pairs], []


EVERY_S = 15.0
"""Seconds between two answers: other users need the cluster's accounting service too."""


def watch(a: Namespace) -> int:
    """Follow runs until they end. Exit 1 if the target cannot be read or a run ended early.

    It answers repeatedly on a terminal, or where `--every` asks for it; else once.
    """
    kept = refusals(Path(a.page), "watch", watched.SIGN, a.force) if a.page else []
    found = watch_logs.source(a.target, symptoms(load_stdlib()))
    console.stop_on([*kept, *([found] if isinstance(found, Diagnostic) else [])])
    experiment = found.experiment if isinstance(found, watch_logs.Jobs) else None
    goes_on = not a.once and (terminal.room_of(sys.stdout) is not None or a.every is not None)
    every = a.every or EVERY_S
    try:
        source = console.accepted(found)
        while True:
            runs = source.more()
            views = [watched.view(r) for r in runs]
            data = {"version": 1, "target": a.target, "at": time.time(), "runs": views}
            if a.json and goes_on:
                print(in_json(json.dumps(data, ensure_ascii=False)), flush=True)
            else:
                if goes_on:
                    terminal.clear(sys.stdout)
                console.print_answer(a, data, lambda views=views: watched.text(views), end="")
                sys.stdout.flush()
            if a.page:
                path = Path(a.page)
                diagnostics = write_file(path, stamp(path.name, watched.page(runs, views, every)))
                console.say(diagnostics, {})
                if diagnostics:
                    return 1
            if not goes_on or all(r.is_over for r in runs):
                return int(any(v["state"] == watched.ENDED for v in views))
            time.sleep(every)
    except KeyboardInterrupt:
        print("\nthe run goes on", file=sys.stderr)
        return 130
    except Exception as problem:
        if experiment is None or not experiment.is_far or not isinstance(problem, nemo.failures()):
            raise
        raise Refused([experiment.disconnected(problem)]) from problem


SIGN = "# Fitted by `moedsl calibrate`"


def calibrate(a: Namespace) -> int:
    """Fit the constants to measured runs, and print a file that a run may `use`."""
    diagnostics = refusals(Path(a.output), "calibrate", SIGN, a.force) if a.output else []
    diagnostics += [lacking] if (lacking := fits.lacks_scipy()) else []
    console.stop_on(diagnostics)
    some, sources = list[Measured](), dict[str, Source]()
    for file in a.files:
        source, runs, wrong = measured_runs.read(Path(file))
        some += [r for r in runs if r.tokens or r.peak]
        diagnostics += wrong
        sources[source.name] = source
    if not some and not any(d.is_error for d in diagnostics):
        diagnostics.append(error("calibrate.run:run", Label(Span(a.files[0], 0, 0))))
    if any(d.is_error for d in diagnostics):
        raise Refused(diagnostics, sources)
    console.say(diagnostics, sources)
    progress = console.Progress()
    each: list[dict[str, Any]] = []
    for arch in sorted({r.arch for r in some}):
        of_arch = [r for r in some if r.arch == arch]
        speed = [r for r in of_arch if r.tokens]
        here = of_arch[0].cost.hardware.constants
        before = first_guess(here) if a.from_scratch else here
        fitted = fits.fit(speed, before, progress) if speed else fits.Fit(before, ())
        if speed:
            print(f"{arch}: {fits.verdict(speed, before, fitted)}", file=sys.stderr)
        memory = fits.fit_memory(of_arch, fitted.constants)
        if memory.runs:
            print(f"{arch}: {fits.of_memory(memory)}", file=sys.stderr)
        both = fits.Fit(memory.constants, (*fitted.moved, *memory.moved))
        print("\n".join(fits.changes(before, both)), file=sys.stderr)
        moved = {name: {"before": before.stated(name), "after": both.constants.stated(name)} for name in both.moved}
        made = fits.declaration(arch, both, of_arch)
        each.append({"architecture": arch, "runs": len(of_arch), "moved": moved, "declaration": made})
    said, name = "\n".join(x["declaration"] for x in each), Path(a.output or "").name
    text = stamp(name, said) if a.output else said
    return console.put_out(a, text, f'; a run takes it with `use "{name}"`', {"architectures": each})
