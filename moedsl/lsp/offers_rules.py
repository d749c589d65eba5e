"""Offer what `allow`, `set` and facts may name, and what rules and their expressions may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moedsl.facts import axes, facts, fields, symbols
from moedsl.facts.families import CHOICES
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import BUILTIN
from moedsl.facts.symbols import Type as Kind
from moedsl.lsp import describe
from moedsl.lsp.offers_run import axis_detail
from moedsl.lsp.place import Around, Offer
from moedsl.rules.rule import EFFECTS, Rule


def allow(a: Around) -> Iterator[Offer]:
    """Offer every law and advice, as `allow` writes it."""
    if len(a.said) != 1:
        return
    for r in a.rules:
        if r.kind in ("require", "prefer") and not r.wish:
            yield Offer(r.id.removeprefix("std."), "Reference", r.because or r.kind, partial(_rule_doc, a, r))


def _rule_doc(a: Around, r: Rule) -> str:
    return describe.rule(r, a.known.library.sources)


def set_field(a: Around) -> Iterator[Offer]:
    """Offer the fields of Bridge that a run file may set, and after `=` the words of their types."""
    if len(a.said) == 1:
        facts_, absent = facts.facts_by_field(), fields.absent()
        for f in fields.fields().values():
            built = absent.get(f.path.rpartition(".")[0], "") is not None
            if built and f.path not in facts_ and (fields.is_writable(f.type) or f.path in CHOICES):
                yield Offer(f.path, "Field", f.type, partial(describe.field, f), insert=f"{f.path} = ")
        return
    known = fields.lookup(a.said[1])
    if known is None or a.said[-1] != "=":
        return
    words = [*CHOICES.get(known.path, ())] or [word(v) for v in fields.choices(known.type)]
    yield from (Offer(w, "Value", known.type) for w in words)


def word(value: Any) -> str:
    """Write a listed value of a field; a text that is no name has quotes."""
    if isinstance(value, str):
        return value if value.replace("_", "a").isalnum() and not value[0].isdigit() else f'"{value}"'
    return "none" if value is None else str(value).lower()


def stated(a: Around) -> Iterator[Offer]:
    """Offer the facts of a block, and the words of those that have words."""
    stated = a.said[-1] if a.said else ""
    words_ = describe.words(a.at.block, stated, a.known.library)
    if stated == "cite":
        yield from cites(a)
    elif words_:
        yield from (Offer(w, "EnumMember", stated) for w in words_)
    else:
        for f in describe.of(a.at.block):
            if f.name not in a.said:
                yield Offer(
                    f.name, "Property", str(f.type), partial(describe.page, a.at.block, f.name, a.known.library)
                )


def cites(a: Around) -> Iterator[Offer]:
    """Offer the kinds of sources that rules cite."""
    kinds = dict.fromkeys(c.split(" ", 1)[0] for r in a.rules for c in r.cites)
    yield from (Offer(k, "Module", "what is cited", insert=f'{k} ""', snippet=f'{k} "$0"') for k in kinds)


def expression(a: Around) -> Iterator[Offer]:
    """Offer the names of an expression, and first the words of the other side of a comparison."""
    if a.said[-1] == "worth":
        yield from (Offer(f"{n}%", "Value", "of the step time") for n in (1, 2, 5))
        return
    for word in words_of_other_side(a.said):
        yield Offer(word, "EnumMember", "compared here")
    for name, detail in names_of(a.rules):
        kind = "Function" if name in FUNCTIONS else "Variable"
        snippet = f"{name}($0)" if kind == "Function" else None
        yield Offer(name, kind, detail, partial(describe.name, name), snippet=snippet)


def named_expression(a: Around) -> Iterator[Offer]:
    """Offer an expression for `require NAME: ...`; in a run the name may be omitted."""
    if len(a.said) > 1 or a.at.block != "rules":
        yield from expression(a)


def let(a: Around) -> Iterator[Offer]:
    """Offer an expression after the new name."""
    if len(a.said) > 1:
        yield from expression(a)


def of_a_name(kind: str) -> Callable[[Around], Iterator[Offer]]:
    """Offer for `default NAME = ...` and similar: the names that have one, then the values."""

    def found(a: Around) -> Iterator[Offer]:
        if len(a.said) == 1:
            known = dict.fromkeys(r.name for r in a.rules if r.kind == kind)
            names = known if kind in ("derive", "env") else {**dict.fromkeys(axes.BY_NAME), **known}
            yield from (Offer(n, "Property", axis_detail(n), insert=f"{n} = ") for n in names)
            return
        if "when" not in a.said and a.said[1] in axes.BY_NAME:
            inside = a.said.count("[") > a.said.count("]")
            axis = axes.BY_NAME[a.said[1]]
            yield from (Offer(w, "EnumMember", axis.name) for w in axis.words if inside or axis.kind == "enum")
        yield from expression(a)

    return found


def effect(a: Around) -> Iterator[Offer]:
    """Offer the subjects of an effect."""
    if a.said[-1] == "=":
        yield from (Offer(w, "EnumMember", "what a change affects") for w in EFFECTS)


def rules(a: Around) -> Iterator[Offer]:
    """Offer after `of` the subjects of a block, after `when` an expression."""
    if a.said[-1] == "of":
        yield Offer("recipe", "Keyword", "existing recipes")
        yield Offer("trace", "Keyword", "traces of training steps")
    elif "when" in a.said:
        yield from expression(a)


COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")


def names_of(rules: Iterable[Rule]) -> Iterator[tuple[str, str]]:
    """Offer every name of an expression with its description: axes, lets, values of the run, facts, functions."""
    for name, axis in axes.BY_NAME.items():
        yield name, axis.doc
    for r in rules:
        if r.kind == "let":
            yield r.name, r.because or "a let"
    for name, kind in BUILTIN.items():
        if name not in axes.BY_NAME:
            yield name, str(kind)
    for name, function in FUNCTIONS.items():
        yield name, function.doc


def words_of_other_side(said: Sequence[str]) -> tuple[str, ...]:
    """The words of the name on the other side of a comparison."""
    at = next((i for i in range(len(said) - 1, 0, -1) if said[i] in COMPARISONS), None)
    if at is None or any(w in ("and", "or", "=>", "then", "else") for w in said[at:]):
        return ()
    before = said[at - 1] if said[at - 1] != "not" else said[at - 2]
    kind = BUILTIN.get(symbols.ALIASES.get(before, before))
    return _words(kind) if kind is not None and _is_open(said[at + 1 :]) else ()


def units_of_other_side(said: Sequence[str]) -> tuple[str, ...]:
    """Offer the units of a number that is compared with bytes."""
    bytes_ = len(said) > 1 and said[-1] in COMPARISONS and said[-2] in symbols.BYTES
    return ("GiB", "GB", "TiB", "TB") if bytes_ else ()


def _is_open(rest: Sequence[str]) -> bool:
    """Whether a value still has to come: nothing was written, or a list is open."""
    return not rest or (rest[0] == "[" and "]" not in rest)


def _words(kind: Kind) -> tuple[str, ...]:
    return ("true", "false") if kind.kind == "flag" else (*kind.words, *(("none",) if kind.kind == "set" else ()))
