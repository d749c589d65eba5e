"""Describe a word as Markdown: keywords, axes, rules, models, hardware, fields of Bridge, facts and functions.

A description comes from where the compiler declares the name; only keywords have their own file, `lang/keywords.md`.
The facts of a block, with their meanings and words, come from the class that the compiler reads the block into. For a
decided value, `hover` adds the value and the reason.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs
from lsprotocol import types

from moedsl.facts import axes, fields, symbols
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.fields import Field
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, BUILTIN
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.lang.tokens import Lexeme, lexemes
from moedsl.lsp.document import Document
from moedsl.lsp.place import Around, place
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.declarations import EVERY, UNITS
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.support import resources
from moedsl.support.source import Source

PHASES = {
    "fit": "uses the safest settings: alltoall, BF16, no graphs, no overlap; ranks by the least parallelism",
    "scale": "opens the dispatchers; no graphs, no overlap; ranks by time",
    "profile": "as scale; the recipe records two steps of the first and the last stage",
    "throughput": "opens everything that is tuned in practice; ranks by the time of a step",
}
"""The purpose of each phase, in one line."""


_HUB = re.compile(r"\w[\w.-]*/\w(?:[\w.-]*\w)?")
"""The id of a model on Hugging Face."""


def hover(document: Document, params: types.HoverParams) -> types.Hover | None:
    """Describe the word that contains or ends at a position; None if it has no meaning."""
    lines, offset = document.lines, document.lines.offset(params.position)
    line = lines.line_of(offset)
    start = lines.starts[line]
    words = (x for x in lexemes(document.text[start : lines.end(line)]) if x.kind == "word")
    ids = (Lexeme("word", m[0], m.start()) for m in _HUB.finditer(document.text[start : lines.end(line)]))
    named = (x for x in ids if document.library.called(x.text) in document.library.models)
    word = next((x for x in (*named, *words) if start + x.start <= offset <= start + x.end), None)
    if word is None:
        return None
    at = start + word.start
    a = Around(document, document.analysis, place(document.text, at))
    of_hub = model_of(document.library, document.library.called(word.text)) if "/" in word.text else None
    meanings = [of_hub] if of_hub else [*_meanings(a, word.text)]
    parts = list(dict.fromkeys(meanings)) if a.at.accepts or a.at.string is not None else []
    if not parts:
        return None
    text = "\n\n---\n\n".join(parts)
    markdown = document.client.hover_markdown
    kind = types.MarkupKind.Markdown if markdown else types.MarkupKind.PlainText
    content = types.MarkupContent(kind, text if markdown else plain(text))
    return types.Hover(content, lines.range(at, at + len(word.text)))


def _meanings(a: Around, word: str) -> Iterator[str]:
    """Yield all meanings of a word at a place: in its statement, else by itself; then its values in the plans."""
    let = next((r for r in reversed(a.rules) if r.kind == "let" and r.name == word), None)
    by_itself = (keyword(word), rule(let, a.known.library.sources) if let else None, name(word))
    yield from [*filter(None, _by_statement(a, word))] or filter(None, by_itself)
    known = ALIASES.get(word, word)
    run = next((b.name for b in a.at.blocks if b.keyword == "run"), "")
    for plan in a.document.plans:
        for d in plan.decisions if not run or plan.name.split(".")[0] == run else ():
            if d.name == known:
                lines = [f"**{d.name} = {value(d.value)}** in {plan.name}: {d.origin}"]
                lines += [f"because: {d.because}"] if d.because else []
                yield "\n\n".join([*lines, *(f"cite: {c}" for c in d.cite)])


def _by_statement(a: Around, word: str) -> Iterator[str | None]:
    """Yield the meanings that a word has in its statement."""
    library = a.known.library
    first, is_second = a.said[0] if a.said else "", len(a.said) == 1
    if a.at.block in BLOCKS and word != "cite":
        yield page(a.at.block, word, library)
    elif first == "allow" and is_second:
        found = next((r for r in a.rules if word in (r.id, r.id.split(".", 1)[1])), None)
        yield rule(found, library.sources) if found else None
    elif first == "set" and is_second:
        known = fields.lookup(word)
        yield field(known) if known else None
    elif not a.said or (first in ("model", "hardware") and is_second):
        yield keyword(word) if not a.said else None
        yield _bare(library, word)
    elif first in ("require", "prefer", "let", "measured") and is_second:  # a rule or wish at its declaration
        name = a.document.source.name
        own = (r for r in a.rules if r.name == word and r.span.file == name and r.kind == first)
        found = next(own, None)
        yield rule(found, library.sources) if found else None


def _bare(library: Library, word: str) -> str | None:
    """Describe a bare name: a phase, a model, hardware or a profile."""
    if word in axes.PHASES:
        return f"**{word} first**, a phase\n\n{PHASES[word]}"
    if word in library.models:
        return model_of(library, word)
    if word in library.hardware:
        return hardware_of(library, word)
    if word not in library.profiles:
        return None
    span = library.profiles[word].span
    source = library.sources.get(span.file)
    text = source.text[span.start : span.end] if source else word
    return f"**{word}**, a profile\n\n```moe\n{text}\n```"


def value(v: object) -> str:
    """Format a plan's value as the language writes it."""
    return f"{v:g}" if isinstance(v, float) else axes.written(v)


