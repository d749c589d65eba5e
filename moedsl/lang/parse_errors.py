"""Explain a parse error: what was found, what was expected, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from attrs import frozen

from moedsl.lang.foreign_statements import DECLARATIONS, foreign_arguments, unknown_statement
from moedsl.lang.foreign_syntax import bare_hub_name, bits, foreign_syntax
from moedsl.lang.tokens import CLAUSES, Lexeme, lexeme_at
from moedsl.support.diagnostics import REPLACE, Diagnostic, Fix, Instead, Label, error
from moedsl.support.source import Source, Span

VALUES = frozenset(["NUMBER", "STRING", "NAME", "LPAREN", "LBRACKET", "MINUS", "TRUE", "FALSE", "NOT", "IF"])
COMPARISON_TERMINALS = frozenset(["EQ", "NE", "LT", "LE", "GT", "GE", "NOT", "IN"])
OPERATORS = COMPARISON_TERMINALS | {"PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "MOD", "AND", "OR", "IMPLIES"}
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")
RESERVED = frozenset(("if", "then", "else", "and", "or", "not", "in", "true", "false", *CLAUSES))
WORDS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a string in double quotes", "WORD": "an option",
    "VERSION": "a version", "IMPLIES": "`=>`", "EQ": "`==`", "NE": "`!=`", "LE": "`<=`", "GE": "`>=`", "LT": "`<`",
    "GT": "`>`", "FLOOR": "`//`", "SLASH": "`/`", "STAR": "`*`", "MOD": "`%`", "PLUS": "`+`", "MINUS": "`-`",
    "EQUAL": "`=`", "COLON": "`:`", "COMMA": "`,`", "LPAREN": "`(`", "RPAREN": "`)`", "LBRACKET": "`[`",
    "RBRACKET": "`]`", "LBRACE": "`{`", "RBRACE": "`}`",
}  # fmt: skip
"""How messages name terminals that are not keywords."""
_LENGTH = re.compile(r"for[ \t]+([0-9]{1,15}(?:\.[0-9]{1,15})?)([MBT]?)")
_TYPED = {"&&": "and", "||": "or", "!": "not", "&": "and", "|": "or"} | dict.fromkeys("'\u2018\u2019\u201c\u201d", '"')
"""Characters that stand for a word or sign of the language."""

_COMMENT = "a comment starts with # and ends with its line"
_OTHER_SIGNS = {
    "//": Instead("a comment starts with #", "#"),
    "/*": _COMMENT,
    "--": _COMMENT,
    "\u00a0": Instead("this is a no-break space: type a plain one", " "),
}


@frozen
class Stop:
    """Where the parser stopped: `accepts` are the terminals allowed there, `starters` those allowed at the start."""

    source: Source
    statement: int
    """The offset at which the statement starts."""
    offset: int
    """The offset of the wrong word, or of the newline or end of text if the statement ended too early."""
    last: int
    """End of the last accepted word."""
    accepts: frozenset[str]
    starters: frozenset[str]


def unexpected(stop: Stop) -> Diagnostic:
    """Return the one error for a statement that does not parse."""
    text, in_run = stop.source.text, "PIN" in stop.starters
    known = (bare_hub_name if in_run else bits)(stop.source, stop.statement)
    found = None if text[stop.offset : stop.offset + 1] == "\n" else lexeme_at(text, stop.offset)
    if found is None:
        if known is not None:
            return known
        at = Label(Span(stop.source.name, stop.last, stop.last), "something is missing here")
        help = [*_hints(stop, None)]
        if amount := _LENGTH.fullmatch(text[stop.statement : stop.last]):  # ``for 2T``
            unit = "tokens" if amount[2] else "days"
            help.insert(0, Instead(f"write `{amount[0]} {unit}`", f" {unit}"))
        what = "text" if stop.offset >= len(text) else "line"
        return error("parse.unexpected:ends", at, words=what, expected=expected(stop.accepts), help=tuple(help))
    span = Span(stop.source.name, found.start, found.end)
    if found.kind == "badstring":
        help = Instead('end it with " on the same line', found.text.rstrip() + '"')
        return error("parse.string", span, help=help)
    place = (stop.source, stop.statement, found)
    foreign = foreign_syntax(*place) if in_run else None
    argument = foreign_arguments(stop.source, stop.statement) if in_run else None
    if explained := known or argument or foreign or _mistyped(stop, found) or (in_run and unknown_statement(*place)):
        return explained
    shown = found.text if len(found.text) <= 40 else found.text[:37] + "..."
    shown = f"the string {shown}" if found.kind == "string" else f"`{shown}`"
    if found.kind == "other" and not found.text.isprintable():
        shown = f"the character U+{ord(found.text):04X}"
    allowed, help = expected(stop.accepts), tuple(_hints(stop, found))
    return error("parse.unexpected:found", span, quote=shown, expected=allowed, help=help)


def _mistyped(stop: Stop, found: Lexeme) -> Diagnostic | None:
    """Suggest a keyword for a typo in the wrong word or in the statement's first word."""
    first = lexeme_at(stop.source.text, stop.statement)
    places = [(found, keywords(stop.accepts))]
    if first is not None and first.start < found.start:
        places.insert(0, (first, keywords(stop.starters)))
    for word, known in places:
        match = get_close_matches(word.text.lower(), sorted(known), 1, 0.7)
        if match and word.kind == "word" and word.text not in known | RESERVED:
            span = Span(stop.source.name, word.start, word.end)
            help = Instead(f"did you mean `{match[0]}`?", match[0])
            return error("parse.unexpected:not-here", span, text=word.text, help=help)
    return None


