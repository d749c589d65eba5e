"""`moedsl plan`: the plan of each run, as text or as JSON."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from moedsl.commands import talk
from moedsl.commands.programs import compiled
from moedsl.compiler import Result
from moedsl.show import plan_text


def run(a: Namespace) -> int:
    stop = a.stop_after or "plan"
    result, code = compiled(a, stop)
    if result is None or code:
        return code
    show(a, result)
    return 0


def show(a: Namespace, result: Result) -> None:
    """Prints the plans, or what the stage that was asked for made."""
    if a.stop_after and a.stop_after != "plan":
        from moedsl.commands import stages

        talk.print_json(stages.dump(result, a.stop_after))
    elif a.json:
        talk.print_json(one(result.plans))
    else:
        print("\n".join(plan_text(p) for p in result.plans), end="")


def one(plans: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The plan of a file with one run; of several, an object that holds them all."""
    return plans[0] if len(plans) == 1 else {"version": 1, "runs": list(plans)}
