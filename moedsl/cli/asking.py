"""Ask a command in this process: its answer is returned and not printed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from moedsl.cli import console, main
from moedsl.cli.terminal import Refused
from moedsl.solver.solve import diagnostic
from moedsl.support.limits import TooLarge


def ask(command: str, paths: Iterable[str | Path], options: Mapping[str, Any]) -> console.Heard:
    """Run a command with options by name; one that is None is left out, and one that is True is a flag. Raises
    ValueError, with what the command line says, for an option that it would not read."""
    given = [f"--{n}" if v is True else f"--{n}={v}" for n, v in options.items() if v is not None]
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            arguments = main.parser_for(command).parse_args([command, *given, "--", *map(str, paths)])
    except SystemExit:
        raise ValueError(said.getvalue().strip()) from None
    with console.heard() as heard:
        try:
            main.function_of(arguments)(arguments)
        except Refused as why:
            console.say(why.diagnostics, why.sources)
        except TooLarge as reached:
            console.say([diagnostic(reached)], {})
    return heard
