"""Write diagnostics for people, as text, and for code hosts, as SARIF. Both are made from their JSON form
(`diagnostics.to_json`) and nothing else.

error[parse.unexpected]: found `=`, expected an operator
  --> run.moe:7:12
   |  require tp = 4
   |             ^
help: write == to compare
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moedsl.support.diagnostics import pages
from moedsl.support.text import HIDDEN, visible

WINDOW = 100
"""The most columns of a source line, unless a terminal is narrower; a longer one is cut around the carets."""
NEAR = 4
"""How many windows of characters are looked at on each side of the carets: some are drawn on top of others."""
MARGIN = len("   |  ......")
"""The columns that a source line does not have: those of its bar, and of the marks of what is cut."""
TAB = 4
_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "help": "1;32", "place": "2", "head": "1"}
PAINT = rf"\x1b\[(?:0|{'|'.join(_COLOURS.values())})m"
"""The pattern of the colours that diagnostics and plans have."""


def render(diagnostic: Mapping[str, Any], *, colour: bool = False, window: int = WINDOW) -> str:
    """Render one diagnostic, without a newline at its end. `colour` adds ANSI colours; the text is the same."""
    return "\n".join(_lines(diagnostic, colour, window))


def render_all(diagnostics: Iterable[Mapping[str, Any]], *, colour: bool = False, window: int = WINDOW) -> str:
    """Render several with blank lines between them, and count more than one. Ends with a newline; "" for none."""
    many = list(diagnostics)
    parts = [render(d, colour=colour, window=window) for d in many] + _count(many)
    return "\n\n".join(parts) + "\n" if parts else ""


def _count(many: list[Mapping[str, Any]]) -> list[str]:
    counts = [(sum(d["severity"] == s for d in many), s) for s in ("error", "warning")]
    words = [f"{n} {s}{'s' if n > 1 else ''}" for n, s in counts if n]
    return [", ".join(words)] if len(many) > 1 and words else []


def _lines(d: Mapping[str, Any], colour: bool, window: int) -> Iterator[str]:
    head = paint(f"{d['severity']}[{d['id']}]", d["severity"], colour)
    yield f"{head}: {printable(d['message'])}"
    yield from _labels(d.get("labels") or [], d["severity"], colour, window)
    if d.get("because"):
        yield f"   = because: {printable(d['because'])}"
    yield from (f"   = cite: {printable(cite)}" for cite in d.get("cites") or ())
    yield from (f"   = {name}: {printable(_value(v))}" for name, v in (d.get("values") or {}).items())
    yield from (f"{paint('help', 'help', colour)}: {printable(text)}" for text in d.get("help") or ())


def _value(value: Any) -> str:
    """Write a value as in the language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return str(value)


def paint(text: str, name: str, colour: bool = True) -> str:
    """Colour a text as diagnostics are."""
    return f"\x1b[{_COLOURS.get(name, '1')}m{text}\x1b[0m" if colour else text