def keywords(terminals: Collection[str]) -> set[str]:
    """Return the keywords among terminals, as a text has them."""
    return {t.lower() for t in terminals if t not in WORDS and t[0].isalpha() and t not in ("NEWLINE", "SEMICOLON")}


def expected(accepts: Collection[str]) -> str:
    """Describe terminals for messages: ``a value``, ``an operator`` or ``the end of the statement``."""
    left, words = {*accepts}, []
    if {"REQUIRE", "PIN"} <= left:
        words.append("a statement")
        left &= {"RBRACE"}
    if {"REQUIRE", "LET"} <= left:
        words.append("a rule (require, prefer, let, default, candidates, derive, env, rank, measured, symptom, effect)")
        left &= {"RBRACE"}
    if {"NUMBER", "NAME", "LPAREN"} <= left:
        words.append("a value")
        left -= VALUES
    if "PLUS" in left:
        words.append("an operator")
        left -= OPERATORS | {"LPAREN"}
    words += [name for terminal, name in WORDS.items() if terminal in left]
    words += sorted(f"`{word}`" for word in keywords(left))
    words = [*dict.fromkeys(words), *(["the end of the statement"] if "NEWLINE" in accepts else [])]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1] if words else "nothing more"


def _hints(stop: Stop, found: Lexeme | None) -> Iterator[str]:
    """Suggest corrections of frequent mistakes."""
    text, accepts = found.text if found else "", stop.accepts
    first = lexeme_at(stop.source.text, stop.statement)
    if found and "X" in accepts and re.fullmatch(r"x[0-9]\w*", text):
        yield Instead(f"put a blank after `x`: write `x {text[1:]}`", f"x {text[1:]}")
    if found and "X" in accepts and found.kind == "number":
        # The number after the hardware counts GPUs, or is their memory
        if re.fullmatch(r"[0-9.]+gi?b?", text, re.IGNORECASE):
            yield f"the name of the hardware says its memory, as `a100_80gb`: leave out `{text}`, or write another name"
        elif gpus := re.fullmatch(r"([0-9]+)(gpus?)?", text, re.IGNORECASE):
            yield Instead(f"no `x` before the number of GPUs: write `x {gpus[1]}`", f"x {gpus[1]}")
    if text == "=" and "EQ" in accepts:
        yield Instead("write == to compare", "==")
    if text in COMPARISONS and "PLUS" in accepts and "EQ" not in accepts:
        yield "comparisons do not chain: write `a < b and b < c`, or put the comparison in ( )"
    if text in RESERVED and "NAME" in accepts:
        yield f"`{text}` is a keyword and cannot be a name"
    if text in _TYPED:
        yield f"write {_TYPED[text]}"
    for sign in {text, stop.source.text[found.start : found.start + 2] if found else ""} & _OTHER_SIGNS.keys():
        yield _OTHER_SIGNS[sign]
    if first and first.text in ("require", "prefer") and "COLON" in accepts and not accepts & {"STAR", "NAME"}:
        yield f"a rule needs a name: write `{first.text} NAME: ...`"
    if first and first.text in DECLARATIONS and "RBRACE" in stop.starters:
        yield f"`{first.text}` cannot stand inside this block: close it with }} first"


def unclosed(source: Source, opened: int, noticed: int) -> Diagnostic:
    """Report an unclosed bracket: where it was opened, and where the parser noticed."""
    char = source.text[opened]
    closer = {"(": ")", "[": "]", "{": "}"}[char]
    noticed = min(noticed, len(source.text))
    text = closer
    if closer == "}":  # on a separate line
        text = closer + "\n" if noticed == 0 or source.text[noticed - 1] == "\n" else "\n" + closer + "\n"
    labels = (
        Label(Span(source.name, opened, opened + 1), "opened here"),
        Label(Span(source.name, noticed, noticed), "still open here"),
    )
    add = Fix(f"Add the missing `{closer}`", REPLACE, labels[1].span, text)
    message, help = f"this `{char}` is never closed", f"add the missing `{closer}`"
    return error("parse.unclosed", message, *labels, help=help, fixes=(add,))


def stray(source: Source, offset: int) -> Diagnostic:
    """Report a closing bracket without an opening one."""
    message, span = f"this `{source.text[offset]}` closes nothing", Span(source.name, offset, offset + 1)
    fix = Fix(f"Remove this `{source.text[offset]}`", REPLACE, span)
    return error("parse.unclosed", message, span, help="remove it, or open it earlier", fixes=(fix,))
