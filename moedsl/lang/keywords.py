"""List the language's words by role, from the grammar and the compiler's own lists.

One source for everything that colours or completes .moe text: tools/make_editors.py writes them to editors/words.json
and fills every editor's files from there; moedsl/lang/pygments_lexer.py imports them. Lark is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from attrs import asdict, frozen

from moedsl.facts import axes, symbols
from moedsl.facts.operators import FUNCTIONS
from moedsl.lang.tree_builder import MULTIPLIERS, UNITS
from moedsl.support.resources import grammar_file

_RULE = re.compile(r"^(_?[a-z][a-z_]*):((?:.*\n)(?:[ \t]+[|].*\n)*)", re.MULTILINE)
_KEYWORD = re.compile(r"^([A-Z_]+)\.[0-9]+: /(?P<lines>\(\?:.*\)\*)?([a-z_]+)\(\?!", re.MULTILINE)
_SYMBOL = re.compile(r'^([A-Z_]+): "([^"]+)"', re.MULTILINE)


@frozen
class Keywords:
    """The words of each role, in the order of their source, without repeats. A word may have several roles: `model`
    starts a statement and a declaration, `micro_batch` is a statement and an axis."""

    statements: tuple[str, ...]
    """Words that start a statement of a run."""
    declarations: tuple[str, ...]
    """Words that start a declaration; `facts_blocks`, `rules_blocks` and `run_blocks` divide them by content."""
    facts_blocks: tuple[str, ...]
    rules_blocks: tuple[str, ...]
    run_blocks: tuple[str, ...]
    members: tuple[str, ...]
    """Words that start a member of a rules block."""
    named: tuple[str, ...]
    """Words of declarations and members that a new name follows: `rules NAME`, `let NAME`."""
    clauses: tuple[str, ...]
    """Words that may start a line and still belong to the previous statement."""
    links: tuple[str, ...]
    """Words inside a statement: `gb200 x 8`, `fit first`, `run a from b`, `rules r of recipe`, `sweep tp in 1, 2`."""
    operators: tuple[str, ...]
    """Operators of expressions that are words."""
    constants: tuple[str, ...]
    reserved: tuple[str, ...]
    """Words that are never a name."""
    symbols: tuple[str, ...]
    """Operators and punctuation, longest first."""
    units: tuple[str, ...]
    multipliers: tuple[str, ...]
    axes: tuple[str, ...]
    """Names of the values that the solver decides, with their other spellings."""
    runs: tuple[str, ...]
    """Names of the values that a run fixes."""
    facts: tuple[str, ...]
    """Names of facts about a model or hardware, and of costs."""
    values: tuple[str, ...]
    """Words that are values."""
    functions: tuple[str, ...]

    def to_json(self) -> dict[str, list[str]]:
        """Return the lists by name."""
        return {key: list(value) for key, value in asdict(self).items()}


@cache
def keywords() -> Keywords:
    """Read the words of moedsl's grammar."""
    text = grammar_file().read_text(encoding="utf-8")
    rules = {m[1]: m[2] for m in _RULE.finditer(text)}
    by_terminal = {m[1]: m[3] for m in _KEYWORD.finditer(text)}

    def first(bodies: Iterable[str]) -> tuple[str, ...]:
        """Return the first keyword of each rule that starts with one."""
        starts = (re.match(r"\s*([A-Z_]+)\b", body) for body in bodies)
        return _unique(by_terminal[m[1]] for m in starts if m)

    statements, declarations, members = (
        [rules[part.strip()] for part in rules[name].split("|")] for name in ("_stmt", "_decl", "_member")
    )
    excluded = re.search(r"^NAME: /\(\?!\(\?:([a-z|]+)\)", text, re.MULTILINE)
    if excluded is None:
        raise ValueError("grammar/moe.lark: NAME excludes no words")
    reserved = tuple(excluded[1].split("|"))
    clauses = tuple(m[3] for m in _KEYWORD.finditer(text) if m["lines"])
    constants = tuple(w.lower() for w in re.findall(r"\b[A-Z_]{2,}\b", rules["bool"]))
    other = {*first(statements), *first(declarations), *first(members), *reserved, *clauses}
    decided = (*symbols.AXES, *symbols.ALIASES, *axes.COMPOSITES)
    facts = (*symbols.MODEL, *symbols.HARDWARE, *symbols.COSTS, *symbols.SAVES)
    return Keywords(
        statements=first(statements),
        declarations=first(declarations),
        facts_blocks=first(b for b in declarations if "_facts" in b),
        rules_blocks=first(b for b in declarations if "_member" in b),
        run_blocks=first(b for b in declarations if "_body" in b),
        members=first(members),
        named=_unique(
            by_terminal[m[1]] for b in declarations + members if (m := re.match(r"\s*([A-Z_]+) \(?name\b", b))
        ),
        clauses=clauses,
        links=(*(w for w in by_terminal.values() if w not in other), "in"),
        operators=tuple(w for w in reserved if w not in {*clauses, *constants}),
        constants=constants,
        reserved=reserved,
        symbols=tuple(sorted([*(m[2] for m in _SYMBOL.finditer(text)), ";"], key=lambda s: (-len(s), s))),
        units=UNITS,
        multipliers=tuple(m for m in MULTIPLIERS if m),
        axes=decided,
        runs=tuple(n for n in symbols.RUN if n not in decided),
        facts=_unique(n for n in facts if n not in decided),
        values=_unique(w for kind in symbols.BUILTIN.values() for w in kind.words if w not in decided),
        functions=tuple(FUNCTIONS),
    )


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
