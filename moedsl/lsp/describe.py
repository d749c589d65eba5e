"""Describe a name as Markdown: keywords, axes, rules, models, hardware, fields of Bridge, facts and functions.

Descriptions come from where the compiler declares a name; only keywords have a file of their own, `lang/keywords.md`.
The facts of a block, with meanings and words, come from the class that the compiler reads it into.
"""

from __future__ import annotations

import ast as python
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import attrs

from moedsl.facts import axes, symbols
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.fields import Field
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, BUILTIN
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
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
"""The purpose of each phase, in a line."""


@cache
def keywords() -> Mapping[str, tuple[str, str]]:
    """The form and the meaning of each keyword, in Markdown."""
    text = (resources.PACKAGE / "lang" / "keywords.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    split = (part.partition("\n") for part in parts)
    return {head.strip(): _halves(body.strip()) for head, _, body in split}


def _halves(text: str) -> tuple[str, str]:
    form, _, meaning = text.partition("\n\n")
    return form, meaning


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
    """Describe a rule with its reason, its citations and its place."""
    lines = [f"**{r.id}** ({r.kind})", f"```moe\n{print_expr(r.expr)}\n```"]
    lines += [f"when `{print_expr(r.when)}`"] if r.when is not None else []
    lines += [f"because: {r.because}"] if r.because else []
    lines += ["\n".join(f"- cite: {c}" for c in r.cites)] if r.cites else []
    source = sources.get(r.span.file)
    lines += [f"declared at {r.span.file}:{source.position(r.span.start)[0]}"] if source else []
    return "\n\n".join(lines)


def model(m: Model) -> str:
    """Describe a model by the facts that layouts depend on."""
    parts = [m.layers_said, f"hidden {m.hidden}", f"{m.experts} experts, top {m.topk}", m.attention.upper()]
    parts += [f"{m.heads} heads in {m.query_groups} groups"]
    parts += ["a vision tower"] if m.vision else []
    parts += [f"up to {m.max_seq} tokens"] if m.max_seq else []
    return f"**{m.name}**, a model ({m.hf})\n\n{', '.join(parts)}"


def hardware(h: Hardware) -> str:
    """Describe hardware by the facts that layouts depend on."""
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
"""The subject of a block's facts, in words."""
_WHOSE = {"model": "a model", "hardware": "hardware", "vision": "a vision tower", "cluster": "a cluster"}
_FILLED = ("name", "sources", "constants", "known")
_WORDS = {"attention": ("gqa", "mla"), "arch": symbols.ARCHS}


def of(block: str) -> list[Any]:
    """The fields that a block may state."""
    cls = BLOCKS.get(block)
    return [f for f in attrs.fields(cls) if f.name not in _FILLED] if cls else []


def page(block: str, word: str, library: Library) -> str | None:
    """Describe a fact of a declaration in Markdown."""
    if block == "calibration":
        return _constant(word, library)
    found = next((f for f in of(block) if f.name == word), None)
    if found is None:
        return None
    meaning = docs(BLOCKS[block]).get(word, "")
    return f"**{word}**, a fact of {_WHOSE.get(block, 'a ' + block)} ({found.type})" + (
        f"\n\n{meaning}" if meaning else ""
    )


def _constant(word: str, library: Library) -> str | None:
    made, _ = library.constants(EVERY)
    c = made.known.get(word) if made else None
    if c is None:
        return None
    lines = (c.about, f"{c.low:g} to {c.high:g} {c.unit}", f"measured by: {c.measure}", f"source: {c.source}")
    return "\n\n".join((f"**{word}**, a constant of a calibration", *lines))


def words(block: str, word: str, library: Library) -> tuple[str, ...]:
    """The words that a fact may be; none for a size or a text."""
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
    """The units of which a fact needs one."""
    return UNITS.get((BLOCKS.get(block, object), word), ())


@cache
def docs(cls: type) -> Mapping[str, str]:
    """The meaning of each field of a facts class: the docstring below it."""
    tree = python.parse(inspect.getsource(inspect.getmodule(cls) or cls))
    found = next(n for n in tree.body if isinstance(n, python.ClassDef) and n.name == cls.__name__)
    return dict(_documented(found.body))


def _documented(body: list[Any]) -> Iterator[tuple[str, str]]:
    for before, node in pairwise(body):
        text = node.value.value if isinstance(node, python.Expr) and isinstance(node.value, python.Constant) else None
        if isinstance(text, str) and isinstance(before, python.AnnAssign) and isinstance(before.target, python.Name):
            yield before.target.id, " ".join(text.split())
