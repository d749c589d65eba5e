"""`moedsl lint`: check a Bridge recipe against every rule. Exit 1 if a law is broken or Bridge refuses it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from moedsl.bridge.lint.report import Lint, merged
from moedsl.bridge.lint.run import lint
from moedsl.cli import console
from moedsl.cli.terminal import coloured
from moedsl.support.diagnostics import to_json
from moedsl.support.render import render_all
from moedsl.support.text import visible


def run(a: Namespace) -> int:
    found = lint(a.files, a.gpu, a.world, a.phase, a.read_only)
    if a.sarif:
        console.print_sarif(d for x in found for d in x.to_json()["diagnostics"])
    elif a.json:
        console.print_json([x.to_json() for x in found])
    else:
        parts = (*(text(x, a.read_only) for x in found), inherited(found))
        console.print_text(lambda: "\n".join(filter(None, parts)), painted=True)
    return int(any(x.failed for x in found))


def text(x: Lint, read_only: bool = False) -> str:
    """Print the diagnostics of one recipe, then how many rules applied."""
    shown = render_all([to_json(d, x.sources) for d in x.diagnostics], colour=coloured(sys.stdout))
    asked = f"{x.file}: {_count(x, 'error')}, {_count(x, 'warning')}, {_count(x, 'note')}; {x.judged} rules applied"
    if x.inherited:
        asked += f", {len(x.inherited)} in the base recipe"
    if x.unjudged:
        asked += f", {x.unjudged} could not be evaluated"
    why = "nothing was run" if read_only else "Megatron Bridge is not installed or did not build it"
    how = [] if x.through_bridge else [f"read from its source; {why}"]
    said = visible("\n".join([asked, *(f"  {line}" for line in [*how, *x.unread])]))
    return f"{shown}\n{said}" if shown else said


def inherited(found: Sequence[Lint]) -> str:
    """The advice that comes with the base recipes, once for all."""
    sources = {name: source for x in found for name, source in x.sources.items()}
    shown = [to_json(d, sources) for d in merged(found)]
    head = "\nAdvice that comes with the base recipe:\n\n"
    return head + render_all(shown, colour=coloured(sys.stdout)) if shown else ""


def _count(x: Lint, severity: str) -> str:
    n = sum(d.severity == severity for d in x.diagnostics)
    return f"{n or 'no'} {severity}{'' if n == 1 else 's'}"
