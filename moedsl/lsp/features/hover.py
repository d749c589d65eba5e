"""Describe the word under the cursor, and for a decided value the value and the reason."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types

from moedsl.facts import axes, fields
from moedsl.facts.symbols import ALIASES
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lsp import describe
from moedsl.lsp.document import Document
from moedsl.lsp.offers_run import hardware_doc, model_doc
from moedsl.lsp.place import Around, place
from moedsl.planner.decisions import Decision
from moedsl.rules.rule import Rule


def answer(document: Document, params: types.HoverParams) -> types.Hover | None:
    """The text for the word at a position; None if it has no meaning."""
    word = _word(document, document.lines.offset(params.position))
    if word is None:
        return None
    parts = list(dict.fromkeys(_parts(document, word)))
    if not parts:
        return None
    markdown = document.client.hover_markdown
    kind = types.MarkupKind.Markdown if markdown else types.MarkupKind.PlainText
    text = "\n\n---\n\n".join(parts)
    content = types.MarkupContent(kind, text if markdown else describe.plain(text))
    return types.Hover(content, document.lines.range(word.start, word.end))


def _word(document: Document, offset: int) -> Lexeme | None:
    """The word that contains or ends at an offset."""
    line = document.lines.line_of(offset)
    start, end = document.lines.starts[line], document.lines.end(line)
    for x in lexemes(document.text[start:end]):
        if x.kind == "word" and start + x.start <= offset <= start + x.end:
            return Lexeme(x.kind, x.text, start + x.start)
    return None


def _parts(document: Document, word: Lexeme) -> Iterator[str]:
    """All meanings of the word at this place, the main one first."""
    a = Around(document, document.analysis, place(document.text, word.start))
    if not a.at.accepts and not a.at.string:
        return
    found = [d for d in (*_by_place(a, word.text),) if d]
    yield from found
    if not found:
        yield from (d for d in (describe.keyword(word.text), _let(a, word.text), describe.name(word.text)) if d)
    yield from _decided(a, ALIASES.get(word.text, word.text))


def _by_place(a: Around, word: str) -> Iterator[str | None]:
    """The meaning of the word that follows from its statement."""
    first = a.said[0] if a.said else ""
    if a.at.block in describe.BLOCKS and word != "cite":
        yield describe.page(a.at.block, word, a.known.library)
    elif first == "allow" and len(a.said) == 1:
        yield _rule(a, word)
    elif first == "set" and len(a.said) == 1:
        known = fields.lookup(word)
        yield describe.field(known) if known else None
    elif not a.said or (first in ("model", "hardware") and len(a.said) == 1):
        yield from _bare(a, word)
    elif first in ("require", "prefer", "let", "measured") and len(a.said) == 1:
        yield _own(a, word)


def _bare(a: Around, word: str) -> Iterator[str | None]:
    """Describe a bare name: a phase, a model, hardware or a profile; or the keyword that starts the statement."""
    library = a.known.library
    yield describe.keyword(word) if not a.said else None
    if word in axes.PHASES:
        yield f"**{word} first**, a phase\n\n{describe.PHASES[word]}"
    elif word in library.models:
        yield model_doc(a.known, word)
    elif word in library.hardware:
        yield hardware_doc(a.known, word)
    elif word in library.profiles:
        yield _profile(a, word)


def _profile(a: Around, word: str) -> str:
    span = a.known.library.profiles[word].span
    source = a.known.library.sources.get(span.file)
    text = source.text[span.start : span.end] if source else word
    return f"**{word}**, a profile\n\n```moe\n{text}\n```"


def _rule(a: Around, word: str) -> str | None:
    found = next((r for r in a.rules if word in (r.id, r.id.split(".", 1)[1])), None)
    return describe.rule(found, a.known.library.sources) if found else None


def _own(a: Around, word: str) -> str | None:
    """Describe a rule or wish at its declaration."""
    name = a.document.source.name
    own = (r for r in a.rules if r.name == word and r.span.file == name and r.kind == a.said[0])
    found: Rule | None = next(own, None)
    return describe.rule(found, a.known.library.sources) if found else None


def _let(a: Around, word: str) -> str | None:
    found = next((r for r in reversed(a.rules) if r.kind == "let" and r.name == word), None)
    return describe.rule(found, a.known.library.sources) if found else None


def _decided(a: Around, name: str) -> Iterator[str]:
    """Write the value in each run of the place, with origin and reason."""
    plans = a.document.plan.plans if a.document.plan else ()
    run = next((b.name for b in a.at.blocks if b.keyword == "run"), "")
    for plan in plans:
        if not run or plan.name.split(".")[0] == run:
            yield from (_decision(d, plan.name) for d in plan.decisions if d.name == name)


def _decision(d: Decision, run: str) -> str:
    lines = [f"**{d.name} = {value(d.value)}** in {run}: {d.origin}"]
    lines += [f"because: {d.because}"] if d.because else []
    lines += [f"cite: {c}" for c in d.cite]
    return "\n\n".join(lines)


def value(v: object) -> str:
    """Write a plan's value as in the language."""
    return f"{v:g}" if isinstance(v, float) else axes.written(v)
