"""Recognise statements in the syntax of other tools and suggest ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.field_words import KEYWORDS
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lang.tree_builder import number_value
from moedsl.support.diagnostics import REPLACE, Diagnostic, Fix, Instead, Label, error, suggest
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source, Span

STATEMENTS = (
    "model", "hardware", "seq", "batch", "micro_batch", "precision", "task", "adapter", "routing", "risk", "vlm",
    "data", "weights", "pin", "require", "prefer", "allow", "sweep", "isolate", "workflow", "set", "target",
    "resilience", "for", *KEYWORDS,
)  # fmt: skip
"""The keywords that start statements of a run."""
_NO_NAMES = (*STATEMENTS, *axes.PHASES, "x", "first")
_WITH_A_VALUE = (
    "model", "seq", "batch", "micro_batch", "precision", "task", "adapter", "routing", "risk", "data", *KEYWORDS,
)  # fmt: skip
_SCALES = {"k": "k", "m": "M", "g": "G"}
_UNITS = {
    "seq": ("token", "tokens", "tok"),
    "batch": ("sequence", "sequences", "sample", "samples"),
    "micro_batch": ("sequence", "sequences", "sample", "samples"),
}
_SEQ = re.compile(r"(?<![\w.#])seq[ \t]+([0-9]+[kM]?)(?![\w.])")
_NAMED = re.compile(r"(?:[\w.-]+/)?[\w.-]*\w")
_LISTED = re.compile(r"(\w+)\s*=\s*(\w+(?:\s*,\s*\w+(?!\w|\s*=))+)")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![\w.])")
_HUB_NAME = re.compile(
    r"(?:data|weights)[ \t]+hf[ \t]+(?P<name>[A-Za-z0-9][\w.-]{0,95}(?:/[\w.-]{1,96})?)(?![\w./-])(?![ \t]{0,99}=)"
)
_BITS = re.compile(
    r"\w+[ \t]+(?P<rate>(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)[ \t]*"
    r"(?P<scale>[GT])b(?:ps|its?)?(?:[ \t]*/[ \t]*s)?)(?![\w/])"
)
_PATH = re.compile(r"[^\s;#\"]+")
_LONGEST_MACHINES = 80
"""The longest text, in characters, to read as hardware."""
_NODES_BY_GPUS = re.compile(
    r"(?:hardware\s+)?(?P<first>[A-Za-z]+[0-9]+\w*\s+x?\s*)?(?P<nodes>[0-9]{1,6})\s*[xX*\u00d7]\s*(?P<gpus>[0-9]{1,6})"
    r"(?(first)|\s*[xX*\u00d7]?\s*(?P<last>[A-Za-z]+[0-9]+\w*))"
)
_GPU, _OF = r"(?P<gpu>[a-z]+[0-9]+\w*)", r"(?:\s+(?:x\s*)?(?P<number>[0-9]{1,6}))?"
_RACKS = tuple(map(re.compile, (
    rf"(?:hardware\s+)?{_GPU}\s+sxm[0-9]?{_OF}",
    rf"(?:hardware\s+)?{_GPU}\s+nvl(?P<each>[0-9]{{1,3}}){_OF}",
    rf"(?:hardware\s+)?(?:nvidia\s+)?{_GPU}{_OF}\s+gpus?",
    rf"(?:hardware\s+)?nvidia\s+{_GPU}{_OF}",
    rf"(?P<number>[0-9]{{1,6}})\s*(?:x\s*)?(?:nvidia\s+)?{_GPU}\s+gpus?",
    rf"(?P<nodes>)(?:hardware\s+)?[dh]gx\s+{_GPU}{_OF}",
    rf"(?P<nodes>)(?P<number>[0-9]{{1,6}})\s+nodes?\s+(?:of\s+|x\s*)?{_GPU}",
)))  # fmt: skip
"""NVIDIA's names for machines, each around the name of a GPU."""
HARDWARE = re.compile(r"[A-Za-z]+[0-9]+\w*")
"""Hardware names such as gb200."""
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1), **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60), **dict.fromkeys(("h", "hour", "hours"), 3600),
}  # fmt: skip
"""The seconds in each unit of time."""
LONGEST = 1_000
"""The longest statement to read, in words."""


