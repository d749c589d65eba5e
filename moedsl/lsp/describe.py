"""Describe a name as Markdown: keywords, axes, rules, models, hardware, fields of Bridge, facts and functions.

Descriptions come from where the compiler declares a name; only keywords have a file of their own, `syntax/keywords.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from moedsl.facts import axes
from moedsl.facts.facts import Hardware, Model
from moedsl.facts.fields import Field
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, BUILTIN
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.lsp import facts
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
        meaning = facts.docs(Model).get(known) or facts.docs(Hardware).get(known)
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
