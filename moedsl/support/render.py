"""Write diagnostics as text for people and as SARIF for code hosts, both from only their JSON form
(`diagnostics.to_json`).

error[parse.unexpected]: found `=`, expected an operator
  --> run.moe:7:12
   |  require tp = 4
   |             ^
help: write == to compare
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from moedsl.support.diagnostics import pages
from moedsl.support.text import HIDDEN, counted, visible

WINDOW = 100
"""The most columns of a source line, unless the terminal is narrower; a longer line is cut around the carets."""
NEAR = 4
"""How many windows of characters to read on each side of the carets; some characters take no columns."""
MARGIN = len("   |  ......")
"""Columns that are not for the source line: its bar, and the marks where it is cut."""
TAB = 4
_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "help": "1;32", "place": "2", "head": "1"}
PAINT = rf"\x1b\[(?:0|{'|'.join(_COLOURS.values())})m"
"""The pattern of the colour codes in diagnostics and plans."""


def render(diagnostic: Mapping[str, Any], *, colour: bool = False, window: int = WINDOW) -> str:
    """Render one diagnostic, without a final newline. `colour` adds ANSI colours; the text stays the same.

    The first label and others in its file appear with their source, labels in other files on one line each.
    """
    d, severity = diagnostic, diagnostic["severity"]
    head = paint(f"{severity}[{d['id']}]", severity, colour)
    lines = [f"{head}: {printable(d['message'])}"]
    labels = d.get("labels") or []
    for i, label in enumerate(labels):
        where = printable(label["file"]) + (f":{label['line']}:{label['column']}" if "line" in label else "")
        if i == 0 or (label["file"] == labels[0]["file"] and "line" in label):
            lines += [f"  {paint('-->', 'place', colour)} {where}", *_source_lines(label, severity, colour, window)]
        else:
            text = printable(label["text"])
            lines.append(f"  {paint(':::', 'place', colour)} {where}" + (f"  {text}" if text else ""))
    if d.get("because"):
        lines.append(f"   = because: {printable(d['because'])}")
    lines += [f"   = cite: {printable(cite)}" for cite in d.get("cites") or ()]
    lines += [f"   = {name}: {printable(_value(v))}" for name, v in (d.get("values") or {}).items()]
    lines += [f"{paint('help', 'help', colour)}: {printable(text)}" for text in d.get("help") or ()]
    return "\n".join(lines)


def render_all(diagnostics: Iterable[Mapping[str, Any]], *, colour: bool = False, window: int = WINDOW) -> str:
    """Render diagnostics, separated by blank lines and counted if several, with a final newline; "" for none."""
    many = list(diagnostics)
    parts = [render(d, colour=colour, window=window) for d in many]
    counts = [(sum(d["severity"] == s for d in many), s) for s in ("error", "warning")]
    words = [counted(n, s) for n, s in counts if n]
    if len(many) > 1 and words:
        parts.append(", ".join(words))
    return "\n\n".join(parts) + "\n" if parts else ""


def paint(text: str, name: str, colour: bool = True) -> str:
    """Colour a text as in diagnostics."""
    return f"\x1b[{_COLOURS.get(name, '1')}m{text}\x1b[0m" if colour else text


def printable(text: str) -> str:
    """Escape unprintable characters of a message, so that a file cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in visible(text))


def _value(value: Any) -> str:
    """Format a value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return str(value)


def _source_lines(label: Mapping[str, Any], severity: str, colour: bool, window: int) -> list[str]:
    """Render a source line and its carets; a span over several lines is marked to the end of its first line.

    Only the text near the carets is read, as a line may be very long.
    """
    if "source" not in label:
        return []
    line, start = label["source"], label["column"] - 1
    several = label["end_line"] > label["line"]
    end = max(len(line) if several else label["end_column"] - 1, start + 1)
    near = max(0, start - NEAR * window)
    cells, widths = zip(*map(_cell, line[near : start + NEAR * window]), strict=True) if line[near:] else ((), ())
    # Show the whole line if it fits, else some columns before the carets and as much as fits after them
    first, last = 0, len(widths)
    if sum(widths) > window:
        first = next(i for i in range(start - near + 1) if sum(widths[i : start - near]) <= window // 3)
        last = next((i for i in range(first, last) if sum(widths[first : i + 1]) > window), last)
    before, after = "..." * bool(near + first), "..." * (near + last < len(line))
    left = len(before) + sum(widths[first : start - near])
    beyond = max(0, end - len(line)) if start >= len(line) else 0
    carets = max(sum(widths[start - near : min(end - near, last)]) + beyond, 1)
    until = f"to line {label['end_line']}" if several else ""
    note = ": ".join(t for t in (until, printable(label["text"])) if t)
    bar = paint("|", "place", colour)
    return [
        f"   {bar}  {before}{''.join(cells[first:last])}{after}",
        f"   {bar}  {' ' * left}{paint('^' * carets, severity, colour)}{' ' + note if note else ''}",
    ]


def _cell(char: str) -> tuple[str, int]:
    """Return what the terminal shows for a source character, and its columns: a tab as spaces, a hidden character as
    its code, 2 columns for wide East Asian characters and emoji, 0 for combining marks and joiners."""
    category = unicodedata.category(char)
    if char == "\t":
        return " " * TAB, TAB
    if HIDDEN.match(char) or not (char.isprintable() or category == "Cf"):
        text = visible(char) if HIDDEN.match(char) else char.encode("unicode_escape").decode()
        return text, len(text)
    if unicodedata.combining(char) or category in ("Mn", "Me", "Cf"):
        return char, 0
    return char, 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Json = Mapping[str, Any]


def sarif_log(diagnostics: Iterable[Json], version: str) -> Json:
    """Make the SARIF log of one run of moedsl.

    Its rules are the diagnostics' ids, described by their pages; a library rule is described by its reason and sources.
    """
    found = list(diagnostics)
    ids = {d["id"]: d for d in found}
    rules, results = list[Json](), list[Json]()
    for id, d in ids.items():
        page = pages().get(id)
        text = page.text if page else "\n".join([d["because"] or d["message"], *d["cites"]])
        rules.append({"id": id, "fullDescription": {"text": text}, "help": {"text": f"moedsl explain {id}"}})
    for d in found:
        reason = [f"because: {d['because']}"] if d["because"] else []
        texts = [d["message"], *reason, *(f"help: {h}" for h in d["help"])]
        places = [_location(label) for label in d["labels"]]
        results.append({
            "ruleId": d["id"],
            "ruleIndex": [*ids].index(d["id"]),
            "level": d["severity"],
            "message": {"text": "\n".join(texts)},
            **({"locations": places[:1]} if places else {}),
            **({"relatedLocations": places[1:]} if len(places) > 1 else {}),
        })  # fmt: skip
    tool = {"driver": {"name": "moedsl", "version": version, "rules": rules}}
    runs = [{"tool": tool, "columnKind": "unicodeCodePoints", "results": results}]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def _location(label: Json) -> Json:
    """Convert a label to a SARIF location; the text of -e has no file name that a host could open."""
    names = {"startLine": "line", "startColumn": "column", "endLine": "end_line", "endColumn": "end_column"}
    region = {theirs: label[ours] for theirs, ours in names.items() if ours in label}
    file = label["file"]
    uri = Path(file).as_uri() if Path(file).is_absolute() else quote(Path(file).as_posix())
    note = {"message": {"text": label["text"]}} if label["text"] else {}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, **({"region": region} if region else {})}, **note}