@frozen
class Line:
    """A statement that does not parse: its lexemes without white space, and the index of the wrong one."""

    source: Source
    words: tuple[Lexeme, ...]
    at: int

    @property
    def found(self) -> Lexeme:
        """The wrong word."""
        return self.words[self.at]

    def span(self, first: Lexeme, last: Lexeme) -> Span:
        """Return the span from the first word to the last."""
        return Span(self.source.name, first.start, last.end)

    def written(self, first: Lexeme, last: Lexeme) -> str:
        """Return the text from the first word to the last, with blanks."""
        return self.source.text[first.start : last.end]

    def wrong(self, message: str, first: Lexeme, last: Lexeme, right: str, help: str = "write `{}`") -> Diagnostic:
        """Make an error for the words from `first` to `last`, with `right` as the replacement."""
        return error("parse.unexpected", message, self.span(first, last), help=Instead(help.format(right), right))


def foreign_syntax(source: Source, statement: int, found: Lexeme) -> Diagnostic | None:
    """Explain the statement at an offset, which fails to parse at `found`; None if its form is unknown."""
    line = line_of(source, statement, found)
    return next(filter(None, (known(line) for known in _FORMS)), None) if line else None


def bare_hub_name(source: Source, statement: int) -> Diagnostic | None:
    """Explain ``data hf org/name``, which never parses, at an offset; None for another statement."""
    found = _HUB_NAME.match(source.text, statement)
    if found is None:
        return None
    right, span = f'"{found["name"]}"', Span(source.name, *found.span("name"))
    return error("parse.unexpected:name", span, help=Instead(f"write `{right}`", right))


def bits(source: Source, fact: int) -> Diagnostic | None:
    """Explain the fact ``network 200 Gb/s`` at an offset in a block; None for another fact."""
    found = _BITS.match(source.text, fact)
    if found is None:
        return None
    right, span = f"{float(found['number']) / 8:g} {found['scale']}B/s", Span(source.name, *found.span("rate"))
    return error("parse.unexpected:bandwidth", span, help=Instead(f"write `{right}`", right))


def line_of(source: Source, statement: int, found: Lexeme) -> Line | None:
    """Split the statement at an offset into words; None if `found` is not among its first words."""
    words: list[Lexeme] = []
    for word in lexemes(source.text, statement):
        ends = word.kind in ("newline", "semicolon") or word.text in ("{", "}")
        if words and (ends or len(words) == LONGEST):
            break
        if word.kind not in ("space", "newline", "comment"):
            words.append(word)
    at = next((i for i, w in enumerate(words) if w.start == found.start), None)
    return None if at is None else Line(source, tuple(words), at)


Form = Callable[[Line], Diagnostic | None]
_FORMS: list[Form] = []
"""The known forms in the order of this file; the first that recognises a statement explains it."""


@_FORMS.append
def _other_name(line: Line) -> Diagnostic | None:
    """Report an id or quoted name: ``model qwen3-235b-a22b``, ``Qwen/Qwen3-30B-A3B``, ``model "qwen3_30b_a3b"``."""
    keyword = line.words[0].text in ("model", "hardware")
    if not keyword and line.words[0].text in STATEMENTS:
        return None
    quoted = keyword and line.at == 1 and line.found.kind == "string"
    if not quoted and (line.found.text not in ("-", "/") or not 0 < line.at <= 1 + keyword):
        return None
    first = line.found if quoted else line.words[line.at - 1]
    named = _name_like(line, first)
    if named is None:
        return None
    right, last = named
    said = line.written(first, last)
    if said == right:
        return None
    text = "a name has no quotes" if quoted else f"`{said}` is not a name: a name has letters, digits and _"
    return line.wrong(text, first, last, right, "did you mean `{}`?")


