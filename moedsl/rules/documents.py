"""Read the documents that the stdlib implements, claim by claim: text, rules that implement it, tests that show it.

The generated page and `moedsl explain` use them; a plan does not load them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from attrs import field, frozen

from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.rules import blocks, library
from moedsl.rules.evaluators import number
from moedsl.rules.library import Library
from moedsl.support import resources
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.source import Source, Span

N = TypeVar("N")
KINDS = ("rule", "default", "number", "pitfall", "symptom")
"""The kinds of claims."""
IGNORED = ("heading", "link", "licence", "duplicate", "damaged", "prose")
"""Reasons why a line of a text states no claim."""
UNDATED = "undated"
"""The date of a text that states none."""
_COPY = ("file", "date", *IGNORED)
_DOCUMENT = ("title", "sources", "claim")
_CLAIM = ("says", "where", "kind", "lines", "carried", "behaviour", "shown", "note", "superseded", "left")

Lines = Mapping[str, tuple[int, ...]]


@frozen
class Copy:
    """One file with the text. `ignored` maps a reason to the lines, counted from 1, that state no claim."""

    name: str
    file: str
    date: str = UNDATED
    ignored: Lines = field(factory=dict)


@frozen
class Claim:
    """One rule, default, number, pitfall or symptom that a text states, reworded."""

    says: str
    where: str
    kind: str
    lines: Lines
    """The lines of the claim, counted from 1, by name of copy."""
    span: Span
    carried: tuple[str, ...] = ()
    """Ids of the rules that apply the claim to a plan; several rules may share an id."""
    behaviour: str | None = None
    """What the program does about the claim, with the command."""
    shown: tuple[str, ...] = ()
    """The tests that show it, as ``tests/FILE.py::NAME``."""
    note: str | None = None
    superseded: str | None = None
    """What a newer copy says instead, and the rule that follows the newer copy."""
    left: str | None = None
    """The reason why nothing implements the claim; None if something does."""


@frozen
class Document:
    """A text, its copies and all its claims, in order."""

    name: str
    title: str
    copies: tuple[Copy, ...]
    claims: tuple[Claim, ...]
    span: Span

    def dates(self, claim: Claim) -> str:
        """Return the dates of the copies that contain a claim, each once."""
        return ", ".join(dict.fromkeys(c.date for c in self.copies if c.name in claim.lines))


@frozen
class Documents:
    """Every document of the stdlib, and the errors in their declarations."""

    documents: tuple[Document, ...]
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]


@cache
def load(rules: frozenset[str] = frozenset()) -> Documents:
    """Read the stdlib's documents; with `rules`, check that the rule ids they name exist."""
    return read(library.load(resources.document_files(), parse), rules)


def read(declared: Library, rules: frozenset[str]) -> Documents:
    """Read the documents of a library; with `rules`, check that the rule ids they name exist."""
    reader = _Reader(rules, list(declared.diagnostics))
    found = tuple(d for d in map(reader.document, declared.documents.values()) if d is not None)
    return Documents(found, tuple(reader.found), declared.sources)


def rule_ids(known: Library) -> frozenset[str]:
    """Return the id of every rule, including rules of recipes."""
    return frozenset(
        f"{prefix}.{block.name.id}.{m.name.id}" for prefix, block in known.rules for m in block.members if m.name
    )


def claims_of(rule: str) -> tuple[tuple[Document, Claim], ...]:
    """Return every claim that a rule of the stdlib implements, with its document; `rule` is an id like
    ``std.mesh.heads``."""
    return tuple(
        (document, claim) for document in load().documents for claim in document.claims if rule in claim.carried
    )


