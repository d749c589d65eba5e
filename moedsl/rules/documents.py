"""Read the documents that the stdlib implements, claim by claim: the text, the rules that implement it, the tests that
show it.

The generated page and `moedsl explain` use them; a plan does not load them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from attrs import field, frozen

from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.rules import blocks, library
from moedsl.rules.evaluators import number
from moedsl.rules.library import Library
from moedsl.support import resources
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.source import Source, Span

KINDS = ("rule", "default", "number", "pitfall", "symptom")
"""The kinds of claims."""
IGNORED = ("heading", "link", "licence", "duplicate", "damaged", "prose")
"""Reasons why a line of a text states nothing of its own."""
UNDATED = "undated"
"""For a text without a date of its own."""
_COPY = ("file", "date", *IGNORED)
_DOCUMENT = ("title", "sources", "claim")
_CLAIM = ("says", "where", "kind", "lines", "carried", "behaviour", "shown", "note", "superseded", "left")

Lines = Mapping[str, tuple[int, ...]]


@frozen
class Copy:
    """One file with the text. `ignored` has the lines, counted from 1, that state nothing, by reason."""

    name: str
    file: str
    date: str = UNDATED
    ignored: Lines = field(factory=dict)


@frozen
class Claim:
    """One rule, default, number, pitfall or symptom of a text, in other words."""

    says: str
    where: str
    kind: str
    lines: Lines
    """The lines of the claim, counted from 1, by the name of the copy."""
    span: Span
    carried: tuple[str, ...] = ()
    """Ids of the rules that apply the claim to a plan; several rules may share an id."""
    behaviour: str | None = None
    """What the program does about it, with the command."""
    shown: tuple[str, ...] = ()
    """Tests, ``tests/FILE.py::NAME``."""
    note: str | None = None
    superseded: str | None = None
    """What a newer copy says instead, and the rule that follows it."""
    left: str | None = None
    """The reason if nothing implements it."""


@frozen
class Document:
    """A text, its copies and all its claims, in order."""

    name: str
    title: str
    copies: tuple[Copy, ...]
    claims: tuple[Claim, ...]
    span: Span

    def dates(self, claim: Claim) -> str:
        """The dates of the copies that have a claim, each once."""
        return ", ".join(dict.fromkeys(c.date for c in self.copies if c.name in claim.lines))


@frozen
class Documents:
    """Read every document of the stdlib, and the mistakes in their declarations."""

    documents: tuple[Document, ...]
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]


def load(rules: Iterable[str]) -> Documents:
    """Read the stdlib's documents, checked against the ids of existing rules."""
    return read(library.load(resources.document_files(), parse), rules)


def read(declared: Library, rules: Iterable[str]) -> Documents:
    """Read the documents of a library; without rules, the ids are not checked."""
    reader = _Reader(frozenset(rules), list(declared.diagnostics))
    found = tuple(d for d in map(reader.document, declared.documents.values()) if d is not None)
    return Documents(found, tuple(reader.diagnostics), declared.sources)


def rule_ids(known: Library) -> frozenset[str]:
    """The id of every rule, including those that judge a recipe."""
    return frozenset(
        f"{prefix}.{block.name.id}.{m.name.id}" for prefix, block in known.rules for m in block.members if m.name
    )


def claims_of(rule: str) -> tuple[tuple[Document, Claim], ...]:
    """Every claim that a rule of the stdlib implements, with its document; `rule` is like ``std.mesh.heads``."""
    return _by_rule().get(rule, ())


@cache
def _by_rule() -> Mapping[str, tuple[tuple[Document, Claim], ...]]:
    found: dict[str, tuple[tuple[Document, Claim], ...]] = {}
    for document in load(()).documents:
        for claim in document.claims:
            for rule in claim.carried:
                found[rule] = (*found.get(rule, ()), (document, claim))
    return found