def printable(text: str) -> str:
    """Escape what is not printable in a message, so that a file cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in visible(text))


def _labels(labels: list[Mapping[str, Any]], severity: str, colour: bool, window: int) -> Iterator[str]:
    """Render the first label and others of its file with their source, labels in other files in one line each."""
    for i, label in enumerate(labels):
        if i == 0 or (label["file"] == labels[0]["file"] and "line" in label):
            yield f"  {paint('-->', 'place', colour)} {_place(label)}"
            yield from _source(label, severity, colour, window)
        else:
            text = printable(label["text"])
            yield f"  {paint(':::', 'place', colour)} {_place(label)}" + (f"  {text}" if text else "")


def _place(label: Mapping[str, Any]) -> str:
    where = f":{label['line']}:{label['column']}" if "line" in label else ""
    return printable(label["file"]) + where


def _source(label: Mapping[str, Any], severity: str, colour: bool, window: int) -> Iterator[str]:
    """Render the line and its carets; a span over several lines is marked to the end of its first one."""
    if "source" not in label:
        return
    line, column = label["source"], label["column"] - 1
    several = label["end_line"] > label["line"]
    end = len(line) if several else label["end_column"] - 1
    shown, start, width = _cut(line, column, max(end, column + 1), window)
    until = f"to line {label['end_line']}" if several else ""
    note = ": ".join(t for t in (until, printable(label["text"])) if t)
    bar = paint("|", "place", colour)
    yield f"   {bar}  {shown}"
    yield f"   {bar}  {' ' * start}{paint('^' * width, severity, colour)}{' ' + note if note else ''}"


def _cut(line: str, start: int, end: int, window: int) -> tuple[str, int, int]:
    """The line as shown, with the column and the number of its carets; only what is near the carets is looked at."""
    near = max(0, start - NEAR * window)
    cells = [_cell(c) for c in line[near : start + NEAR * window]]
    widths = [_width(c) for c in cells]
    first, last = _window(widths, start - near, window)
    before = "..." if near + first else ""
    after = "..." if near + last < len(line) else ""
    left = len(before) + sum(widths[first : start - near])
    marked = sum(widths[start - near : min(end - near, last)])
    beyond = max(0, end - len(line)) if start >= len(line) else 0
    return before + "".join(cells[first:last]) + after, left, max(marked + beyond, 1)


def _window(widths: list[int], start: int, room: int) -> tuple[int, int]:
    """The part of a line to show: all if it fits, else some columns before `start` and the rest."""
    if sum(widths) <= room:
        return 0, len(widths)
    first = start
    while first > 0 and sum(widths[first - 1 : start]) <= room // 3:
        first -= 1
    last, used = first, 0
    while last < len(widths) and used + widths[last] <= room:
        used += widths[last]
        last += 1
    return first, last


def _cell(char: str) -> str:
    """The terminal's form of a character of the source: a tab as spaces, a hidden character by its code."""
    if char == "\t":
        return " " * TAB
    if HIDDEN.match(char):
        return visible(char)
    if char.isprintable() or unicodedata.category(char) == "Cf":
        return char
    return char.encode("unicode_escape").decode()


def _width(text: str) -> int:
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    """The columns of a character: 2 for wide East Asian characters and emoji, 0 for combining marks and joiners."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Json = Mapping[str, Any]


def sarif_log(diagnostics: Iterable[Json], version: str) -> dict[str, Any]:
    """Make the log of one run of moedsl."""
    found = list(diagnostics)
    rules = {d["id"]: d for d in found}
    driver = {"name": "moedsl", "version": version, "rules": [_sarif_rule(id, d) for id, d in rules.items()]}
    results = [_result(d, [*rules].index(d["id"])) for d in found]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _sarif_rule(id: str, d: Json) -> dict[str, Any]:
    """A diagnostic's page describes it; a rule of the library has its reason and its sources."""
    page = pages().get(id)
    text = page.text if page else "\n".join([d["because"] or d["message"], *d["cites"]])
    return {"id": id, "fullDescription": {"text": text}, "help": {"text": f"moedsl explain {id}"}}


def _result(d: Json, rule: int) -> dict[str, Any]:
    texts = [d["message"], *([f"because: {d['because']}"] if d["because"] else []), *(f"help: {h}" for h in d["help"])]
    places = [_location(label) for label in d["labels"]]
    return {
        "ruleId": d["id"],
        "ruleIndex": rule,
        "level": d["severity"],
        "message": {"text": "\n".join(texts)},
        **({"locations": places[:1]} if places else {}),
        **({"relatedLocations": places[1:]} if len(places) > 1 else {}),
    }


def _location(label: Json) -> dict[str, Any]:
    """A place in a file; a text without one, such as that of -e, has no file name that a host could open."""
    region = {
        theirs: label[ours]
        for theirs, ours in (
            ("startLine", "line"), ("startColumn", "column"), ("endLine", "end_line"), ("endColumn", "end_column"),
        )
        if ours in label
    }  # fmt: skip
    file = label["file"]
    uri = Path(file).as_uri() if Path(file).is_absolute() else quote(Path(file).as_posix())
    note = {"message": {"text": label["text"]}} if label["text"] else {}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **({"region": region} if region else {})}, **note}
