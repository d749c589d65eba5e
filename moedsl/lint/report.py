"""Report on one recipe: diagnostics, how many rules applied, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from moedsl.diagnostics.model import Diagnostic, error, note, to_json, warning
from moedsl.diagnostics.source import Source
from moedsl.lint.judge import Finding, Verdict
from moedsl.lint.lines import Lines
from moedsl.lint.recipe import Recipe
from moedsl.lint.words import FIELDS
from moedsl.megatron.field_suggestions import meant
from moedsl.rules.rule import Rule
from moedsl.syntax.printer import print_expr
from moedsl.verify.report import Refusal

_SEVERITY = {"error": error, "warning": warning, "note": note}
_LAYOUT = ("layout_stages", "layout_layers", "layout_mtp")
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "graphs": ("model.cuda_graph_impl",),
    "expandable_segments": ("env_vars",),
    "asked_dispatcher": ("model.moe_token_dispatcher_type",),
    "layers": ("model.num_layers",),
    "mtp_layers": ("model.mtp_num_layers",),
    "experts": ("model.num_moe_experts",),
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
        }


def report(r: Recipe, verdict: Verdict, refusal: Refusal | None, sources: Mapping[str, Source]) -> Lint:
    """The findings on a recipe: errors first, then refusals of Bridge, then advice."""
    lines = Lines()
    found = [_finding(r, f, lines) for f in verdict.findings]
    found += [*_unknown(r, lines), *_refused(r, refusal, lines)]
    found.sort(key=lambda d: ("error", "warning", "note").index(d.severity))
    return Lint(
        r.target, tuple(found), len(verdict.judged), len(verdict.unjudged), r.unread, r.whole,
        {**sources, **lines.sources},
    )  # fmt: skip


def _finding(r: Recipe, f: Finding, lines: Lines) -> Diagnostic:
    rule = f.rule
    names = tuple(field for name in f.names for field in fields_of(name))
    labels = lines.of(r, names)
    make = _SEVERITY[severity(rule)]
    text = f"{r.function} breaks `{print_expr(rule.expr)}`"
    if rule.kind == "prefer":
        text = f"{r.function} does not follow `{print_expr(rule.expr)}`"
    return make(rule.id, text, *labels, because=rule.because, cites=rule.cites, values=dict(f.values))


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
    return _BEHIND.get(name) or FIELDS.get(name) or ()


def _cite(where: str) -> str:
    """Write a place in the wheel as rules cite it."""
    kinds = {"megatron/bridge/": "bridge ", "megatron/core/": "core ", "transformer_engine/": "te "}
    prefix = next((p for p in kinds if where.startswith(p)), "")
    return kinds.get(prefix, "") + where.removeprefix(prefix)


def _unknown(r: Recipe, lines: Lines) -> Iterator[Diagnostic]:
    """Report attributes that the recipe sets and nothing reads."""
    for name, value in r.unknown.items():
        text = f"`{name}` is not a field of Bridge: setting it to {value} does nothing"
        yield warning("lint.unknown_field", text, *lines.of(r, (name,)), help=meant(name))


def _refused(r: Recipe, refusal: Refusal | None, lines: Lines) -> Iterator[Diagnostic]:
    """Report an exception of Bridge with its message."""
    if refusal is not None:
        step = "while it was built" if refusal.question == "recipe" else "in runtime_config_update"
        text = f"Megatron Bridge refuses {r.function} {step}: {refusal.error}: {' '.join(refusal.message.split())}"
        yield error("lint.refused", text, *lines.definition(r), cites=(_cite(refusal.where),))