@frozen
class _Reader:
    """Reads declarations as documents and collects their mistakes."""

    rules: frozenset[str]
    diagnostics: list[Diagnostic]

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
        facts = self._facts(_entries(block), _CLAIM, "a claim")
        says, where = self._text(facts, "says", block.name), self._text(facts, "where", block.name)
        kind = self._kind(facts, block.name)
        if says is None or where is None or kind is None:
            return None
        stated, lines = facts.get("lines"), dict[str, tuple[int, ...]]()
        if stated is None:
            self.diagnostics.append(error("check.missing_fact:lines", block.name.span))
        for b in stated.value if stated and isinstance(stated.value, tuple) else ():
            if isinstance(b, ast.Binding):
                if b.name.id not in copies:
                    help = blocks.suggest_or_list(b.name.id, copies)
                    self.diagnostics.append(error("check.unknown_name:source", b.name.span, b=b.name.id, help=help))
                lines[b.name.id] = self._lines(b.value)
        carried = [i for i in self._items(facts.get("carried"), "a list of rules") if isinstance(i, ast.Name)]
        for name in (n for n in carried if self.rules and n.id not in self.rules):
            help = suggest(name.id, [*self.rules]) or ("`moedsl explain rules` lists them",)
            self.diagnostics.append(error("check.unknown_rule", name.span, name=name.id, help=help))
        tests = self._items(facts.get("shown"), "a list of tests")
        shown = tuple(i.value for i in tests if isinstance(i, ast.String))
        rest = {n: self._text(facts, n, block.name) for n in ("behaviour", "note", "superseded", "left") if n in facts}
        ids = tuple(n.id for n in carried)
        claim = Claim(says, where, kind, lines, block.name.span, ids, shown=shown, **rest)
        # Check that a claim has either an implementation and a test, or a reason why not
        borne = bool(claim.carried or claim.behaviour)
        wants = [*(["carried or a behaviour"] if not borne else []), *(["shown"] if not claim.shown else [])]
        if claim.left is None and wants:
            self.diagnostics.append(error("check.no_carrier:nothing", claim.span, wants=" and no ".join(wants)))
        if claim.left is not None and (borne or claim.shown):
            self.diagnostics.append(error("check.no_carrier:left-alone", claim.span))
        return claim

    def _facts(self, entries: Iterable[ast.FactEntry], known: tuple[str, ...], title: str) -> dict[str, ast.FactEntry]:
        stated = blocks.facts(entries, known, title, self.diagnostics, blocks.suggest_or_list)
        return {e.name.id: e for e in stated}

    def _text(self, facts: Mapping[str, ast.FactEntry], name: str, at: ast.Name) -> str | None:
        entry = facts.get(name)
        if entry is None:
            self.diagnostics.append(error("check.missing_fact:needs", at.span, at=at.id, name=name))
            return None
        if isinstance(entry.value, ast.String):
            return entry.value.value
        return self._wrong(entry.name, "a string")

    def _kind(self, facts: Mapping[str, ast.FactEntry], at: ast.Name) -> str | None:
        entry = facts.get("kind")
        if entry is None:
            self.diagnostics.append(error("check.missing_fact:kind", at.span))
        elif not isinstance(entry.value, ast.Name):
            self._wrong(entry.name, f"one of {', '.join(KINDS)}")
        elif entry.value.id in KINDS:
            return entry.value.id
        else:
            word, kinds, help = entry.value, ", ".join(KINDS), suggest(entry.value.id, [*KINDS])
            self.diagnostics.append(error("check.unknown_word:claim", word.span, kinds=kinds, entry=word.id, help=help))
        return None

    def _items(self, entry: ast.FactEntry | None, wanted: str) -> tuple[ast.Expr, ...]:
        if entry is None:
            return ()
        if isinstance(entry.value, ast.List):
            return entry.value.items
        self._wrong(entry.name, wanted)
        return ()

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
                    self.diagnostics.append(error("check.type:lines", item.span))
        return tuple(lines)

    def _wrong(self, name: ast.Name, wanted: str) -> None:
        self.diagnostics.append(error("check.type:kind", name.span, name=name.id, wanted=wanted))


def _entries(entry: ast.FactEntry | None) -> tuple[ast.FactEntry, ...]:
    """The entries of a block."""
    inner = entry.value if entry is not None and isinstance(entry.value, tuple) else ()
    return tuple(e for e in inner if isinstance(e, ast.FactEntry))
