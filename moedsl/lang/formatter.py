"""Format text for `moedsl fmt` using only its words, so that nothing is lost.

Blocks are indented by two spaces, and words are separated by one. Statements that shared a line stay together if they
fit. Comments keep their place, and of several blank lines one stays. A statement on several lines has each `because`
and `cite` on a separate line.
"""

from __future__ import annotations

import re
from itertools import groupby, takewhile

from attrs import define, field

from moedsl.lang import ast
from moedsl.lang.parse_errors import RESERVED
from moedsl.lang.parser import parse
from moedsl.lang.printer import canonical_number
from moedsl.lang.tokens import CLAUSES, Lexeme, lexemes
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Source, Span

WIDTH = 100
_ASSIGNS = frozenset(["let", "default", "candidates", "derive", "env", "set", "effect"])
_NO_OPERANDS = (RESERVED | {"require", "prefer"}) - {"true", "false"}
"""Words after which a new operand starts."""


def format(module: ast.Module, source: Source) -> str:
    """Format a source; comments and single blank lines stay. `module` is the parsed source, without an error.

    Raise ValueError if the meaning would change.
    """
    text = layout(source.text)
    again, diagnostics = parse(Source(source.name, text))
    if diagnostics or again != module or comments(text) != comments(source.text):
        raise ValueError("formatting changed the program")
    return text


