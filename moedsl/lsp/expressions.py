"""The names and words of expressions, for completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from moedsl.rules.rule import Rule
from moedsl.schema import axes, symbols
from moedsl.schema.operators import FUNCTIONS
from moedsl.schema.symbols import BUILTIN
from moedsl.schema.symbols import Type as Kind

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")


def names_of(rules: Iterable[Rule]) -> Iterator[tuple[str, str]]:
    """Every name that an expression may use, with what it is: axes, lets, what the run fixes, facts, functions."""
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
    """The words that the value being written is compared with: those of the name on the other side."""
    at = next((i for i in range(len(said) - 1, 0, -1) if said[i] in COMPARISONS), None)
    if at is None or any(w in ("and", "or", "=>", "then", "else") for w in said[at:]):
        return ()
    before = said[at - 1] if said[at - 1] != "not" else said[at - 2]
    kind = BUILTIN.get(symbols.ALIASES.get(before, before))
    return _words(kind) if kind is not None and _is_open(said[at + 1 :]) else ()


def units_of_other_side(said: Sequence[str]) -> tuple[str, ...]:
    """The units of a number that is compared with bytes."""
    bytes_ = len(said) > 1 and said[-1] in COMPARISONS and said[-2] in ("peak_memory", "memory")
    return ("GiB", "GB", "TiB", "TB") if bytes_ else ()


def _is_open(rest: Sequence[str]) -> bool:
    """Whether a value still has to come: nothing was written, or a list is open."""
    return not rest or (rest[0] == "[" and "]" not in rest)


def _words(kind: Kind) -> tuple[str, ...]:
    return ("true", "false") if kind.kind == "flag" else (*kind.words, *(("none",) if kind.kind == "set" else ()))
