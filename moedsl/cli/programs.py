"""What `compile`, `plan` and `check` have in common: a program goes through the stages, its errors are printed."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli import talk
from moedsl.compiler import Result, compile_source


def compiled(a: Namespace, stop_after: str) -> tuple[Result | None, int]:
    """The result of the stages and the exit code so far; diagnostics are out already."""
    source, diagnostics = talk.source_of(a)
    if source is None:
        if a.json:
            talk.print_json(talk.failed_json(diagnostics, {}))
        talk.say(diagnostics, {})
        return None, 1
    result = compile_source(source, stop_after, talk.Progress())
    if a.json and result.failed:
        talk.print_json(talk.failed_json(result.diagnostics, result.library.sources))
    talk.say(result.diagnostics, {**result.library.sources, source.name: source})
    return result, int(result.failed)