@cache
def keywords() -> Mapping[str, tuple[str, str]]:
    """Return the form and the meaning of each keyword, in Markdown."""
    text = (resources.PACKAGE / "lang" / "keywords.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    split = (part.partition("\n") for part in parts)
    halves = ((head, body.strip().partition("\n\n")) for head, _, body in split)
    return {head.strip(): (form, meaning) for head, (form, _, meaning) in halves}


def keyword(word: str) -> str | None:
    """Describe a keyword with its form and meaning."""
    found = keywords().get(word)
    return None if found is None else f"{found[0]}\n\n{found[1]}"


def name(word: str) -> str | None:
    """Describe an axis, a name that an expression may use, or a function."""
    known = ALIASES.get(word, word)
    if known in axes.BY_NAME:
        axis = axes.BY_NAME[known]
        words = f": {', '.join(axis.words)}" if axis.words else ""
        return f"**{known}**, an axis ({axis.kind}{words})\n\n{axis.doc}"
    if known in FUNCTIONS:
        return f"**{known}**, a function\n\n{FUNCTIONS[known].doc}"
    if known in BUILTIN:
        meaning = docs(Model).get(known) or docs(Hardware).get(known)
        return f"**{known}**, {BUILTIN[known]}" + (f"\n\n{meaning}" if meaning else "")
    return None


def rule(r: Rule, sources: Mapping[str, Source]) -> str:
    """Describe a rule with its reason, its citations and the place of its declaration."""
    lines = [f"**{r.id}** ({r.kind})", f"```moe\n{print_expr(r.expr)}\n```"]
    lines += [f"when `{print_expr(r.when)}`"] if r.when is not None else []
    lines += [f"because: {r.because}"] if r.because else []
    lines += ["\n".join(f"- cite: {c}" for c in r.cites)] if r.cites else []
    source = sources.get(r.span.file)
    lines += [f"declared at {r.span.file}:{source.position(r.span.start)[0]}"] if source else []
    return "\n\n".join(lines)


def model_of(library: Library, name: str) -> str | None:
    """Describe a declared model by the facts that layouts depend on; None if they are incomplete."""
    m, _ = library.model(name)
    if m is None:
        return None
    parts = [m.layers_said, f"hidden {m.hidden}", f"{m.experts} experts, top {m.topk}", m.attention.upper()]
    parts += [f"{m.heads} heads in {m.query_groups} groups"]
    parts += ["a vision tower"] if m.vision else []
    parts += [f"up to {m.max_seq} tokens"] if m.max_seq else []
    return f"**{m.name}**, a model ({m.hf})\n\n{', '.join(parts)}"


def hardware_of(library: Library, name: str) -> str | None:
    """Describe declared hardware by the facts that layouts depend on; None if they are incomplete."""
    h, _ = library.gpu(name)
    if h is None:
        return None
    rates = ", ".join(f"{k} {v:g}" for k, v in h.tflops.items())
    parts = [
        f"{h.total / GIB:.1f} GiB that a plan may use",
        f"{h.gpus_per_node} GPUs a node, {h.nvlink_domain} in an NVLink domain",
        f"{rates} dense TFLOPS",
    ]
    return f"**{h.name}**, hardware ({h.device}, {h.arch})\n\n" + "\n".join(f"- {p}" for p in parts)


def field(f: Field) -> str:
    """Describe a field of Bridge's configuration."""
    default = "" if f.default in ("required", "factory") else f", {f.default!r} unless it is set"
    return f"**{f.path}**, a field of Bridge: `{f.type}`{default}"


def plain(markdown: str) -> str:
    """Turn Markdown into plain text, for a client that shows no Markdown."""
    return re.sub(r"```\w*\n?|\*\*", "", markdown).strip()


BLOCKS: Mapping[str, type] = {
    "model": Model,
    "hardware": Hardware,
    "vision": Vision,
    "cluster": Cluster,
    "calibration": Constants,
}
"""The class that the compiler reads a block's facts into."""
_WHOSE = {"model": "a model", "hardware": "hardware", "vision": "a vision tower", "cluster": "a cluster"}
_FILLED = ("name", "sources", "constants", "known")
_WORDS = {"attention": ("gqa", "mla"), "arch": symbols.ARCHS}


def of(block: str) -> list[Any]:
    """Return the fields that a block may state."""
    cls = BLOCKS.get(block)
    return [f for f in attrs.fields(cls) if f.name not in _FILLED] if cls else []


def page(block: str, word: str, library: Library) -> str | None:
    """Describe a fact of a block in Markdown; None if the block has no such fact."""
    if block == "calibration":
        made, _ = library.constants(EVERY)
        c = made.known.get(word) if made else None
        if c is None:
            return None
        lines = (c.about, f"{c.low:g} to {c.high:g} {c.unit}", f"measured by: {c.measure}", f"source: {c.source}")
        return "\n\n".join((f"**{word}**, a constant of a calibration", *lines))
    found = next((f for f in of(block) if f.name == word), None)
    if found is None:
        return None
    meaning = docs(BLOCKS[block]).get(word, "")
    return f"**{word}**, a fact of {_WHOSE.get(block, 'a ' + block)} ({found.type})" + (
        f"\n\n{meaning}" if meaning else ""
    )


def words(block: str, word: str, library: Library) -> tuple[str, ...]:
    """Return the words that a fact may be; none for a size or a text."""
    found = next((f for f in of(block) if f.name == word), None)
    kind = found.metadata.get("kind") if found else None
    if block == "cluster" and word == "hardware":
        return tuple(library.hardware)
    if kind is not None:
        return ("on", "off") if kind.form == "flag" else kind.words
    if found is not None and str(found.type) == "bool":
        return ("true", "false")
    return _WORDS.get(word, ())


def units(block: str, word: str) -> tuple[str, ...]:
    """Return the units of a fact that needs one."""
    return UNITS.get((BLOCKS.get(block, object), word), ())


@cache
def docs(cls: type) -> Mapping[str, str]:
    """Return the meaning of each field of a facts class, from the docstring below the field."""
    found = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', inspect.getsource(cls), re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}
