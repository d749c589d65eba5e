"""Print the page of a rule, a symptom, an effect, a diagnostic, an axis, a fact, a function or a word of a plan.

`words.md` has an entry for each word that a plan's page uses.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from moedsl.facts import axes
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, BUILTIN
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules import collect as rules
from moedsl.rules import documents
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.support.diagnostics import pages, suggest
from moedsl.support.source import Source
from moedsl.support.text import table

LISTED = ("require", "prefer", "measured", "symptom", "effect")


def known_rules(library: Library) -> tuple[Rule, ...]:
    """Return every rule for runs, then those for recipes, then those for launches."""
    from moedsl.bridge.lint.rules import collect  # a page of a run's rule has no need of it
    from moedsl.rules.check import cluster_rules

    of_runs, _, _ = rules.of_library(library)
    of_recipes, _ = collect(library)
    seen = {r.id for r in of_runs}
    others = (*of_recipes, *cluster_rules.read(library)[0].rules)
    return (*of_runs, *(r for r in others if r.id not in seen))


def listing(library: Library) -> str:
    """Format a line for each law, advice, measurement, symptom and effect."""
    return "\n".join(f"{r.kind:<8} {r.id}: {r.because}" for r in known_rules(library) if r.kind in LISTED)


def page(
    id: str, library: Library, own: Sequence[Rule] = (), sources: Mapping[str, Source] = MappingProxyType({})
) -> str | None:
    """Format everything with this name or id; None if there is nothing. `own` are a run's own rules, from `sources`."""
    texts, name = list[str](), ALIASES.get(id, id)
    for r in (*own, *known_rules(library)):
        if id in (r.id, r.id.split(".", 1)[1], r.id.rsplit(".", 1)[0]) or (
            id == r.name and r.kind not in ("require", "prefer")
        ):
            texts.append(_rule(r, {**library.sources, **sources}))
    if axis := axes.BY_NAME.get(name):
        words_of = f": {', '.join(axis.words)}" if axis.words else ""
        texts.append(f"axis {name} ({axis.kind}{words_of})\n  {axis.doc}")
    elif name in BUILTIN:
        texts.append(f"name {name}\n  {BUILTIN[name]}, usable in every expression")
    texts += (f"value {name} of the axis {a.name}\n  {a.doc}" for a in axes.AXES if name in a.words)
    if name in FUNCTIONS:
        texts.append(f"function {name}\n  {FUNCTIONS[name].doc}")
    if id in library.hardware:
        texts.append(_machine(library, id))
    if diagnostic := pages().get(id):
        texts.append(f"diagnostic {id}\n{textwrap.indent(diagnostic.text, '  ')}")
    if word := words().get(id.casefold()):
        texts.append(f"{id} in a plan\n{textwrap.indent(word, '  ')}")
    return "\n\n".join(texts) or None


def hint(id: str, library: Library) -> str:
    """Suggest similar names."""
    everything = [*(r.id for r in known_rules(library)), *BUILTIN, *library.hardware, *FUNCTIONS, *pages(), *words()]
    return (
        " ".join(suggest(id, everything) or suggest(id.casefold(), [*words()]))
        or "`moedsl explain rules` lists the rules"
    )


def _rule(r: Rule, sources: Mapping[str, Source]) -> str:
    line, _ = sources[r.span.file].position(r.span.start)
    worth = f", worth {r.worth * 100:g}% of the step time" if r.kind == "prefer" else ""
    lines = [f"{r.kind} {r.id}{worth}", f"  {print_expr(r.expr)}"]
    lines += [f"  when {print_expr(r.when)}"] if r.when is not None else []
    lines += [f"  {part}: {said}" for part in ("because", "confirm", "fix") if (said := getattr(r, part))]
    lines += [f"  cite: {c}" for c in r.cites]
    for d, c in documents.claims_of(r.id):
        superseded = "" if c.superseded is None else f"; superseded: {c.superseded}"
        lines.append(f"  carries: {c.says} ({d.title}, {c.where}; {d.dates(c)}){superseded}")
    strength = _WISH if r.kind == "require" and not r.is_std else _STRENGTH[r.kind]
    return "\n".join([*lines, f"  declared at {r.span.file}:{line}", f"  {strength}"])


def _machine(library: Library, name: str) -> str:
    """Format each fact of a machine with its source."""
    decl, base, found = library.machine(name)
    cited = ("; ".join(f"{c.kind.id} {c.where.value}" for c in e.cites) for e in decl.facts)
    rows = [(e.name.id, _fact(e.value), said) for e, said in zip(decl.facts, cited, strict=True)]
    lines = [f"hardware {name}" + f", as {base} where it states no other fact" * bool(base), *table(rows, "lll")]
    way = (
        f"`hardware ours from {name} {{ network 25 GB/s }}` changes some; a cluster states its network, rails and hosts"
    )
    return "\n".join([*lines, *(d.message for d in found), f"  {way}"])


def _fact(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{b.name.id}={print_expr(b.value)}" for b in value if isinstance(b, ast.Binding))
    return print_expr(value)


_WISH = "The run file requires it of every layout."
_STRENGTH = {
    "require": "Without it the framework would refuse or break; `allow` overrules it at your own risk.",
    "prefer": "Advice: it ranks and never cuts.",
    "measured": "A published result, shown with a plan for which its conditions hold.",
    "let": "A name for an expression; any rule or wish may use it.",
    "default": "The value when nobody says otherwise; the first that applies wins.",
    "candidates": "What the solver chooses from; a pin overrides it.",
    "derive": "Follows from the rest and is set in the recipe; of a launch, in the job.",
    "env": "An environment variable of the run, set in the recipe; of a launch, in the job.",
    "symptom": "What a failing run prints; `moedsl diagnose` looks for it in a log.",
    "effect": "What changing it changes: the experiment, only how it runs, or a benchmark that nobody learns from.",
    "rank": "What a phase minimises, the first key first.",
}


FILE = Path(__file__).with_name("words.md")


@cache
def words() -> Mapping[str, str]:
    """Read words.md: each word in small letters, with its text."""
    entries = re.split(r"^## (.+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {word.casefold(): text.strip() for word, text in zip(entries[::2], entries[1::2], strict=True)}
