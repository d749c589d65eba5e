"""`moedsl verify`: ask the real Megatron Bridge. Exit 1 if it refuses a recipe or a plan differs."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve

from moedsl.bridge.verify import cases, client
from moedsl.bridge.verify.cases import Report, runs_in
from moedsl.bridge.verify.client import is_installed
from moedsl.cli import console
from moedsl.compiler import compile_source
from moedsl.emit.artifact import files_of
from moedsl.lang import reader
from moedsl.support.files import write_all


def run(a: Namespace) -> int:
    with ExitStack() as stack:
        paths: list[tuple[str, str]] = []
        for file in a.files:
            made = _compiled(a, file, stack) if file.endswith(".moe") else [(f, f) for f in runs_in(file)]
            if made is None:
                return 1
            paths += made
        reports = (_read if a.read_only else _run)(a, [p for _, p in paths])
    reports = [evolve(r, file=name) for (name, _), r in zip(paths, reports, strict=True)]
    if a.json:
        console.print_json([r.to_json() for r in reports])
    else:
        console.print_text(lambda: "\n".join(cases.render(r) for r in reports))
    return int(not all(r.ok for r in reports))


def _run(a: Namespace, paths: Sequence[str]) -> Sequence[Report]:
    return client.verify(paths, a.jobs, _Progress(len(paths)), a.gpu, a.world)


def _read(a: Namespace, paths: Sequence[str]) -> Sequence[Report]:
    from moedsl.bridge.lint.run import against_plan

    return [against_plan(path, a.gpu, a.world) for path in paths]


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
        print(f"  {self._done} of {self._total}: {cases.verdict}", file=sys.stderr, flush=True)