@frozen
class _Reader:
    """Reads declarations as documents, and collects their errors in `found`."""

    rules: frozenset[str]
    found: list[Diagnostic]

    def document(self, decl: ast.DocumentDecl) -> Document | None:
        claims = [f for f in decl.facts if f.name.id == "claim"]
        facts = self._facts((*(f for f in decl.facts if f.name.id != "claim"), *claims[:1]), _DOCUMENT, "a document")
        title = self._text(facts, "title", decl.name)
        copies = list[Copy]()
        for e in _entries(facts.get("sources")):
            of = self._facts(_entries(e), _COPY, "a source")
            file, date = self._text(of, "file", e.name), self._text(of, "date", e.name) if "date" in of else UNDATED
            if file is not None and date is not None:
                copies.append(Copy(e.name.id, file, date, {n: self._lines(of[n].value) for n in of if n in IGNORED}))
        names = [c.name for c in copies]
        read = tuple(c for c in (self._claim(f, names) for f in claims) if c is not None)
        return None if title is None else Document(decl.name.id, title, tuple(copies), read, decl.name.span)

    def _claim(self, block: ast.FactEntry, copies: list[str]) -> Claim | None:
        facts, at = self._facts(_entries(block), _CLAIM, "a claim"), block.name
        says, where = self._text(facts, "says", at), self._text(facts, "where", at)
        kind, kinds = self._fact(facts, "kind", at, ast.Name, f"one of {', '.join(KINDS)}"), ", ".join(KINDS)
        if kind is not None and kind.id not in KINDS:
            help = suggest(kind.id, [*KINDS])
            self.found.append(error("check.unknown_word:claim", kind.span, kinds=kinds, word=kind.id, help=help))
        if says is None or where is None or kind is None or kind.id not in KINDS:
            return None
        stated, lines = self._fact(facts, "lines", at, object, ""), dict[str, tuple[int, ...]]()
        for b in stated if isinstance(stated, tuple) else ():
            if isinstance(b, ast.Binding):
                if b.name.id not in copies:
                    help = blocks.suggest_or_list(b.name.id, copies)
                    self.found.append(error("check.unknown_name:source", b.name.span, name=b.name.id, help=help))
                lines[b.name.id] = self._lines(b.value)
        carried = self._fact(facts, "carried", None, ast.List, "a list of rules")
        names = [i for i in carried.items if isinstance(i, ast.Name)] if carried else []
        for name in (n for n in names if self.rules and n.id not in self.rules):
            help = suggest(name.id, [*self.rules]) or None
            self.found.append(error("check.unknown_rule", name.span, name=name.id, help=help))
        tests = self._fact(facts, "shown", None, ast.List, "a list of tests")
        shown = tuple(i.value for i in tests.items if isinstance(i, ast.String)) if tests else ()
        rest = {n: self._text(facts, n, None) for n in ("behaviour", "note", "superseded", "left")}
        ids = tuple(n.id for n in names)
        claim = Claim(says, where, kind.id, lines, at.span, ids, shown=shown, **rest)
        # Check that a claim has either an implementation and a test, or a reason why not
        borne = bool(claim.carried or claim.behaviour)
        wants = [*(["carried or a behaviour"] if not borne else []), *(["shown"] if not claim.shown else [])]
        if claim.left is None and wants:
            self.found.append(error("check.no_carrier:nothing", claim.span, wants=" and no ".join(wants)))
        if claim.left is not None and (borne or claim.shown):
            self.found.append(error("check.no_carrier:left-alone", claim.span))
        return claim

    def _facts(self, entries: Iterable[ast.FactEntry], known: tuple[str, ...], title: str) -> dict[str, ast.FactEntry]:
        stated = blocks.facts(entries, known, title, self.found, blocks.suggest_or_list)
        return {e.name.id: e for e in stated}

    def _fact(
        self, facts: Mapping[str, ast.FactEntry], name: str, needs: ast.Name | None, of: type[N], wanted: str
    ) -> N | None:
        """Return the value of a fact if it has the class `of`, else None.

        Report a value of another class, and a missing fact if `needs` names the block that must state it.
        """
        entry = facts.get(name)
        if entry is not None and isinstance(entry.value, of):
            return entry.value
        if entry is not None:
            self.found.append(error("check.type:kind", entry.name.span, name=name, wanted=wanted))
        elif needs is not None:
            self.found.append(error("check.missing_fact:needs", needs.span, block=needs.id, name=name))
        return None

    def _text(self, facts: Mapping[str, ast.FactEntry], name: str, needs: ast.Name | None) -> str | None:
        text = self._fact(facts, name, needs, ast.String, "a string")
        return text.value if text else None

    def _lines(self, value: Any) -> tuple[int, ...]:
        """Read ``[3, 5-7]`` as 3, 5, 6, 7."""
        lines = list[int]()
        for item in value.items if isinstance(value, ast.List) else (value,):
            match item:
                case ast.Number():
                    lines.append(int(number(item)))
                case ast.Binary(op="-", left=ast.Number() as first, right=ast.Number() as last):
                    lines += range(int(number(first)), int(number(last)) + 1)
                case _:
                    self.found.append(error("check.type:lines", item.span))
        return tuple(lines)


def _entries(entry: ast.FactEntry | None) -> tuple[ast.FactEntry, ...]:
    """Return the entries of a block."""
    inner = entry.value if entry is not None and isinstance(entry.value, tuple) else ()
    return tuple(e for e in inner if isinstance(e, ast.FactEntry))