@_FORMS.append
def _spaced_name(line: Line) -> Diagnostic | None:
    """Report a name with blanks: ``model Nemotron 3 Super``; without `model`, if it starts with a capital or is a model
    of the stdlib (``nemotron 3 super``)."""
    first = int(line.words[0].text == "model")
    name = line.words[first:]
    if len(name) < 2 or any(w.kind not in ("word", "number") or w.text in _NO_NAMES for w in name):
        return None
    right = re.sub(r"\W+", "_", line.written(name[0], name[-1]).lower())
    if right not in {file.stem for file in (stdlib_dir() / "models").glob("*.moe")}:
        begins = first or name[0].text[0].isupper()
        if len(name) < 3 or line.at > first + 1 or not begins or HARDWARE.fullmatch(name[0].text):
            return None
    return line.wrong("a name has no blanks", name[0], name[-1], right, "did you mean `{}`?")


@_FORMS.append
def _rack(line: Line) -> Diagnostic | None:
    """Report NVIDIA's machine names: ``h100 sxm x 16``, ``GB200 NVL72 x 2``, ``DGX H100 x 2``, ``2 nodes of h100``."""
    first, last = line.words[0], line.words[-1]
    text = line.written(first, last).lower()
    named = next((m for form in _RACKS if len(text) <= _LONGEST_MACHINES and (m := form.fullmatch(text))), None)
    if named is None:
        return None
    of = named.groupdict(default="")
    number = int(of["number"] or 1)
    if "nodes" in of:
        span, gpu = line.span(first, last), of["gpu"]
        return error("parse.unexpected:all-gpus", span, gpu=gpu, by_four=number * 4, by_eight=number * 8)
    right = f"{of['gpu']} x {number * int(of.get('each') or 1)}" if of["number"] or of.get("each") else of["gpu"]
    return line.wrong("write the hardware and the number of all GPUs", first, last, right)


@_FORMS.append
def _times(line: Line) -> Diagnostic | None:
    """Report another sign than `x` before the number of GPUs: ``gb200 * 256``."""
    after = line.words[line.at + 1 : line.at + 2]
    if line.found.text not in ("*", "\u00d7", ":", "=", ",") or not after or after[0].kind != "number":
        return None
    if line.found.text not in ("*", "\u00d7") and not HARDWARE.fullmatch(line.words[line.at - 1].text):
        return None
    if line.at != 1 + (line.words[0].text == "hardware"):
        return None
    name = line.words[line.at - 1]
    right = f"{name.text} x {after[0].text}"
    return line.wrong("write `x` before the number of GPUs", name, after[0], right)


@_FORMS.append
def _count_first(line: Line) -> Diagnostic | None:
    """Report a number before the hardware: ``256 x gb200``."""
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
    return line.wrong("write the hardware first", line.found, line.words[-1], right)


@_FORMS.append
def _nodes_by_gpus(line: Line) -> Diagnostic | None:
    """Report nodes times GPUs: ``16 x 8 h100``, ``h100 x 16 x 8``."""
    first, last = line.words[0], line.words[-1]
    text = line.written(first, last)
    product = _NODES_BY_GPUS.fullmatch(text) if len(text) <= _LONGEST_MACHINES else None
    if product is None:
        return None
    name = product["last"] or product["first"].split()[0]
    right = f"{name} x {int(product['nodes']) * int(product['gpus'])}"
    return line.wrong("write the number of all GPUs", first, last, right)


@_FORMS.append
def _nodes(line: Line) -> Diagnostic | None:
    """Report a number of nodes, or a unit after the number of GPUs: ``gb200 x 64 nodes``."""
    word = line.found.text.lower()
    if word not in ("node", "nodes", "gpu", "gpus") or line.at < 3 or line.words[line.at - 2].text != "x":
        return None
    name, count = line.words[line.at - 3], line.words[line.at - 1]
    if word.startswith("gpu"):
        right = f"{name.text} x {count.text}"
        return line.wrong("the number already counts GPUs", name, line.found, right)
    help = "write the number of GPUs"
    if count.text.isdecimal() and len(count.text) < 10:
        four, eight = (f"`{name.text} x {int(count.text) * n}`" for n in (4, 8))
        help = f"{help}: {count.text} nodes of 4 GPUs are {four}, of 8 {eight}"
    return error("parse.unexpected:counts", line.span(count, line.found), help=help)


