"""Offer what may be written at a place, by its statement. Names come from the compiler's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from moedsl.facts import axes, symbols
from moedsl.lang import keywords
from moedsl.lsp import describe, offers_rules, offers_run
from moedsl.lsp.place import Around, Offer
from moedsl.lsp.states import terminal_words


def offers(a: Around) -> list[Offer]:
    """Offer everything that may follow at the place, the likeliest first."""
    if a.at.string is not None:
        return list(offers_run.files(a)) if a.said == ("use",) else []
    found: list[Offer] = []
    if a.at.accepts & {"NAME", "WORD", "VERSION", "NUMBER", "STRING"}:
        found += _named(a)
    return [*_units(a), *found, *_keywords(a)]


def _units(a: Around) -> Iterator[Offer]:
    """Offer units after a plain number; for the grammar, number and unit are one word."""
    if not a.said or not a.said[-1].isdigit():
        return
    name = a.said[-2] if len(a.said) > 1 else ""
    known = describe.units(a.at.block, name) or offers_rules.units_of_other_side(a.said[:-1])
    yield from (Offer(u, "Unit", "unit") for u in (("%",) if name == "worth" else known))


def _keywords(a: Around) -> Iterator[Offer]:
    """Offer the keywords that the grammar accepts here and that have a meaning here."""
    skip = _meaningless(a)
    for terminal in sorted(a.at.accepts):
        word = terminal.lower()
        if word in terminal_words() and word not in skip:
            yield _keyword(word)


def _meaningless(a: Around) -> set[str]:
    """The keywords without a meaning here: `x` follows only hardware, `first` only a phase."""
    if not a.said:
        return {"first", "x"}
    hidden = {"if", "not", "true", "false"} if _is_plain(a) else set[str]()
    hardware = a.said[0] in a.known.library.hardware or a.said[0] == "hardware"
    hidden |= set() if hardware else {"x"}
    return hidden if a.said[0] in axes.PHASES else hidden | {"first"}


def _is_plain(a: Around) -> bool:
    """Whether the statement wants values and no expression, though the grammar would take one."""
    stated = a.at.block in describe.BLOCKS or len(a.at.blocks) > 1
    return stated or a.said[0] in ("pin", "sweep", "isolate", "set")


def _keyword(word: str) -> Offer:
    form = describe.keywords().get(word, ("", ""))[0].replace("`", "")
    kind = "Operator" if word in keywords.keywords().operators else "Keyword"
    return Offer(word, kind, form, partial(describe.keyword, word), snippet=SNIPPETS.get(word))


SNIPPETS = {
    "run": "run ${1:name} {\n\t$0\n}",
    "profile": "profile ${1:name} {\n\t$0\n}",
    "rules": "rules ${1:name} {\n\t$0\n}",
    "because": 'because "$0"',
    "use": 'use "$0"',
}
"""Offers for one word of the grammar that needs others after it."""


def _named(a: Around) -> Iterable[Offer]:
    block = a.at.block
    if block in ("model", "hardware", "calibration", "cluster", "document") or len(a.at.blocks) > 1:
        return offers_rules.stated(a)
    if not a.said:
        return offers_run.starters(a) if block != "rules" else ()
    first, last = a.said[0], a.said[-1]
    if last == "cite":
        return offers_rules.cites(a)
    handler = (_MEMBERS.get(first) if block == "rules" else None) or _STATEMENTS.get(first)
    if handler is not None:
        return handler(a)
    return offers_run.counts(a) if last == "x" else ()


_STATEMENTS: dict[str, Callable[[Around], Iterator[Offer]]] = {
    "model": lambda a: offers_run.models(a) if len(a.said) == 1 else iter(()),
    "hardware": lambda a: offers_run.hardware(a) if len(a.said) == 1 else offers_run.counts(a),
    "seq": offers_run.sizes,
    "precision": offers_run.choice(symbols.PRECISIONS, "precision"),
    "task": offers_run.choice(symbols.TASKS, "task"),
    "adapter": offers_run.adapter,
    "routing": offers_run.choice(symbols.ROUTINGS, "routing"),
    "risk": offers_run.choice(symbols.RISKS, "risk"),
    "vlm": offers_run.vlm,
    "data": offers_run.data,
    "weights": offers_run.weights,
    "pin": offers_run.pin,
    "sweep": offers_run.swept,
    "isolate": offers_run.swept,
    "allow": offers_rules.allow,
    "set": offers_rules.set_field,
    "resilience": offers_run.resilience,
    "for": offers_run.length,
    "target": offers_run.target,
    "require": offers_rules.named_expression,
    "prefer": offers_rules.named_expression,
    "run": offers_run.run,
    "rules": offers_rules.rules,
}
_MEMBERS: dict[str, Callable[[Around], Iterator[Offer]]] = {
    **{k: offers_rules.of_a_name(k) for k in ("default", "candidates", "derive", "env")},
    **dict.fromkeys(("let", "rank", "measured"), offers_rules.let),
    "effect": offers_rules.effect,
}