def format_source(source: Source) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Format a source for `moedsl fmt`; None and the errors if it does not parse, or internal.format (a bug)."""
    module, diagnostics = parse(source)
    if module is None or any(d.is_error for d in diagnostics):
        return None, diagnostics
    try:
        return format(module, source), diagnostics
    except ValueError:
        return None, (error("internal.format", Span(source.name, 0, 0)),)


def comments(text: str) -> list[str]:
    """List all comments in order, without trailing white space."""
    return [x.text.rstrip() for x in lexemes(text) if x.kind == "comment"]


def layout(text: str) -> str:
    """Format a text, which must parse."""
    rows = _rows(_Reader(text).block().entries, 0)
    return "".join(row.rstrip() + "\n" for row in rows)


@define
class _Word:
    """A word of a statement; `broken` if a new line starts before it, `near` if no space precedes it."""

    kind: str
    text: str
    broken: bool
    near: bool
    block: _Block | None = None


@define
class _Line:
    """Statements that share a line, and the comment after them. Without statements: a comment, or a blank line."""

    statements: list[list[_Word]] = field(factory=list)
    comment: str | None = None


@define
class _Block:
    entries: list[_Line] = field(factory=list)
    broken: bool = False
    """Whether it was written on several lines."""


class _Reader:
    """Read the words of a text as blocks of lines of statements."""

    def __init__(self, text: str) -> None:
        self.words = list(lexemes(text))
        self.at = 0

    def peek(self) -> Lexeme | None:
        while self.at < len(self.words) and self.words[self.at].kind == "space":
            self.at += 1
        return self.words[self.at] if self.at < len(self.words) else None

    def block(self) -> _Block:
        """Read up to and including the closing bracket, or to the end."""
        block, line, newlines = _Block(), _Line(), 0
        while (word := self.peek()) is not None and word.text != "}":
            if word.kind == "newline":
                block.broken, newlines, line = True, newlines + 1, _Line()
            elif word.kind != "semicolon":
                if newlines > 1 and block.entries:
                    block.entries.append(_Line())
                if not line.statements:
                    block.entries.append(line)
                newlines = 0
                if word.kind != "comment":
                    line.statements.append(self.statement())
                    continue
                line.comment, block.broken = word.text.rstrip(), True
            self.at += 1
        self.at += 1
        return block

    def statement(self) -> list[_Word]:
        out: list[_Word] = []
        depth, broken = 0, False
        while (word := self.peek()) is not None:
            if depth == 0 and word.kind in ("newline", "comment"):  # unless a clause of the statement is next
                rest = (self.words[i] for i in range(self.at, len(self.words)))
                if next((x.text for x in rest if x.kind not in ("space", "newline", "comment")), "") not in CLAUSES:
                    break
            elif depth == 0 and (word.kind == "semicolon" or word.text == "}"):
                break
            if word.kind == "newline":
                broken = True
                self.at += 1
                continue
            depth += (word.text in ("(", "[")) - (word.text in (")", "]"))
            near = self.at > 0 and self.words[self.at - 1].kind not in ("space", "newline")
            names = not out or [w.text for w in out] == ["model"]
            word = (self.hub() if names else None) or word
            self.at += 1
            inner = self.block() if word.text == "{" else None
            text = canonical_number(word.text) if word.kind == "number" else word.text.rstrip()
            out.append(_Word(word.kind, text, broken, near, inner))
            broken = False
        return out

    def hub(self) -> Lexeme | None:
        """Return the id of a model of Hugging Face that starts here as one word, and go to its last part."""
        parts = list(takewhile(lambda w: w.kind in ("word", "number", "op", "other"), self.words[self.at :]))
        text = "".join(w.text for w in parts)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", text):
            return None
        self.at += len(parts) - 1
        return Lexeme("word", text, parts[0].start)


def _rows(entries: list[_Line], indent: int) -> list[str]:
    """Format the rows of a block; comments after adjacent lines are aligned."""
    rows: list[str] = []
    behind: dict[int, str] = {}
    for line in entries:
        statements = [_statement_rows(s, indent) for s in line.statements]
        made = [row for statement in statements for row in statement]
        joined = " " * indent + "; ".join(row.strip() for row in made)
        if len(made) == len(statements) > 1 and len(joined) <= WIDTH:
            made = [joined]
        rows += made or [" " * indent + (line.comment or "")]
        if made and line.comment:
            behind[len(rows) - 1] = line.comment
    # Comments after consecutive rows form a group: in it, row number minus comment number is constant
    for _, places in groupby(enumerate(behind), lambda place: place[1] - place[0]):
        group = [row for _, row in places]
        column = max(len(rows[i]) for i in group) + 2
        for i in group:
            rows[i] = rows[i].ljust(column) + behind[i]
    return rows


def _statement_rows(words: list[_Word], indent: int) -> list[str]:
    """Format a statement as one row if it fits, else break it where the text did, before `because`, `cite`, `confirm`
    and `fix`, and inside a block."""
    broken = any(w.broken for w in words) or any(w.block is not None and w.block.broken for w in words)
    if not broken:
        row = " " * indent + _joined(words)
        if len(row) <= WIDTH:
            return [row]
    rows, row, depth, clause = [], " " * indent, 0, 0
    for i, word in enumerate(words):
        depth -= word.text in (")", "]")
        starts = word.kind == "word" and depth == 0 and word.text in ("because", "cite", "confirm", "fix")
        if i and (starts or word.broken):
            clause = 2 if depth == 0 else clause
            rows.append(row)
            row = " " * (indent + 2 * depth + clause)
        row += ("" if not row.strip() else _space(words, i)) + ("" if word.block is not None else word.text)
        depth += word.text in ("(", "[")
        if word.block is not None and not word.block.entries:
            row += "{}"
        elif word.block is not None:
            lines = word.block.entries
            entries = lines if word.block.broken else [_Line([s]) for line in lines for s in line.statements]
            rows += [row + "{", *_rows(entries, indent + 2)]
            row = " " * indent + "}"
    return [*rows, row]


def _joined(words: list[_Word]) -> str:
    """Format a statement, including its block, as one row."""
    out = ""
    for i, word in enumerate(words):
        text = word.text
        if word.block is not None:
            inner = "; ".join(_joined(s) for line in word.block.entries for s in line.statements)
            text = f"{{ {inner} }}" if inner else "{}"
        out += _space(words, i) + text
    return out


def _space(words: list[_Word], i: int) -> str:
    """Return the space between a word and the previous one."""
    if i == 0:
        return ""
    before, word = words[i - 1], words[i]
    if word.kind == "comment":
        return "  "
    if before.text in ("(", "[") or word.text in (")", "]", ",", ":"):
        return ""
    if word.text == "(" and before.kind == "word" and before.text not in _NO_OPERANDS:
        return "" if word.near else " "
    if "=" in (before.text, word.text) and words[0].text not in _ASSIGNS:
        return ""
    if before.text != "-":
        return " "
    # No space after a minus without a left operand; after a statement's first word it is a value's sign
    left = words[i - 2]
    operand = left.kind in ("number", "string", "close") or (left.kind == "word" and left.text not in _NO_OPERANDS)
    return " " if i > 2 and operand else ""
