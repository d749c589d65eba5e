"""Translate arguments of other command lines in place of a statement: ``--tensor-model-parallel-size 4``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from moedsl.facts import axes, fields
from moedsl.facts.symbols import ABSENT_HERE, PRECISIONS
from moedsl.lang.foreign_syntax import STATEMENTS
from moedsl.lang.tree_builder import number_value
from moedsl.lang.unknown_statement import OTHER_NAMES, fields_like
from moedsl.support.diagnostics import Diagnostic, Instead, error
from moedsl.support.source import Source, Span

_VALUE = r"[^\s;#\"{}-][^\s;#\"{}]*"
_OPTION = re.compile(rf"--?(?P<name>[A-Za-z][\w.-]*)(?:[ \t]*=[ \t]*|[ \t]+)?(?P<value>(?<=[\s=]){_VALUE})?[ \t]*")
_OVERRIDE = re.compile(rf"(?P<name>[A-Za-z]\w*(?:\.\w+)+)[ \t]*=[ \t]*(?P<value>{_VALUE})[ \t]*")
_PIN = re.compile(rf"pin[ \t]+(?P<name>[A-Za-z]\w*(?:-\w+)+)[ \t]*[= ][ \t]*(?P<value>{_VALUE})[ \t]*")
MOST = 40
"""Arguments that are translated; each is looked for among Bridge's fields."""
_FLAGS = ("on", "off", "true", "false")


def foreign_arguments(source: Source, statement: int) -> Diagnostic | None:
    """Translate the arguments at an offset; None if there are none."""
    found = [*islice(_arguments(source.text, statement), MOST)]
    if not found or source.text[found[-1].end() :][:1] not in ("", "\n", ";", "#"):
        return None
    end = found[-1].start() + len(found[-1][0].rstrip())
    right = [ours(m["name"], m["value"]) for m in found]
    span = Span(source.name, statement, end)
    said = source.text[statement:end]
    text = f"`{said if len(said) < 60 else said[:57] + '...'}` is an argument of another tool"
    unknown = [r for r in right if " " not in r or r.startswith("#")]
    if unknown:
        return error("parse.unexpected", text, span, help=tuple(r.lstrip("# ") for r in unknown))
    whole = "; ".join(right)
    return error("parse.unexpected", text, span, help=Instead(f"write `{whole}`", whole))


def _arguments(text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield the options from an offset on, or the one override or pin there."""
    single = _OVERRIDE.match(text, at) or _PIN.match(text, at)
    if single:
        yield single
        return
    while found := _OPTION.match(text, at):
        yield found
        at = found.end()


def ours(name: str, value: str | None) -> str:
    """Write an argument as a statement, or after `#` why there is none."""
    known = fields.fields(fields.versions()[-1])
    low = name.replace("-", "_").lower()
    last = low.split(".")[-1]
    meant = OTHER_NAMES.get(last, last)
    if value == "auto" and meant in axes.PINNED:
        return f"# remove it: the search chooses `{meant}` unless a run pins it"
    if meant in STATEMENTS and value is not None:
        return f"{meant} {value}"
    if meant in axes.PINNED and value is not None:
        return f"pin {meant}={value}"
    if last in PRECISIONS and (value or "true").lower() in ("true", "on", "1"):
        return f"precision {last}"
    if last in ABSENT_HERE:
        return f"# {ABSENT_HERE[last]}"
    whole = (p for p in (low, low.partition(".")[2]) if p in known)  # a recipe calls itself `cfg`
    paths = [*whole] or fields_like(last, value or "true")
    if paths:
        return f"set {paths[0]} = {_literal(value)}"
    return "# no field of Bridge has this name; others are set by their path, as in `set optimizer.lr = 1e-4`"


def _literal(value: str | None) -> str:
    """Write a value of an argument as one of the language."""
    if value is None or value.lower() in _FLAGS:
        return (value or "true").lower()
    return f'"{value}"' if isinstance(number_value(value), str) else value
