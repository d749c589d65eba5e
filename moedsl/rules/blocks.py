"""Read a block of `NAME value` facts, or a line of `NAME=VALUE` options, against a table of known names.

Every declaration and every statement with options is read here, so unknown names, repeated names and values of the
wrong kind are reported alike, with the name of the block. To add a fact or an option, add its name to the table of its
block, with the `Kind` of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from moedsl.lang import ast
from moedsl.rules.evaluators import number
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, error, suggest

ON_OFF = {"on": True, "off": False}
_SWITCHES = {"true": "on", "yes": "on", "false": "off", "no": "off"}
"""What on and off are called elsewhere, and the switch that each means."""


@frozen
class Kind:
    """The kind of value that a fact or an option takes."""

    read: Callable[[Any], Any]
    """Return the value of an expression; None if the expression is of another kind."""
    takes: str
    """The kind in words, for messages: ``a whole number``."""
    example: str = ""
    """An option with a value, for help in messages."""


def facts(
    entries: Iterable[ast.FactEntry],
    known: Collection[str] | None,
    title: str,
    found: list[Diagnostic],
    like: Callable[[str, list[str]], tuple[str, ...]] = suggest,
) -> Iterator[ast.FactEntry]:
    """Yield the first entry of each known fact, or of every fact if `known` is None; report the others in `found`.

    `title` is the block's name in messages (``a cluster``); `like` suggests facts for an unknown name.
    """
    first: dict[str, ast.FactEntry] = {}
    for e in entries:
        name = e.name.id
        if known is not None and name not in known:
            help = like(name, [*known])
            found.append(error("check.unknown_fact:fact", e.name.span, title=title, name=name, help=help))
        elif name in first:
            found.append(error("check.twice:entry", e.name.span, Label(first[name].name.span, "first here"), name=name))
        else:
            first[name] = e
            yield e


def options(
    bindings: Iterable[ast.Binding],
    kinds: Mapping[str, Kind],
    found: list[Diagnostic],
    unknown: Callable[[ast.Name, tuple[str, ...]], Diagnostic],
    mistakes: Callable[[ast.Binding, Any], Iterable[Diagnostic]],
) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each valid option; report errors in the others in `found`.

    `unknown` makes the error for an unknown name, from the name and its help; `mistakes` reports errors in an option
    whose value has the right kind.
    """
    stated: set[str] = set()
    for b in bindings:
        name, kind = b.name.id, kinds.get(b.name.id)
        if kind is None:
            found.append(unknown(b.name, suggest_or_list(name, kinds)))
        elif name in stated:
            found.append(error("check.twice:option", b.span, name=name, fixes=(Fix("Drop this one", DROP, b.span),)))
        elif (value := kind.read(b.value)) is None:
            # a value of the right kind: the word itself in quotes, or the switch that it means
            word, right = b.value.id if isinstance(b.value, ast.Name) else "", ""
            if kind.read is text and word:
                right = f'"{word}"'
            elif kind.read is switch:
                right = _SWITCHES.get(str(b.value.value if isinstance(b.value, ast.Bool) else word).lower(), "")
            help = Instead(f"write `{name}={right}`", right) if right else f"write `{kind.example}`"
            found.append(error("check.type:option", b.value.span, name=name, takes=kind.takes, help=help))
        elif wrong := [*mistakes(b, value)]:
            found += wrong
        else:
            yield name, value
        stated.add(name)


def suggest_or_list(word: str, known: Collection[str]) -> tuple[str, ...]:
    """Suggest a similar known word, or list all of them."""
    return suggest(word, [*known]) or (f"one of {', '.join(known)}",)


def whole(value: Any, most: int | None = None) -> int | None:
    """Read a whole number without a unit; if `most` is given, from 1 to `most`."""
    n = number(value) if isinstance(value, ast.Number) and value.unit is None else None
    return n if isinstance(n, int) and (most is None or 0 < n <= most) else None


def whole_numbers(value: Any) -> tuple[int, ...] | None:
    """Read the numbers of a list, each as a whole number."""
    items = value.items if isinstance(value, ast.List) else None
    return None if items is None else tuple(int(number(i)) for i in items if isinstance(i, ast.Number))


def share(value: Any) -> float | None:
    """Read a share from 0 to below 1, or a percentage."""
    n = number(value) if isinstance(value, ast.Number) and value.unit in (None, "%") else None
    return float(n) if n is not None and 0 <= n < 1 else None


def rate(value: Any) -> float | None:
    """Read a rate above 0, in bytes/s."""
    n = number(value) if isinstance(value, ast.Number) and value.unit in ("GB/s", "TB/s") else 0
    return float(n) if n > 0 else None


def size(value: Any) -> float | None:
    """Read an amount of memory above 0, in bytes."""
    n = number(value) if isinstance(value, ast.Number) and value.unit in ("GB", "TB", "GiB", "TiB") else 0
    return float(n) if n > 0 else None


def ratio(value: Any, least: float = 0.0) -> float | None:
    """Read a number above 0 without a unit, and at least `least`."""
    n = number(value) if isinstance(value, ast.Number) and value.unit is None else 0
    return float(n) if n > 0 and n >= least else None


def set_of_words(value: Any) -> frozenset[str] | None:
    """Read a list of words; None if it is empty."""
    words = [i.id for i in value.items if isinstance(i, ast.Name)] if isinstance(value, ast.List) else []
    return frozenset(words) if words and len(words) == len(value.items) else None


def switch(value: Any) -> bool | None:
    """Read `on` or `off`."""
    return ON_OFF.get(value.id) if isinstance(value, ast.Name) else None


def one_of(value: Any, words: Collection[str]) -> str | None:
    """Read a word; None if it is not in `words`."""
    return value.id if isinstance(value, ast.Name) and value.id in words else None


def text(value: Any) -> str | None:
    """Read a string; None if it is blank."""
    return value.value if isinstance(value, ast.String) and value.value.strip() else None


def word_or_string(value: Any) -> str | None:
    """Read a word or a string."""
    return value.value if isinstance(value, ast.String) else value.id if isinstance(value, ast.Name) else None
