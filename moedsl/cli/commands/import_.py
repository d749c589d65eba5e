"""`moedsl import RECIPE`: write the program of an existing recipe. Exit 1 if it cannot be read."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from moedsl.cli import talk
from moedsl.cli.terminal import print_file
from moedsl.recipes.importing import imported
from moedsl.support import limits
from moedsl.support.atomic_file import refusals


def run(a: Namespace) -> int:
    out = Path(a.output) if a.output else None
    refused = refusals(out, "import", force=a.force) if out is not None else []
    if refused:
        talk.say(refused, {})
        return 1
    with limits.of_part(limits.File(a.recipe)):
        made = imported(a.recipe, a.gpu, a.world)
    talk.say(made.diagnostics, {})
    if made.text is None:
        return 1
    if out is None:
        print_file(made.text)
        return 0
    return talk.written(out, made.text, f"; `moedsl plan {out}` prices it")
