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
    """One folder, or one below it for each of several runs: all of them or none."""
    folder, files = Path(a.output), dict[str, str]()
    for plan in result.plans:
        below = f"{plan['name']}/" if len(result.plans) > 1 else ""
        files |= {below + name: text for name, text in files_of(plan, result.source, result.library).items()}
    found = write_all(folder, files, a.force)
    if found:
        talk.say(found, {})
        return 1
    for where in dict.fromkeys((folder / name).parent for name in files):
        print(f"wrote {where}/", file=sys.stderr)
    return 0
