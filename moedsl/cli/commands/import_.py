"""`moedsl import RECIPE`: write the program of an existing recipe. Exit 1 if it cannot be read."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from moedsl.bridge.recipe_import import imported
from moedsl.cli import console
from moedsl.cli.terminal import print_file
from moedsl.support.diagnostics import to_json
from moedsl.support.files import refusals


def run(a: Namespace) -> int:
    out = Path(a.output) if a.output else None
    refused = refusals(out, "import", force=a.force) if out is not None else []
    if refused:
        return console.refused(a, refused)
    made = imported(a.recipe, a.gpu, a.world)
    if made.text is None:
        return console.refused(a, made.diagnostics)
    console.say(made.diagnostics, {})
    code = console.written(out, made.text, f"; `moedsl plan {out}` prices it") if out else 0
    if a.json and not code:
        found = [to_json(d, {}) for d in made.diagnostics]
        console.print_json({"version": 1, "file": a.output, "program": made.text, "diagnostics": found})
    elif out is None:
        print_file(made.text)
    return code
