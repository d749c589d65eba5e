"""`moedsl results PATH...`: measure runs. Exit 1 if an input is wrong, no run has a measurement, or one is slower than
its baseline."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.compiler import load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.runs.results.compare import WORSE, as_table, comparisons, regressions, repeats, text
from moedsl.runs.results.gather import Given, Numbers, Run, disambiguate, gather, numbers
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import calibration_lines, measure, unfit
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import refusals


def run(a: Namespace) -> int:
    kept = refusals(Path(a.measured), "results", force=a.force) if a.measured else []
    if kept:
        return console.refused(a, kept)
    runs, rows, found = _measured(a, a.paths)
    before, old, more = _measured(a, a.baseline or [])
    if found or more:
        return console.refused(a, [*found, *more])
    compared = comparisons(rows)
    judged = regressions(repeats(rows, runs), repeats(old, before), a.tolerance) if a.baseline else []
    data = {"version": 1, "runs": rows, "comparisons": compared}
    if a.baseline:
        data |= {"baseline": old, "regressions": judged}
    if a.json:
        console.print_json(data)
    else:
        console.print_text(lambda: text(data) + (f"\n{as_table(judged)}" if a.baseline else ""), end="")
    if not any(c["winner"] for c in compared):
        return 1
    return _keep(a, runs, rows) or int(any(r["verdict"] in WORSE for r in judged))


def _measured(a: Namespace, paths: Sequence[str]) -> tuple[list[Run], list[dict[str, Any]], list[Diagnostic]]:
    """Find and measure the runs of some paths."""
    gathered, found = gather(paths)
    runs = disambiguate(gathered)
    if found:
        return runs, [], found
    each = numbers(runs, Given(a.seq, a.gpus, a.global_batch))
    found += [n for n in each if isinstance(n, Diagnostic)]
    return runs, [] if found else _rows(runs, [n for n in each if isinstance(n, Numbers)], a.warmup), found


def _rows(runs: Sequence[Run], each: Sequence[Numbers], warmup: int | None) -> list[dict[str, Any]]:
    known = symptoms(load_stdlib())
    return [measure(r, read_all(r.logs, known), n, warmup) for r, n in zip(runs, each, strict=True)]


def _keep(a: Namespace, runs: Sequence[Run], rows: Sequence[dict[str, Any]]) -> int:
    """Write the lines for `moedsl calibrate`, if requested."""
    if a.measured is None:
        return 0
    written = calibration_lines([(r.plan, row) for r, row in zip(runs, rows, strict=True)])
    for r, row in zip(runs, rows, strict=True):
        for why in unfit(r.plan, row) if r.plan else ():
            print(f"{row['name']}: no line for `moedsl calibrate`: {why}", file=sys.stderr)
    if not written:
        print("no run has both a plan and figures: nothing to calibrate with", file=sys.stderr)
        return 1
    path = Path(a.measured)
    return console.written(path, written, f": {written.count(chr(10))} runs for `moedsl calibrate {path}`")
