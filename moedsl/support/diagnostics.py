"""Define diagnostics with their labels, helps, fixes and pages, and suggest corrections of mistyped words.

`pages.md` declares each diagnostic once: its id, its severity, its texts and its page. A text is a line
``- [NAME] MESSAGE`` below the heading, and its helps are lines ``  - HELP`` below it; ``[NAME]`` is present if the id
has several texts. Texts and helps have `str.format` placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import field, frozen

from moedsl.support.secrets import masked, masked_line
from moedsl.support.source import Source, Span


@frozen
class Label:
    """One span that contributes to a diagnostic, and what happened there."""

    span: Span
    text: str = ""


REPLACE, VALUE, DROP, ADD = "replace", "value", "drop", "add"


@frozen
class Fix:
    """One change of the file that resolves a diagnostic; `moedsl/lang/text_edits.py` turns it into text edits.

    `kind` is replace (`text` in place of the span's text), value (`text` is the value of the binding or statement at
    `span`), drop (remove the statement or binding at `span`), or add (the statement `text` joins the run called `run`;
    `span` then only names the file).
    """

    title: str
    kind: str
    span: Span
    text: str = ""
    run: str = ""


class Instead(str):
    """A help with the text (`word`) to write in place of the primary label's text."""

    word: str

    def __new__(cls, help: str, word: str) -> Instead:
        made = super().__new__(cls, help)
        made.word = word
        return made

    def __reduce__(self) -> tuple[type[Instead], tuple[str, str]]:
        return Instead, (str(self), self.word)


@frozen
class Diagnostic:
    """One message to the user. `id` is a slug (``parse.unexpected``, ``std.mesh.heads``) that `moedsl explain` accepts.

    The first label is where the problem is; the others contribute to it. `values` has the values that led to it, by
    name. Any one of `fixes` resolves it; helps that do not change the file have no fix.
    """

    id: str
    severity: str
    message: str
    labels: tuple[Label, ...] = ()
    because: str | None = None
    cites: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(factory=dict)
    fixes: tuple[Fix, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.severity == "error"


def error(id: str, *parts: str | Span | Label, **more: Any) -> Diagnostic:
    """Make an error from its text in `pages.md`; spans become labels, the first the primary one.

    `id` is the page's id, with ``:NAME`` if the page has several texts; keyword arguments fill the text's placeholders.
    A text before the spans, written by a rule or another program, replaces the page's text. `help` replaces the page's
    help; `because`, `cites`, `values` and `fixes` are fields of `Diagnostic`.
    """
    return _make("error", id, parts, more)


def warning(id: str, *parts: str | Span | Label, **more: Any) -> Diagnostic:
    """Make a warning, with the arguments of `error`: the program still has a meaning."""
    return _make("warning", id, parts, more)


def note(id: str, *parts: str | Span | Label, **more: Any) -> Diagnostic:
    """Make a note, with the arguments of `error`: something that the plan's reader should know."""
    return _make("note", id, parts, more)


FIELDS = ("because", "cites", "values", "fixes")


def _make(severity: str, id: str, parts: tuple[str | Span | Label, ...], more: dict[str, Any]) -> Diagnostic:
    page, _, name = id.partition(":")
    require_declared(page, severity)
    fields = {name: more.pop(name) for name in FIELDS if name in more}
    help: str | tuple[str, ...] | None = more.pop("help", None)
    message = next((p for p in parts if isinstance(p, str)), None)
    if message is None:
        text = pages()[page].texts[name]
        message = text.message.format_map(more)
        help = tuple(h.format_map(more) for h in text.help) if help is None else help
    labels = tuple(p if isinstance(p, Label) else Label(p) for p in parts if not isinstance(p, str))
    helps = (help,) if isinstance(help, str) else help or ()
    words = [h.word for h in helps if labels and isinstance(h, Instead)]
    fields["fixes"] = (*(Fix(f"Write `{w}`", REPLACE, labels[0].span, w) for w in words), *fields.get("fixes", ()))
    return Diagnostic(page, severity, message, labels, help=helps, **fields)


def to_json(d: Diagnostic, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Convert a diagnostic to JSON, with secrets masked: lines and columns count from 1, columns in code points."""
    labels = [{"file": label.span.file, "text": masked(label.text)} for label in d.labels]
    for out, (file, start, end) in zip(labels, (label.span for label in d.labels), strict=True):
        if source := sources.get(file):
            (line, column), (end_line, end_column) = source.position(start), source.position(end)
            out |= {"line": line, "column": column, "end_line": end_line, "end_column": end_column,
                    "source": masked_line(source.line(line))}  # fmt: skip
    return {"id": d.id, "severity": d.severity, "message": masked(d.message), "labels": labels, "because": d.because,
            "cites": list(d.cites), "help": [*map(masked, d.help)], "values": dict(d.values)}  # fmt: skip


def suggest(word: str, known: list[str], least: float = 0.6) -> tuple[str, ...]:
    """Suggest the known word nearest to `word`, if any; `least` is the lowest similarity (difflib's ratio)."""
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(word, known, 1, least)
    return (Instead(f"did you mean `{near[0]}`?", near[0]),) if near else ()


PAGES = Path(__file__).with_name("pages.md")
_HEADING = re.compile(r"## (\S+) \((.+)\)")
_TEXT = re.compile(r"(  )?- (?:\[([a-z0-9-]+)\] )?(.*)")


@frozen
class Text:
    """A diagnostic's message and helps, with placeholders."""

    message: str
    help: tuple[str, ...]


@frozen
class Page:
    """A diagnostic's page: what it means, why the program is refused, and what to write instead."""

    severities: tuple[str, ...]
    """One severity, or several if it depends on the case."""
    line: int
    """The line of the heading in `pages.md`, from 1."""
    texts: Mapping[str, Text]
    """The texts by name; "" if the page has only one."""
    text: str
    """Several lines of plain text; an indented line is an example of the language."""


@cache
def pages() -> Mapping[str, Page]:
    """Read the page of each id from below its heading ``## ID (SEVERITY)``."""
    lines = PAGES.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("## ")]
    out: dict[str, Page] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = _HEADING.fullmatch(lines[start])
        if heading is None or heading[1] in out:
            raise ValueError(f"{PAGES.name}:{start + 1}: expected `## ID (SEVERITY)`, each id once: {lines[start]}")
        after = next((i for i in range(start + 1, end) if not _TEXT.match(lines[i])), end)
        texts, name = dict[str, Text](), ""
        for line in lines[start + 1 : after]:
            indent, stated, text = _TEXT.fullmatch(line).groups()  # type: ignore[union-attr]
            text = text.replace("\\n", "\n")
            if indent:
                texts[name] = Text(texts[name].message, (*texts[name].help, text))
            else:
                name = stated or ""
                texts[name] = Text(text, ())
        text = "\n".join(lines[after:end]).strip()
        out[heading[1]] = Page(tuple(heading[2].split(" or ")), start + 1, texts, text)
    return out


def require_declared(id: str, severity: str) -> None:
    """Raise ValueError if no page declares this id and severity; an id with two dots is a rule's and has no page."""
    if id.count(".") > 1:
        return
    page = pages().get(id)
    if page is None or severity not in page.severities:
        raise ValueError(f"{PAGES.name} declares no {severity} `{id}`")
