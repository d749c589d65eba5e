"""`moedsl calibrate RUNS...`: fit the constants to measured runs, and print a file that a run may `use`."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from moedsl.calibrate import text
from moedsl.calibrate.fit import Fit, fit
from moedsl.calibrate.memory import fit_memory
from moedsl.calibrate.runs import Measured, read
from moedsl.cli import talk
from moedsl.cli.terminal import print_file
from moedsl.schema.calibration import first_guess
from moedsl.support import limits
from moedsl.support.atomic_file import refusals
from moedsl.support.owned_files import stamp

SIGN = "# Fitted by `moedsl calibrate`"


def run(a: Namespace) -> int:
    diagnostics = refusals(Path(a.output), "calibrate", SIGN, a.force) if a.output else []
    if diagnostics:
        talk.say(diagnostics, {})
        return 1
    runs, failed = measured(a.files)
    some = [r for r in runs if r.tokens or r.peak]
    if failed:
        return 1
    if not some:
        text = "no run measured its speed or its memory: a line needs tokens_per_s_per_gpu, step_time_s or peak_gb"
        print(text, file=sys.stderr)
        return 1
    progress = talk.Progress()
    said = "\n".join(_architecture(arch, some, a.from_scratch, progress) for arch in sorted({r.arch for r in some}))
    return _write(said, a.output)


def measured(files: list[str]) -> tuple[list[Measured], bool]:
    """Read the runs of all files, and whether they have errors, which go to stderr."""
    out: list[Measured] = []
    wrong = False
    for file in files:
        with limits.bounded(), limits.of_part(limits.File(file)):
            source, runs, diagnostics = read(Path(file))
        out += runs
        talk.say(diagnostics, {source.name: source})
        wrong |= any(d.is_error for d in diagnostics)
    return out, wrong


def _architecture(arch: str, runs: list[Measured], from_scratch: bool, progress: talk.Progress) -> str:
    some = [r for r in runs if r.arch == arch]
    speed = [r for r in some if r.tokens]
    here = some[0].cost.hardware.constants
    before = first_guess(here) if from_scratch else here
    fitted = fit(speed, before, progress) if speed else Fit(before, ())
    if speed:
        print(f"{arch}: {text.verdict(speed, before, fitted)}", file=sys.stderr)
    memory = fit_memory(some, fitted.constants)
    if memory.runs:
        print(f"{arch}: {text.of_memory(memory)}", file=sys.stderr)
    both = Fit(memory.constants, (*fitted.moved, *memory.moved))
    print("\n".join(text.changes(before, both)), file=sys.stderr)
    return text.declaration(arch, both, some)


def _write(said: str, output: str | None) -> int:
    if output is None:
        print_file(said)
        return 0
    path = Path(output)
    return talk.written(path, stamp(path.name, said), f'; a run takes it with `use "{path.name}"`')
