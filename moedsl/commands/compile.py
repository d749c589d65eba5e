"""`moedsl compile`: the recipe, its overrides, the plan and the lock, written whole or not at all."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from moedsl.artifact import files_of
from moedsl.commands import talk
from moedsl.commands.plan import show
from moedsl.commands.programs import compiled
from moedsl.compiler import Result
from moedsl.emit.write import write_all


def run(a: Namespace) -> int:
    result, code = compiled(a, a.stop_after or "plan")
    if result is None or code:
        return code
    if a.stop_after is None:
        code = _write(a, result)
    if not code:
        show(a, result)
    return code


def _write(a: Namespace, result: Result) -> int:
    """One folder, or one below it for each of several runs."""
    folder = Path(a.output)
    for plan in result.plans:
        where = folder / plan["name"] if len(result.plans) > 1 else folder
        found = write_all(where, files_of(plan, result.source, result.library), a.force)
        if found:
            talk.say(found, {})
            return 1
        print(f"wrote {where}/", file=sys.stderr)
    return 0
