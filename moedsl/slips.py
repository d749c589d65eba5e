"""Statements that people write in the manner of other tools: each known slip, with what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from attrs import frozen

from moedsl import axes
from moedsl.bridge import field_types, fields
from moedsl.build import number_value
from moedsl.diagnostics import REPLACE, Diagnostic, Fix, Instead, Label, error
from moedsl.source import Source, Span
from moedsl.tokens import Lexeme, lexemes

STATEMENTS = (
    "model", "hardware", "seq", "batch", "micro_batch", "precision", "task", "routing", "vlm", "data", "pin",
    "require", "prefer", "allow", "sweep", "isolate", "workflow", "set", "target",
)  # fmt: skip
"""The words that statements of a run start with."""
_WITH_A_VALUE = ("model", "seq", "batch", "micro_batch", "precision", "task", "routing", "data")
OTHER_NAMES = {
    "gbs": "batch", "global_batch": "batch", "global_batch_size": "batch", "batch_size": "batch",
    "mbs": "micro_batch", "micro_batch_size": "micro_batch", "seq_len": "seq", "seq_length": "seq",
    "context": "seq", "context_length": "seq", "dtype": "precision", "dataset": "data", "fix": "pin",
}  # fmt: skip
"""What other tools call the same."""
COUNTS = ("gpu", "gpus", "num_gpus", "node", "nodes", "world_size")
DECLARATIONS = frozenset(["hardware", "model", "cluster", "calibration", "document", "rules", "profile", "run", "use"])
MOST_FIELDS = 3
"""Fields of Bridge that are named for one word."""
_SCALES = {"k": "k", "m": "M", "g": "G"}
_NAMED = re.compile(r"(?:[\w.-]+/)?[\w.-]+\w")
_PATH = re.compile(r"[^\s;#\"]+")
_HARDWARE = re.compile(r"[A-Za-z]+[0-9]+\w*")


@frozen
class Line:
    """A statement that cannot go on: `words` are its lexemes without white space, `at` is which of them it stops at."""

    source: Source
    words: tuple[Lexeme, ...]
    at: int

    @property
    def found(self) -> Lexeme:
        """The word that cannot stand there."""
        return self.words[self.at]

    def span(self, first: Lexeme, last: Lexeme) -> Span:
        """From the one word to the end of the other."""
        return Span(self.source.name, first.start, last.end)

    def written(self, first: Lexeme, last: Lexeme) -> str:
        """The text of that, blanks included."""
        return self.source.text[first.start : last.end]

    def wrong(self, message: str, first: Lexeme, last: Lexeme, help: str, right: str) -> Diagnostic:
        """An error about the words from `first` to `last`, which `right` may replace."""
        return error("parse.unexpected", message, self.span(first, last), help=Instead(help, right))


def slip(source: Source, statement: int, found: Lexeme) -> Diagnostic | None:
    """What was probably meant by the statement at an offset, which cannot go on at `found`; None for no known slip."""
    line = _line(source, statement, found)
    if line is None:
        return None
    return next((d for d in (known(line) for known in SLIPS) if d is not None), None)


def _line(source: Source, statement: int, found: Lexeme) -> Line | None:
    words = tuple(_words(source.text, statement))
    at = next((i for i, w in enumerate(words) if w.start == found.start), None)
    return None if at is None else Line(source, words, at)


def _words(text: str, start: int) -> Iterator[Lexeme]:
    """The lexemes of one line or statement."""
    begun = False
    for word in lexemes(text, start):
        if begun and (word.kind in ("newline", "semicolon") or word.text in ("{", "}")):
            return
        if word.kind not in ("space", "newline", "comment"):
            begun = True
            yield word


# ---------------------------------------------------------------- models and hardware


def _other_name(line: Line) -> Diagnostic | None:
    """``model qwen3-235b-a22b``, ``Qwen/Qwen3-30B-A3B``, ``model "qwen3_30b_a3b"``"""
    named = line.words[0].text in ("model", "hardware")
    if not named and line.words[0].text in STATEMENTS:
        return None
    quoted = named and line.at == 1 and line.found.kind == "string"
    if not quoted and (line.found.text not in ("-", "/") or not 0 < line.at <= 1 + named):
        return None
    first = line.found if quoted else line.words[line.at - 1]
    said = _NAMED.match(line.source.text, first.start + quoted)
    if said is None or (quoted and said.end() != first.end - 1):
        return None
    last = next(w for w in reversed(line.words) if w.end <= said.end() + quoted)
    right = re.sub(r"[^a-z0-9]+", "_", said[0].lower().split("/")[-1])
    text = f"`{said[0]}` is no name: names are words of letters, digits and _, without quotes"
    return line.wrong(text, first, last, f"did you mean `{right}`?", right)


def _times(line: Line) -> Diagnostic | None:
    """``gb200 * 256``"""
    after = line.words[line.at + 1 : line.at + 2]
    if line.found.text not in ("*", "\u00d7", ":", "=", ",") or not after or after[0].kind != "number":
        return None
    if line.found.text not in ("*", "\u00d7") and not _HARDWARE.fullmatch(line.words[line.at - 1].text):
        return None
    if line.at != 1 + (line.words[0].text == "hardware"):
        return None
    name = line.words[line.at - 1]
    right = f"{name.text} x {after[0].text}"
    return line.wrong("a number of GPUs follows `x`", name, after[0], f"write `{right}`", right)


def _count_first(line: Line) -> Diagnostic | None:
    """``256 x gb200``"""
    rest = [w.text for w in line.words[line.at :]]
    if line.at > (line.words[0].text == "hardware") or line.found.kind != "number":
        return None
    if len(rest) == 2 and line.words[-1].kind == "word":
        name = re.sub(r"^x(?=[A-Za-z]+[0-9])", "", rest[1])
    elif len(rest) == 3 and rest[1] in ("x", "X", "*", "\u00d7") and line.words[-1].kind == "word":
        name = rest[2]
    else:
        return None
    right = f"{name} x {rest[0]}"
    return line.wrong("the hardware stands before its number", line.found, line.words[-1], f"write `{right}`", right)


def _nodes(line: Line) -> Diagnostic | None:
    """``gb200 x 64 nodes``"""
    word = line.found.text.lower()
    if word not in ("node", "nodes", "gpu", "gpus") or line.at < 3 or line.words[line.at - 2].text != "x":
        return None
    name, count = line.words[line.at - 3], line.words[line.at - 1]
    if word.startswith("gpu"):
        right = f"{name.text} x {count.text}"
        return line.wrong("the number is of GPUs already", name, line.found, f"write `{right}`", right)
    help = "write the number of GPUs"
    if count.text.isdecimal() and len(count.text) < 10:
        four, eight = (f"`{name.text} x {int(count.text) * n}`" for n in (4, 8))
        help = f"{help}: {count.text} nodes of 4 GPUs are {four}, of 8 {eight}"
    text = "the number is of GPUs, not of nodes"
    return error("parse.unexpected", text, line.span(count, line.found), help=help)


# ---------------------------------------------------------------- values


def _scale_apart(line: Line) -> Diagnostic | None:
    """``seq 128 k``"""
    number = line.words[line.at - 1]
    scale = _SCALES.get(line.found.text.lower())
    if not line.at or scale is None or number.kind != "number" or not number.text.isdecimal():
        return None
    right = number.text + scale
    return line.wrong("a number and its scale are one word", number, line.found, f"write `{right}`", right)


def _equals(line: Line) -> Diagnostic | None:
    """``seq = 4k``, ``batch: 64``"""
    value = line.words[line.at + 1 : line.at + 2]
    if line.at != 1 or line.found.text not in ("=", ":", "==") or not value or line.words[0].text not in _WITH_A_VALUE:
        return None
    right = f"{line.words[0].text} {value[0].text}"
    text = f"the value of `{line.words[0].text}` follows without a sign"
    return line.wrong(text, line.words[0], value[0], f"write `{right}`", right)


def _no_equals(line: Line) -> Diagnostic | None:
    """``pin tp 4``, ``pin tp: 4``, ``set optimizer.lr 3e-4``"""
    name = line.words[line.at - 1]
    value = line.words[line.at + 1 : line.at + 2] if line.found.text in (":", "==") else (line.found,)
    if line.at < 2 or line.words[0].text not in ("pin", "set") or name.kind != "word" or not value:
        return None
    if value[0].kind not in ("number", "word", "string") or line.words[line.at - 2].text == "=":
        return None
    equals = " = " if line.words[0].text == "set" else "="
    right = f"{name.text}{equals}{value[0].text}"
    return line.wrong("a value follows `=`", name, value[0], f"write `{right}`", right)


def _commas(line: Line) -> Diagnostic | None:
    """``pin tp=4, cp=4``"""
    if line.found.text != "," or line.words[0].text != "pin":
        return None
    first, last = line.words[0], line.words[-1]
    right = _without_commas(line.written(first, last))
    fix = Fix(f"Write `{right}`", REPLACE, line.span(first, last), right)
    at = Label(line.span(line.found, line.found))
    return error("parse.unexpected", "no comma stands between pins", at, help=f"write `{right}`", fixes=(fix,))


def _without_commas(text: str) -> str:
    """A text without its commas outside brackets and strings."""
    out, depth = "", 0
    for word in lexemes(text):
        depth += {"open": 1, "close": -1}.get(word.kind, 0)
        out += "" if word.text == "," and not depth else word.text
    return out


def _bare_path(line: Line) -> Diagnostic | None:
    """``data /data/corpus``"""
    if line.words[0].text != "data" or line.at not in (1, 2) or line.found.kind == "string":
        return None
    start = line.words[1]
    path = _PATH.match(line.source.text, start.start)
    if path is None or not re.search(r"[/\\.~]", path[0]):
        return None
    span, right = Span(line.source.name, start.start, path.end()), f'"{path[0]}"'
    return error("parse.unexpected", "a path stands in double quotes", span, help=Instead(f"write `{right}`", right))


# ---------------------------------------------------------------- statements that there are not


def no_statement(source: Source, statement: int, found: Lexeme) -> Diagnostic | None:
    """``sequence 128k``, ``lr 3e-4``, ``tokens 15T``: a word that starts no statement, and a value; else None."""
    line = _line(source, statement, found)
    if line is None or line.at != 1 or line.words[0].kind != "word":
        return None
    word, value = line.words[0], line.found
    if value.kind not in ("number", "string", "word") and value.text not in ("=", ":"):
        return None
    if word.text in (*STATEMENTS, *DECLARATIONS, *axes.PHASES) or _counted(word, value):
        return None
    help = tuple(_instead(word.text, line))
    return error("parse.unexpected", f"`{word.text}` is no statement", line.span(word, word), help=help)


def _counted(word: Lexeme, value: Lexeme) -> bool:
    """``h100 32``, ``gb200 x8``: hardware whose number lacks its `x`."""
    return (_HARDWARE.fullmatch(word.text) is not None and value.kind == "number") or bool(
        re.fullmatch(r"x[0-9]\w*", value.text)
    )


def _instead(word: str, line: Line) -> Iterator[str]:
    meant = _statement_like(word)
    value = next((w.text for w in line.words[1:] if w.text not in ("=", ":")), "...")
    if word in axes.PINNED:
        yield f"an axis is pinned: `pin {word}={value}`"
        return
    if word in COUNTS:
        yield "the hardware has its number: `gb200 x 8`"
        return
    paths = [] if meant else _fields_like(word, value)
    if meant:
        yield Instead(f"did you mean `{meant}`?", meant)
    for path in paths:
        yield f"a field of Bridge is set by its path: `set {path} = {value}`"
    if not meant and not paths:
        yield f"the statements are {', '.join(STATEMENTS)}; the name of a hardware has its number behind `x`"


def _statement_like(word: str) -> str | None:
    """The statement that a word stands for elsewhere, starts with, or is nearly."""
    low = word.lower()
    begun = next((s for s in STATEMENTS if len(s) > 2 and low.startswith(s) and s not in ("set", "task")), None)
    return OTHER_NAMES.get(low) or begun or next(iter(get_close_matches(low, STATEMENTS, 1, 0.7)), None)


def _fields_like(word: str, value: str) -> list[str]:
    """The fields of Bridge with that name, else those whose name ends with it; none where those are many."""
    known = fields.fields(fields.versions()[-1])
    number = number_value(value)
    fit = [p for p, f in known.items() if isinstance(number, str) or field_types.refused(f.type, number[0]) is None]
    exact = [p for p in fit if p.split(".")[-1] == word.lower()]
    ends = [p for p in fit if p.endswith(f"_{word.lower()}")]
    return exact[:MOST_FIELDS] or (ends if len(ends) < MOST_FIELDS else [])


Slip = Callable[[Line], Diagnostic | None]
SLIPS: tuple[Slip, ...] = (
    _other_name,
    _times,
    _count_first,
    _nodes,
    _scale_apart,
    _equals,
    _no_equals,
    _commas,
    _bare_path,
)
"""In order; the first that recognises a statement speaks."""