@_FORMS.append
def _seconds(line: Line) -> Diagnostic | None:
    """Report a unit of time in a condition: ``require step_time < 10 s``."""
    number, one = line.words[line.at - 1], _SECONDS.get(line.found.text.lower())
    if not line.at or one is None or number.kind != "number" or line.words[0].text not in ("require", "prefer"):
        return None
    amount = number_value(number.text)
    if isinstance(amount, str):
        return None
    right = f"{float(amount[0]) * one:g}"
    return line.wrong("a time is a number of seconds", number, line.found, right)


@_FORMS.append
def _scale_apart(line: Line) -> Diagnostic | None:
    """Report a blank between a number and its scale: ``seq 128 k``."""
    number = line.words[line.at - 1]
    scale = _SCALES.get(line.found.text.lower())
    if not line.at or scale is None or number.kind != "number" or not number.text.isdecimal():
        return None
    right = number.text + scale
    return line.wrong("no blank between a number and its scale", number, line.found, right)


@_FORMS.append
def _unit(line: Line) -> Diagnostic | None:
    """Report a unit after a count: ``seq 4096 tokens``, ``batch 64 samples``."""
    keyword, number = line.words[0], line.words[line.at - 1]
    if line.at == 2 and keyword.text == "batch" and line.found.text.lower() in _UNITS["seq"]:
        # ``batch 4M tokens``: suggest the number of sequences if the file states one sequence length
        text = "`batch` counts sequences, not tokens"
        amounts = [number_value(n) for n in (number.text, *{*_SEQ.findall(line.source.text)})]
        tokens, *lengths = (a[0] for a in amounts if not isinstance(a, str))
        if len(amounts) == 2 and lengths and 0 < lengths[0] <= tokens:
            right = str(int(tokens // lengths[0]))
            help = f"write `batch {right}`: {right} of {int(lengths[0])} tokens"
            return line.wrong(text, number, line.found, right, help)
        help = "divide the tokens by the sequence length: in sequences of 4096, 4M tokens are `batch 1024`"
        return error("parse.unexpected", text, line.span(number, line.found), help=help)
    if line.at != 2 or line.found.text.lower() not in _UNITS.get(keyword.text, ()) or number.kind != "number":
        return None
    what = "tokens" if keyword.text == "seq" else "sequences"
    text = f"the number of `{keyword.text}` already counts {what}"
    return line.wrong(text, number, line.found, number.text)


@_FORMS.append
def _equals(line: Line) -> Diagnostic | None:
    """Report `=` or `:` after a keyword: ``seq = 4k``, ``batch: 64``."""
    value = line.words[line.at + 1 : line.at + 2]
    if line.at != 1 or line.found.text not in ("=", ":", "==") or not value or line.words[0].text not in _WITH_A_VALUE:
        return None
    keyword = line.words[0].text
    named = _name_like(line, value[0]) if keyword == "model" else None
    written, last = named or (value[0].text if keyword in ("data", *KEYWORDS) else value[0].text.strip('"'), value[0])
    right = f"{keyword} {written}"
    return line.wrong(f"no `=` or `:` after `{keyword}`", line.words[0], last, right)


@_FORMS.append
def _no_equals(line: Line) -> Diagnostic | None:
    """Report a value without `=`: ``pin tp 4``, ``pin tp: 4``, ``set optimizer.lr 3e-4``."""
    name = line.words[line.at - 1]
    value = line.words[line.at + 1 : line.at + 2] if line.found.text in (":", "==") else (line.found,)
    if line.at < 2 or line.words[0].text not in ("pin", "set") or name.kind != "word" or not value:
        return None
    if value[0].kind not in ("number", "word", "string") or line.words[line.at - 2].text == "=":
        return None
    equals = " = " if line.words[0].text == "set" else "="
    right = f"{name.text}{equals}{value[0].text}"
    return line.wrong("write `=` before the value", name, value[0], right)


@_FORMS.append
def _thousands(line: Line) -> Diagnostic | None:
    """Report commas between digits: ``seq 4,096``."""
    number = line.words[line.at - 1]
    grouped = _GROUPED.match(line.source.text, number.start) if line.at else None
    if grouped is None:
        return None
    right, span = grouped[0].replace(",", ""), Span(line.source.name, *grouped.span())
    return error("parse.unexpected:digits", span, help=Instead(f"write `{right}`", right))


@_FORMS.append
def _commas(line: Line) -> Diagnostic | None:
    """Report commas in a pin: ``pin tp=4, cp=4``, ``pin recompute=moe_act, layernorm``, ``pin tp=1, 2``."""
    if line.found.text != "," or line.words[0].text != "pin":
        return None
    first, last = line.words[0], line.words[-1]
    several = [m for m in _LISTED.finditer(line.written(first, last)) if m[1] not in axes.SETS]
    if several:
        axis, values = several[0].groups()
        return error("parse.unexpected:many-values", line.span(first, last), axis=axis, listed=values)
    # Remove the commas outside brackets and strings
    text = _LISTED.sub(r"\1=[\2]", line.written(first, last))
    out, depth = "", 0
    for word in lexemes(text):
        depth += {"open": 1, "close": -1}.get(word.kind, 0)
        out += " " if word.text == "," and not depth else word.text
    right = re.sub(r" +", " ", out)
    fix = Fix(f"Write `{right}`", REPLACE, line.span(first, last), right)
    at = Label(line.span(line.found, line.found))
    return error("parse.unexpected:pins", at, right=right, fixes=(fix,))


@_FORMS.append
def _bare_path(line: Line) -> Diagnostic | None:
    """Report a path without quotes: ``data /data/corpus``."""
    if line.words[0].text != "data" or line.at not in (1, 2) or line.found.kind == "string":
        return None
    path = _PATH.match(line.source.text, line.words[1].start)
    if path is None or not re.search(r"[/\\.~]", path[0]):
        return None
    right, span = f'"{path[0]}"', Span(line.source.name, *path.span())
    return error("parse.unexpected:path", span, help=Instead(f"write `{right}`", right))


@_FORMS.append
def _several(line: Line) -> Diagnostic | None:
    """Report several statements on one line without `;`: ``qwen3_30b_a3b gb200 x 64 seq 4k``."""
    starts: list[int] = []  # the words that start a statement, judging by their neighbours
    texts = [w.text for w in line.words]
    for i in range(max(line.at, 1), len(texts)):
        before, word, after = texts[i - 1], texts[i], texts[i + 1 : i + 2]
        hardware = HARDWARE.fullmatch(word) is not None and after == ["x"]
        begins = hardware or word in STATEMENTS or (word in axes.PHASES and after == ["first"])
        if begins and before not in ("sweep", "isolate", "allow", "=", ",") and after not in (["="], [":"]):
            starts.append(i)
    first = line.words[0].text
    if line.at not in starts or (first not in STATEMENTS and suggest(first, list(STATEMENTS))):
        return None
    pieces = [line.words[a:b] for a, b in pairwise([line.at, *starts[1:], len(line.words)])]
    rest = "; ".join(line.written(p[0], p[-1]) for p in pieces)
    before = line.words[line.at - 1]
    fix = Fix(f"Write `; {rest}`", REPLACE, Span(line.source.name, before.end, line.words[-1].end), f"; {rest}")
    return error("parse.unexpected:statements", line.span(line.found, line.found), rest=rest, fixes=(fix,))


def _name_like(line: Line, first: Lexeme) -> tuple[str, Lexeme] | None:
    """Return our name for a Hugging Face id, quoted or not, and the id's last word; None if it is no id."""
    quoted = first.kind == "string"
    said = _NAMED.match(line.source.text, first.start + quoted)
    if said is None or (quoted and said.end() != first.end - 1):
        return None
    last = next(w for w in reversed(line.words) if w.end <= said.end() + quoted)
    return re.sub(r"[^a-z0-9]+", "_", said[0].lower().split("/")[-1]), last
