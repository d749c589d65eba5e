"""`moedsl diff A B`: compare two experiments. Exit 1 for a wrong input; with --exit-code also if they differ."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from moedsl.bridge.diff import compare, text
from moedsl.bridge.run_sides import Options, Side, Wrong, beside, read_sides
from moedsl.cli import console


def run(a: Namespace) -> int:
    texts = a.expression or []
    given = len(a.sides) + len(texts)
    if given != (1 if a.like else 2):
        two = "give two sides: moedsl diff A B, or -e 'TEXT' in place of one or both"
        print("give one program: moedsl diff FILE --like RECIPE" if a.like else two, file=sys.stderr)
        return 1
    if a.like:
        found = beside(*(("<text>", texts[0]) if texts else (a.sides[0], None)), a.like)
    else:
        found = read_sides(a.sides, texts, Options(a.gpu, a.world, a.read_only))
    left, right = found[0], found[-1]
    if not isinstance(left, Side) or not isinstance(right, Side):
        return _failed(a, [f for f in found if isinstance(f, Wrong)])
    compared = compare(left, right)
    if a.json:
        console.print_json(compared.to_json())
    else:
        console.print_text(lambda: text(compared), end="")
    return int(a.exit_code and compared.verdict.same_experiment is not True)


def _failed(a: Namespace, wrong: Sequence[Wrong]) -> int:
    sources = {name: source for w in wrong for name, source in w.sources.items()}
    found = [d for w in wrong for d in w.diagnostics]
    if a.json:
        console.print_json(console.failed_json(found, sources))
    console.say(found, sources)
    return 1
