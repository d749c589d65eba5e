"""`moedsl plan`: print the plan of each run, as text or as JSON."""

from __future__ import annotations

import sys
from argparse import Namespace

from moedsl.cli import talk
from moedsl.cli.printing import show, with_ladders
from moedsl.cli.talk import compiled


def run(a: Namespace) -> int:
    if _unmixed(a):
        return 1
    if a.top or a.pareto or a.tokens or a.price is not None:
        from moedsl.cli import answers

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
    """Tell whether --ladder or --lengths comes with an option that prints no plan; report it on stderr."""
    stops = a.stop_after not in (None, "plan")
    if stops and (a.ladder or a.lengths):
        asked = "--ladder" if a.ladder else "--lengths"
        print(f"--stop-after does not print a plan: leave out {asked}", file=sys.stderr)
    elif a.ladder and a.lengths:
        print("--lengths does not print a plan: leave out --ladder", file=sys.stderr)
    else:
        return False
    return True


def _lengths(a: Namespace) -> int:
    """Print what each length needs. Only the check of the file counts, because its own GPUs may be too few."""
    from moedsl.queries import lengths
    from moedsl.solver.problem import lower

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
