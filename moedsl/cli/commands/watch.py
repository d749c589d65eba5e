"""`moedsl watch ID|LOG`: follow runs until they end. Exit 1 if the target cannot be read or a run ended early."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console, terminal
from moedsl.compiler import load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.launch import nemo
from moedsl.runs.watch import ENDED, SIGN, page, text, view
from moedsl.runs.watch_logs import Jobs, Source, Watched, source
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import refusals, stamp, write_file
from moedsl.support.text import in_json

EVERY_S = 15.0
"""Seconds between two answers; other users need the accounting service too."""


def run(a: Namespace) -> int:
    kept = refusals(Path(a.page), "watch", SIGN, a.force) if a.page else []
    found = source(a.target, symptoms(load_stdlib()))
    if kept or isinstance(found, Diagnostic):
        return console.refused(a, [*kept, *([found] if isinstance(found, Diagnostic) else [])])
    try:
        return _follow(a, found)
    except KeyboardInterrupt:
        print("\nthe run goes on", file=sys.stderr)
        return 130
    except Exception as problem:
        if not isinstance(found, Jobs) or not found.experiment.is_far or not isinstance(problem, nemo.failures()):
            raise
        return console.refused(a, [found.experiment.disconnected(problem)])


def _follow(a: Namespace, found: Source) -> int:
    """Answer again and again on a terminal, or where `--every` asks for it; else once."""
    is_terminal = terminal.room_of(sys.stdout) is not None
    goes_on = not a.once and (is_terminal or a.every is not None)
    every = a.every or EVERY_S
    while True:
        runs = found.more()
        views = [view(r) for r in runs]
        over = not goes_on or all(r.is_over for r in runs)
        _answer(a, views, goes_on)
        if code := _page(a, runs, views, every):
            return code
        if over:
            return int(any(v["state"] == ENDED for v in views))
        time.sleep(every)


def _answer(a: Namespace, views: Sequence[dict[str, Any]], goes_on: bool) -> None:
    data = {"version": 1, "target": a.target, "at": time.time(), "runs": views}
    if a.json and goes_on:
        print(in_json(json.dumps(data, ensure_ascii=False)), flush=True)
    elif a.json:
        console.print_json(data)
    else:
        if goes_on:
            terminal.clear(sys.stdout)
        console.print_text(lambda: text(views), end="")
        sys.stdout.flush()


def _page(a: Namespace, runs: Sequence[Watched], views: Sequence[dict[str, Any]], every: float) -> int:
    """Write the page, if it is asked for; returns the exit code."""
    if not a.page:
        return 0
    path = Path(a.page)
    diagnostics = write_file(path, stamp(path.name, page(runs, views, every)))
    console.say(diagnostics, {})
    return int(bool(diagnostics))
