"""Report on one recipe: diagnostics, how many rules applied, and what is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from moedsl.bridge.lint.judge import Finding, Verdict
from moedsl.bridge.lint.lines import Lines
from moedsl.bridge.lint.recipe import Recipe
from moedsl.bridge.verify.report import Refusal
from moedsl.emit.fields import BACK
from moedsl.facts import architecture
from moedsl.facts.field_suggestions import meant
from moedsl.facts.fields import unknown_word
from moedsl.lang.printer import print_expr
from moedsl.rules.rule import Rule
from moedsl.support.diagnostics import Diagnostic, Label, error, note, suggest, to_json, warning
from moedsl.support.source import Source

SHOWN = 3
"""Recipes that are named where several inherit the same advice."""
_SEVERITY = {"error": error, "warning": warning, "note": note}
_LAYOUT = ("layout_stages", "layout_layers", "layout_mtp")
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "graphs": ("model.cuda_graph_impl",),
    "expandable_segments": ("env_vars",),
    "asked_dispatcher": ("model.moe_token_dispatcher_type",),
    **{fact: (name,) for fact, name in architecture.FIELDS.items()},
    **dict.fromkeys(_LAYOUT, ("model.pipeline_model_parallel_layout",)),
}
"""Name of a fact -> its field."""


@frozen
class Lint:
    """The findings on one recipe."""

    file: str
    diagnostics: tuple[Diagnostic, ...]
    judged: int = 0
    """Rules that applied and had every value."""
    unjudged: int = 0
    """Rules that need an unknown value."""
    unread: tuple[str, ...] = ()
    """What is unknown, in words."""
    through_bridge: bool = True
    sources: Mapping[str, Source] = field(factory=dict)
    inherited: tuple[Diagnostic, ...] = ()
    """Advice on values that only the base recipe sets, and no line of the user's."""

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": not self.failed,
            "through_bridge": self.through_bridge,
            "rules_judged": self.judged,
            "rules_not_judged": self.unjudged,
            "not_known": list(self.unread),
            "diagnostics": [to_json(d, self.sources) for d in self.diagnostics],
            "inherited": [to_json(d, self.sources) for d in self.inherited],
        }


def report(r: Recipe, verdict: Verdict, refusal: Refusal | None, sources: Mapping[str, Source]) -> Lint:
    """The findings on a recipe: errors first, then refusals of Bridge, then advice."""
    lines = Lines()
    own: list[Diagnostic] = []
    inherited: list[Diagnostic] = []
    for f in (*(_finding(f) for f in verdict.findings), *_unknown(r), *_words(r)):
        base = lines.of_base(r, f.names) if f.severity != "error" else ()
        make = _SEVERITY[f.severity]
        labels, whose = (base, "the base recipe") if base else (lines.of(r, f.names), r.function)
        (inherited if base else own).append(make(f.id, f"{whose} {f.text}", *labels, **f.more))
    own += _refused(r, refusal, lines)
    for found in (own, inherited):
        found.sort(key=lambda d: ("error", "warning", "note").index(d.severity))
    return Lint(
        r.target, tuple(own), len(verdict.judged), len(verdict.unjudged), r.unread, r.whole,
        {**sources, **lines.sources}, tuple(inherited),
    )  # fmt: skip


@frozen
class _Found:
    """A finding before it has a place. `text` says what the recipe does."""

    id: str
    severity: str
    names: tuple[str, ...]
    text: str
    more: Mapping[str, Any] = field(factory=dict)


def _finding(f: Finding) -> _Found:
    rule = f.rule
    names = tuple(field for name in f.names for field in fields_of(name))
    verb = "does not follow" if rule.kind == "prefer" else "breaks"
    more = {"because": rule.because, "cites": rule.cites, "values": dict(f.values)}
    return _Found(rule.id, severity(rule), names, f"{verb} `{print_expr(rule.expr)}`", more)


def merged(found: Sequence[Lint]) -> list[Diagnostic]:
    """Merge what several recipes inherit: each finding once, with its recipes."""
    by: dict[tuple[str, tuple[Label, ...]], tuple[Diagnostic, list[str]]] = {}
    for x in found:
        for d in x.inherited:
            by.setdefault((d.id, d.labels), (d, []))[1].append(x.file)
    return [evolve(d, message=f"{d.message} ({_several(files)})") for d, files in by.values()]


def _several(files: Sequence[str]) -> str:
    return ", ".join(files) if len(files) <= SHOWN else f"{len(files)} recipes"


def severity(rule: Rule) -> str:
    """Make a diagnostic of a finding. A broken law is an error. Advice on a recipe is a warning, or a note if its worth
    is 0; advice on a run is a note, or a warning if it is grave."""
    if rule.kind == "require":
        return "error"
    return "warning" if rule.is_grave or (".recipe_" in rule.id and rule.worth > 0) else "note"


def fields_of(name: str) -> tuple[str, ...]:
    """List the dotted fields of a name of an expression."""
    if "." in name:
        return (name,)
    return _BEHIND.get(name) or (BACK[name].shown if name in BACK else ())


def _cite(where: str) -> str:
    """Write a place in the wheel as rules cite it."""
    kinds = {"megatron/bridge/": "bridge ", "megatron/core/": "core ", "transformer_engine/": "te "}
    prefix = next((p for p in kinds if where.startswith(p)), "")
    return kinds.get(prefix, "") + where.removeprefix(prefix)


def _unknown(r: Recipe) -> Iterator[_Found]:
    """Report attributes that the recipe sets and nothing reads."""
    for name, value in r.unknown.items():
        text = f"sets `{name}` to {value}, which does nothing: it is not a field of Bridge"
        yield _Found("lint.unknown_field", "warning", (name,), text, {"help": meant(name)})


def _words(r: Recipe) -> Iterator[_Found]:
    """Report values that the annotation of their field does not list."""
    for name, value in r.fields.items():
        if takes := unknown_word(name, value):
            near = suggest(str(value).lower(), re.findall(r'"([^"]+)"', takes))
            text = f"sets `{name}` to {value}, but Bridge knows only {takes}"
            yield _Found("lint.unknown_word", "warning", (name,), text, {"help": near})


def _refused(r: Recipe, refusal: Refusal | None, lines: Lines) -> Iterator[Diagnostic]:
    """Report an exception of Bridge with its message."""
    if refusal is not None:
        step = "while it was built" if refusal.question == "recipe" else "in runtime_config_update"
        theirs = refusal.where.startswith(("megatron/", "transformer_engine/"))
        verb = f"Megatron Bridge refuses {r.function}" if theirs else f"{r.function} fails"
        text = f"{verb} {step}: {refusal.error}: {' '.join(refusal.message.split())}"
        yield error("lint.refused", text, *lines.definition(r), cites=(_cite(refusal.where),))
