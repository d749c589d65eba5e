"""Expand the words of a shell script: variables, parameter expansions, arithmetic and tests, from tree-sitter's nodes.

A value that the script does not determine is a piece with `holes`: the names of the variables that are missing.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

DEEPEST = 60
"""The deepest nesting of syntax, functions and texts of `eval` that is followed."""
LONGEST = 20_000
"""The most characters of one value."""


@frozen
class Piece:
    """A part of a word from one line. If `holes` is not empty, `text` is the script's own text, such as `${NAME}`."""

    text: str
    line: int
    quoted: bool = True
    """Whether the piece stays one word; an unquoted expansion is split at blanks."""
    holes: tuple[str, ...] = ()
    unset: bool = False
    """Whether the piece is a variable that nothing sets, which bash expands to nothing."""


Text = tuple[Piece, ...]


@frozen
class Word:
    """One word of a command."""

    pieces: Text

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.pieces)

    @property
    def line(self) -> int:
        return self.pieces[0].line if self.pieces else 0

    @property
    def holes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for p in self.pieces for n in p.holes))


class Unknown(Exception):
    """A value that the script does not determine, with the names of what is missing."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


_ARITHMETIC: Mapping[str, Callable[[int, int], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<<": operator.lshift, ">>": operator.rshift,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1), "**": operator.pow,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "&&": lambda a, b: bool(a and b), "||": lambda a, b: bool(a or b),
}  # fmt: skip
_NUMERIC = {"-eq": "==", "-ne": "!=", "-lt": "<", "-gt": ">", "-le": "<=", "-ge": ">="}
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+", ":?", "?")
_OF_SLURM = "SLURM_"
"""Variables of a job: nothing in a script sets them, and yet they are not empty."""


@define
class Expander:
    """The variables at one point of a script. Each is a list of texts, of which a scalar has one."""

    given: Mapping[str, str]
    """The variables that the user supplies, which also fill holes."""
    variables: dict[str, list[Text]] = field(factory=dict)
    positional: list[Text] = field(factory=list)
    starts: list[tuple[int, int]] = field(factory=lambda: [(0, 1)])
    """The first byte of each line of the text that is read, and the line of the script that it came from."""
    depth: int = 0

    def line(self, node: Any, at: int = 0) -> int:
        """Return the script's line at byte `at` of a node."""
        return self.starts[bisect_right(self.starts, (node.start_byte + at, 1 << 60)) - 1][1]

    def hole(self, node: Any, *names: str, unset: bool = False) -> Text:
        return (Piece(source(node).strip(), self.line(node), False, names, unset),)

    def assign(self, name: str, text: Text, appends: bool = False) -> None:
        """Assign a scalar. A hole that no variable names gets this one's name, which the user can then supply."""
        if name in self.given and any(p.holes and not {*p.holes} & {*self.given} for p in text):
            text = (Piece(self.given[name], text[0].line),)
        own = [evolve(p, holes=tuple(n if n.isalnum() or n.isidentifier() else name for n in p.holes)) for p in text]
        old = self.variables.get(name) or [()]
        joined = (*old[0], *own) if appends else tuple(own)
        if sum(len(p.text) for p in joined) > LONGEST:
            joined = (Piece(f"${name}", joined[0].line, True, (name,)),)
        self.variables[name] = [joined, *(old[1:] if appends else ())]

    def forget(self, name: str, line: int) -> None:
        """Make a variable unknown, unless the user supplies it."""
        known = self.given.get(name)
        self.variables[name] = [
            (Piece(f"${name}", line, False, (name,)) if known is None else Piece(known, line, False),)
        ]

    def words(self, node: Any) -> list[Word]:
        """Return the words that a node becomes: several for an array or an unquoted expansion, none for nothing."""
        if node.type == "comment":
            return []
        inner = node.named_children[0] if node.type == "string" and node.named_child_count == 1 else None
        if inner is not None and source(node).strip() == f'"{source(inner).strip()}"':
            found = re.fullmatch(r"\$\{(\w+|@)\[?@?\]?\}|\$(@)", source(inner).strip())
            if found and "@" in source(inner):  # the elements of an array, each one word
                values = self.values(found[1] or "@")
                return [Word(self.hole(inner, found[1]))] if values is None else [Word(v) for v in values]
        return [Word(w) for w in split(self.text(node))]

    def values(self, name: str) -> list[Text] | None:
        """Return a variable's texts, None if nothing sets it."""
        if name in ("@", "*"):
            return self.positional
        if name.isdigit() and 0 < int(name) <= len(self.positional):
            return [self.positional[int(name) - 1]]
        return self.variables.get(name)

    def text(self, node: Any) -> Text:
        """Return the text of a node, in pieces."""
        self.depth += 1
        try:
            raw = source(node)
            if self.depth > DEEPEST:
                return self.hole(node, raw[:40])
            match node.type:
                case "string" | "translated_string":
                    return self._in_quotes(node)
                case "raw_string":
                    return self._lines(raw.strip()[1:-1], node)
                case "ansi_c_string":
                    return self._lines(raw[2:-1].replace("\\n", "\n").replace("\\t", "\t"), node)
                case "concatenation" | "command_name":
                    return tuple(p for c in node.children for p in self.text(c))
                case "simple_expansion":
                    return self._braces(node, f"${{{raw.strip()[1:]}}}")
                case "expansion":
                    return self._braces(node, raw.strip())
                case "arithmetic_expansion":
                    try:
                        return (Piece(str([self.number(c) for c in node.named_children][-1]), self.line(node), False),)
                    except (Unknown, IndexError) as e:
                        return self.hole(node, *(getattr(e, "names", ()) or (raw,)))
                case "command_substitution":
                    return self.substitution(node)
                case _:
                    return self._lines(re.sub(r"\\(?:\n|(.))", lambda m: m[1] or "", raw, flags=re.S), node)
        finally:
            self.depth -= 1

    def substitution(self, node: Any) -> Text:
        """Return what a command prints, where that is known."""
        return self.hole(node, source(node).strip())

    def _lines(self, text: str, node: Any) -> Text:
        parts = text.splitlines(keepends=True) or [""]
        return tuple(Piece(part, self.line(node) + i) for i, part in enumerate(parts))

    def _in_quotes(self, node: Any) -> Text:
        """Read a text in double quotes; the grammar puts blanks before an expansion into its first token."""
        raw, out = node.text, list[Piece]()
        first = raw.index(b'"') + 1 if b'"' in raw else 0

        def literal(begin: int, end: int) -> None:
            for part in raw[begin:end].splitlines(keepends=True):
                plain = re.sub(r"\\([\"$`\\\n])", lambda m: m[1].strip("\n"), part.decode("utf-8", "replace"))
                out.append(Piece(plain, self.line(node, begin)))
                begin += len(part)

        for child in node.named_children:
            if child.type != "string_content":
                literal(first, child.start_byte - node.start_byte + len(child.text) - len(child.text.lstrip()))
                out += [evolve(p, quoted=True) for p in self.text(child)]
                first = child.end_byte - node.start_byte
        literal(first, len(raw) - raw.endswith(b'"'))
        return tuple(out) or (Piece("", self.line(node)),)

    def _braces(self, node: Any, raw: str) -> Text:
        """Read `${...}`: a variable or an array, its length, a default, or a part that is cut off or replaced."""
        if raw == "${#}":
            return (Piece(str(len(self.positional)), self.line(node)),)
        found = re.fullmatch(r"\$\{([#!]?)(\w+|[@*])(?:\[(@|\*|\w+)\])?(:?[-=+?]|%%?|##?|//?)?(.*)\}", raw, re.S)
        if not found or found[1] == "!":
            return self.hole(node, raw.strip("${}"))
        length, name, index, sign, _ = found.groups()
        values, line = self.values(name), self.line(node)
        if values is not None and index not in ("@", "*") and name not in ("@", "*"):
            at = int(index) if index and index.isdigit() else 0
            values = values[at : at + 1] or None
        if length and values is not None:
            return (Piece(str(len(values) if index else len(Word(values[0]).text)), line),)
        operators = [c for c in node.children if c.text.decode("utf-8", "replace").strip() == sign]
        after = [c for c in node.named_children if operators and c.start_byte >= operators[0].end_byte]
        if sign in _DEFAULTS:
            empty = values is None or (sign[0] == ":" and not any(p.holes or p.text for v in values for p in v))
            if sign[-1] == "?" or (sign[-1] == "+" and empty):
                return () if sign[-1] == "+" else self.hole(node, name) if empty else unquoted(values or (), line)
            if not empty and sign[-1] != "+":
                return unquoted(values or (), line)
            other = tuple(evolve(p, quoted=False) for c in after for p in self.text(c))
            if sign[-1] == "=":
                self.assign(name, other)
            return other
        if values is None:
            return self.hole(node, name, unset=not (sign or length or name == "0" or name.startswith(_OF_SLURM)))
        return unquoted([self._changed(v, sign, after) for v in values] if sign else values, line)

    def _changed(self, text: Text, sign: str, after: list[Any]) -> Text:
        """Cut a pattern off a text, or replace it."""
        if not text or any(p.holes for p in text):
            return text
        plain, parts = Word(text).text, [plain_text(self.text(c)) for c in after]
        pattern, line = parts[0] if parts else "", text[0].line
        if sign[0] == "/":
            changed = plain.replace(pattern, "".join(parts[1:]), -1 if sign == "//" else 1)
            return (Piece(changed, line, False),)
        for at in range(len(plain) + 1) if sign in ("%%", "#") else range(len(plain), -1, -1):
            part, rest = (plain[at:], plain[:at]) if sign[0] == "%" else (plain[:at], plain[at:])
            if fnmatch.fnmatchcase(part, pattern):
                return (Piece(rest, line, False),)
        return text

    def number(self, node: Any) -> int:
        """Evaluate an arithmetic expression; raises Unknown."""
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise Unknown(source(node)[:40])
            return self._arithmetic(node)
        finally:
            self.depth -= 1

    def _arithmetic(self, node: Any) -> int:
        children, raw = node.named_children, source(node).strip()
        sign = node.child_by_field_name("operator")
        match node.type:
            case "binary_expression" if sign is not None and len(children) >= 2:
                left, right = children[0], children[-1]
                word, b = source(sign), self.number(right)
                if word[-1] == "=" and word not in _ARITHMETIC:
                    value = b if word == "=" else self._combined(word[:-1], self.number(left), b, raw)
                    self.assign(source(left), (Piece(str(value), self.line(node)),))
                    return value
                return self._combined(word, self.number(left), b, raw)
            case "unary_expression" if len(children) == 1 and source(node.children[0]) in "-+!~":
                value = self.number(children[0])
                return {"-": -value, "!": int(not value), "+": value, "~": ~value}[source(node.children[0])]
            case "ternary_expression" if len(children) == 3:
                return self.number(children[1] if self.number(children[0]) else children[2])
            case "parenthesized_expression" if children:
                return self.number(children[0])
            case _:
                text = self._braces(node, f"${{{raw}}}") if raw.isidentifier() else self.text(node)
        for _ in range(DEEPEST):  # a value may be the name of another variable
            if any(p.holes for p in text):
                raise Unknown(*Word(text).holes)
            plain = Word(text).text.strip()
            if re.fullmatch(r"-?\d{1,18}", plain):
                return int(plain)
            if not plain.isidentifier():
                break
            text = self._braces(node, f"${{{plain}}}")
        raise Unknown(raw)

    def _combined(self, sign: str, a: int, b: int, raw: str) -> int:
        fails = (sign in "/%" and b == 0) or (sign in ("**", "<<", ">>") and not 0 <= b < 63)
        value = None if fails or sign not in _ARITHMETIC else int(_ARITHMETIC[sign](a, b))
        if value is None or abs(value) >= 1 << 63:
            raise Unknown(raw)
        return value

    def test(self, node: Any) -> bool:
        """Evaluate what stands between the brackets of a test; raises Unknown."""
        children, sign = node.named_children, node.child_by_field_name("operator")
        if node.type == "parenthesized_expression" and children:
            return self.test(children[0])
        if node.type == "unary_expression" and children:
            word = source(node.children[0])
            if word == "!":
                return not self.test(children[-1])
            if word not in ("-z", "-n"):
                raise Unknown(word)
            return bool(self._known(children[-1])) == (word == "-n")
        if node.type != "binary_expression" or sign is None or len(children) < 2:
            return bool(self._known(node))
        left, right, word = children[0], children[-1], source(sign)
        if word in ("&&", "-a"):
            return self.test(left) and self.test(right)
        if word in ("||", "-o"):
            return self.test(left) or self.test(right)
        a, b = self._known(left), self._known(right)
        if word in _NUMERIC and all(re.fullmatch(r"\s*-?\d{1,18}\s*", x) for x in (a, b)):
            return bool(_ARITHMETIC[_NUMERIC[word]](int(a), int(b)))
        if word not in ("=", "==", "!="):
            raise Unknown(word)
        return fnmatch.fnmatchcase(a, b) == (word != "!=")

    def _known(self, node: Any) -> str:
        text = self.text(node)
        if missing := [n for p in text if not p.unset for n in p.holes]:
            raise Unknown(*missing)
        return plain_text(text)


def source(node: Any) -> str:
    """Return the script's text of a node."""
    return node.text.decode("utf-8", "replace")


def plain_text(text: Text) -> str:
    """Return a text in which a variable that nothing sets is empty."""
    return "".join("" if p.unset else p.text for p in text)


def unquoted(values: Iterable[Text], line: int) -> Text:
    """Join texts with blanks, each to be split again."""
    out: list[Piece] = []
    for value in values:
        out += [Piece(" ", line, False)] if out else []
        out += [evolve(p, quoted=False) for p in value]
    return tuple(out)


def split(text: Text) -> list[Text]:
    """Split the unquoted pieces of a text at blanks into words, as bash does after an expansion."""
    out: list[list[Piece]] = [[]]
    for p in text:
        parts = [p.text] if p.quoted or p.holes else re.split(r"\s+", p.text)
        for i, part in enumerate(parts):
            out += [[]] if i else []
            out[-1] += [evolve(p, text=part)] if part or p.quoted else []
    return [tuple(w) for w in out if w]
