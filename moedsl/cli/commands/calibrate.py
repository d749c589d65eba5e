"""`moedsl calibrate RUNS...`: fit the constants to measured runs, and print a file that a run may `use`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.cli.terminal import print_file
from moedsl.facts.calibration import first_guess
from moedsl.runs.calibrate import Fit, changes, declaration, fit, fit_memory, lacks_scipy, of_memory, verdict
from moedsl.runs.measured_runs import Measured, read
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.files import refusals, stamp
from moedsl.support.source import Source, Span

SIGN = "# Fitted by `moedsl calibrate`"


def run(a: Namespace) -> int:
    diagnostics = refusals(Path(a.output), "calibrate", SIGN, a.force) if a.output else []
    diagnostics += [lacking] if (lacking := lacks_scipy()) else []
    if diagnostics:
        return console.refused(a, diagnostics)
    runs, diagnostics, sources = measured(a.files)
    some = [r for r in runs if r.tokens or r.peak]
    if not some and not any(d.is_error for d in diagnostics):
        diagnostics.append(error("calibrate.run:run", Label(Span(a.files[0], 0, 0))))
    if any(d.is_error for d in diagnostics):
        return console.refused(a, diagnostics, sources)
    console.say(diagnostics, sources)
    progress = console.Progress()
    each = [_architecture(arch, some, a.from_scratch, progress) for arch in sorted({r.arch for r in some})]
    return _write(a, each)


def measured(files: list[str]) -> tuple[list[Measured], list[Diagnostic], dict[str, Source]]:
    """Read the runs of all files, with what is wrong in them."""
    out, found, sources = list[Measured](), list[Diagnostic](), dict[str, Source]()
    for file in files:
        source, runs, diagnostics = read(Path(file))
        out += runs
        found += diagnostics
        sources[source.name] = source
    return out, found, sources


def _architecture(arch: str, runs: list[Measured], from_scratch: bool, progress: console.Progress) -> dict[str, Any]:
    """Fit the constants of one architecture, print the verdict on stderr, and return the declaration."""
    some = [r for r in runs if r.arch == arch]
    speed = [r for r in some if r.tokens]
    here = some[0].cost.hardware.constants
    before = first_guess(here) if from_scratch else here
    fitted = fit(speed, before, progress) if speed else Fit(before, ())
    if speed:
        print(f"{arch}: {verdict(speed, before, fitted)}", file=sys.stderr)
    memory = fit_memory(some, fitted.constants)
    if memory.runs:
        print(f"{arch}: {of_memory(memory)}", file=sys.stderr)
    both = Fit(memory.constants, (*fitted.moved, *memory.moved))
    print("\n".join(changes(before, both)), file=sys.stderr)
    moved = {name: {"before": before.stated(name), "after": both.constants.stated(name)} for name in both.moved}
    return {"architecture": arch, "runs": len(some), "moved": moved, "declaration": declaration(arch, both, some)}


def _write(a: Namespace, each: Sequence[dict[str, Any]]) -> int:
    said, path = "\n".join(x["declaration"] for x in each), Path(a.output or "")
    note = f'; a run takes it with `use "{path.name}"`'
    code = console.written(path, stamp(path.name, said), note) if a.output else 0
    if a.json and not code:
        console.print_json({"version": 1, "file": a.output, "architectures": each})
    elif a.output is None:
        print_file(said)
    return code
