"""`moedsl plan`: the plan of each run, as text or as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from moedsl import sweep_table
from moedsl.commands import talk
from moedsl.commands.programs import compiled
from moedsl.compiler import Result
from moedsl.show import plan_text


def run(a: Namespace) -> int:
    if _unmixed(a):
        return 1
    if a.top or a.pareto or a.tokens or a.price is not None:
        from moedsl.commands import answers

        return answers.run(a)
    if a.lengths:
        return _lengths(a)
    stop = a.stop_after or "plan"
    result, code = compiled(a, stop)
    if result is None or code:
        return code
    if a.ladder:
        with_ladders(result)
    show(a, result)
    return 0


def _unmixed(a: Namespace) -> bool:
    """Whether --ladder or --lengths stands beside something that prints no plan; says so on stderr."""
    stops = a.stop_after not in (None, "plan")
    if stops and (a.ladder or a.lengths):
        asked = "--ladder" if a.ladder else "--lengths"
        print(f"--stop-after prints something else than a plan: ask for it without {asked}", file=sys.stderr)
    elif a.ladder and a.lengths:
        print("--lengths prints something else than a plan: ask for it without --ladder", file=sys.stderr)
    else:
        return False
    return True


def _lengths(a: Namespace) -> int:
    """What each length needs; of the file only what it says counts, since its own GPUs may be too few."""
    from moedsl import lengths
    from moedsl.lower import lower

    result, code = compiled(a, "check")
    if result is None or code:
        return code
    asked = [(p, lower(p, p.gpus or p.hardware.gpus_per_node).values["seq"]) for p in result.programs]
    found = [(p.name, lengths.table(p, p.gpus, seq, talk.Progress())) for p, seq in asked]
    if a.json:
        talk.print_json({"version": 1, "lengths": dict(found)})
    else:
        print("\n".join(lengths.text(t, name) for name, t in found))
    return 0


def with_ladders(result: Result) -> None:
    """Gives each plan its ladder; a workflow's have theirs."""
    from moedsl import ladder

    pairs = zip(result.chosen, result.plans, strict=True)
    result.plans = tuple(p if "ladder" in p else {**p, "ladder": ladder.of_run(c)} for c, p in pairs)


def show(a: Namespace, result: Result) -> None:
    """Prints the plans, or what the stage that was asked for made."""
    if a.stop_after and a.stop_after != "plan":
        from moedsl.commands import stages

        talk.print_json(stages.dump(result, a.stop_after))
    elif a.json:
        talk.print_json(one(result.plans))
    else:
        print("\n".join(_texts(result.plans)), end="")


def _texts(plans: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Every plan, but of an isolation the first alone and then the variants side by side."""
    from moedsl.isolate import table

    for group in table.groups(plans):
        yield plan_text(group[0])
        if "isolation" in group[0]:
            yield table.text(table.comparison(group))
    for compared in sweep_table.comparisons(plans):
        yield sweep_table.text(compared)


def one(plans: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The plan of a file with one run; of several, an object that holds them all."""
    if len(plans) == 1:
        return plans[0]
    compared = _compared(plans)
    return {"version": 1, "runs": list(plans), **({"comparisons": compared} if compared else {})}


def _compared(plans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The variants of each isolation, and the values of each sweep, side by side."""
    swept = sweep_table.comparisons(plans)
    if not any("isolation" in p for p in plans):
        return swept
    from moedsl.isolate import table

    return [*table.comparisons(plans), *swept]
