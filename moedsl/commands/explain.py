"""`moedsl explain ID`: the page of a rule, a diagnostic, an axis, a fact or a function."""

from __future__ import annotations

import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterator

from moedsl import axes, pages, rules
from moedsl.compiler import load_stdlib
from moedsl.infer import suggest
from moedsl.ir import Rule
from moedsl.printer import print_expr
from moedsl.source import Source
from moedsl.symbols import ALIASES, BUILTIN, FUNCTIONS


def run(a: Namespace) -> int:
    library = load_stdlib()
    known, _, _ = rules.collect(library.rules)
    if a.id == "rules":
        print(
            "\n".join(f"{r.kind:<8} {r.id}: {r.because}" for r in known if r.kind in ("require", "prefer", "measured"))
        )
        return 0
    found = [*_rules(a.id, known, library.sources), *_names(ALIASES.get(str(a.id), str(a.id))), *_diagnostic(a.id)]
    if found:
        print("\n\n".join(found))
        return 0
    everything = [*(r.id for r in known), *BUILTIN, *FUNCTIONS, *pages.PAGES]
    help = " ".join(suggest(a.id, everything)) or "`moedsl explain rules` lists the rules"
    print(f"nothing is called `{a.id}`; {help}", file=sys.stderr)
    return 1


def _rules(id: str, known: tuple[Rule, ...], sources: dict[str, Source]) -> Iterator[str]:
    for r in known:
        if id in (r.id, r.id.split(".", 1)[1], r.id.rsplit(".", 1)[0]) or (
            id == r.name and r.kind not in ("require", "prefer")
        ):
            yield _rule(r, sources)


def _rule(r: Rule, sources: dict[str, Source]) -> str:
    line, _ = sources[r.span.file].position(r.span.start)
    worth = f", worth {r.worth:.0%} of the step time" if r.kind == "prefer" else ""
    lines = [f"{r.kind} {r.id}{worth}", f"  {print_expr(r.expr)}"]
    lines += [f"  when {print_expr(r.when)}"] if r.when is not None else []
    lines += [f"  because: {r.because}"] if r.because else []
    return "\n".join(
        [*lines, *(f"  cite: {c}" for c in r.cites), f"  declared at {r.span.file}:{line}", f"  {_STRENGTH[r.kind]}"]
    )


_STRENGTH = {
    "require": "Without it the framework would refuse or break; `allow` overrules it at your own risk.",
    "prefer": "Advice: it ranks and never cuts.",
    "measured": "A published result, shown beside a plan that resembles it.",
    "let": "A name for an expression; any rule or wish may use it.",
    "default": "The value when nobody says otherwise; the first that applies wins.",
    "candidates": "What the solver chooses from; a pin overrides it.",
    "derive": "Follows from the rest and is set in the recipe.",
    "env": "An environment variable of the run, set in the recipe.",
    "rank": "What a phase minimises, the first key first.",
}


def _names(name: str) -> Iterator[str]:
    if name in axes.BY_NAME:
        axis = axes.BY_NAME[name]
        words = f": {', '.join(axis.words)}" if axis.words else ""
        yield f"axis {name} ({axis.kind}{words})\n  {axis.doc}"
    elif name in BUILTIN:
        yield f"name {name}\n  {BUILTIN[name]}, usable in every expression"
    if name in FUNCTIONS:
        yield f"function {name}\n  {FUNCTIONS[name].doc}"


def _diagnostic(id: str) -> Iterator[str]:
    if id in pages.PAGES:
        yield f"diagnostic {id}\n{textwrap.indent(pages.PAGES[id], '  ')}"
