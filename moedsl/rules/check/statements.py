"""Read the statements `target`, `allow`, `pin pipeline_layout`, `isolate`, `for` and `workflow` of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import evolve

from moedsl.cost import pipeline
from moedsl.facts import axes, releases
from moedsl.facts.facts import Model
from moedsl.facts.fields import last_name, versions
from moedsl.lang import ast
from moedsl.rules.check.program import Allow, Isolation, Program, Variant
from moedsl.rules.rule import Rule
from moedsl.support.diagnostics import REPLACE, Diagnostic, Fix, Instead, Label, error, suggest

Code = Callable[[ast.Name, ast.Expr], "int | None"]
"""Encodes an axis value as an integer; for an illegal value, reports a diagnostic and returns None."""


def read_target(stmt: ast.TargetStmt | None, asked: str, diagnostics: list[Diagnostic]) -> str:
    """Return the requested release of Bridge, else the stated one, else the installed one, else the newest."""
    stated = asked or (stmt.version.value if stmt else "")
    release = releases.named(stated) if stated else releases.default()
    if release is None:
        newest, at = releases.NEWEST.minor, [stmt.version.span] if stmt and not asked else []
        help = Instead(f"write `target bridge {newest}`", newest) if at else f"give `--target {newest}`"
        known = ", ".join(versions())
        diagnostics.append(error("check.target:unsupported", *at, release=stated, known=known, help=help))
    return (release or releases.NEWEST).bridge


def read_versions(fixed: Iterable[ast.Stmt], diagnostics: list[Diagnostic]) -> dict[str, int]:
    """Return the versions other than Bridge's that the run states, by name in expressions."""
    out, known = dict[str, int](), " or ".join(releases.PRODUCTS)
    targets = (s for s in fixed if isinstance(s, ast.TargetStmt) and s.product.id != "bridge")
    for product, version in ((s.product, s.version) for s in targets):
        if product.id not in releases.PRODUCTS:
            newest = releases.NEWEST.minor
            diagnostics.append(error("check.target:product", product.span, products=known, newest=newest))
            continue
        if not releases.is_version(version.value):
            diagnostics.append(error("check.target:version", version.span, version=version.value))
        out[releases.PRODUCTS[product.id]] = releases.as_number(version.value)
    return out


def read_allows(
    allows: Mapping[str, ast.AllowStmt], rules: Iterable[Rule], diagnostics: list[Diagnostic]
) -> dict[str, Allow]:
    """Return the laws and advice that the run may break, by id."""
    ids = [r.id for r in rules if r.kind in ("require", "prefer")] if allows else []
    known, out = {i.split(".", 1)[1]: i for i in ids} | {i: i for i in ids}, dict[str, Allow]()
    for key, s in allows.items():
        if id := known.get(key):
            out[id] = Allow(id, s.because.value if s.because else None, s.span)
        else:
            help = suggest(key, list(known)) or None
            diagnostics.append(error("check.unknown_rule", s.rule.span, name=key, help=help))
    return out


def read_layout(pin: ast.Binding | None, model: Model | None, diagnostics: list[Diagnostic]) -> str | None:
    """Return the pinned pipeline layout; report what Megatron refuses in it for any pp and vpp."""
    text = pin.value if pin is not None else None
    if text is None or not isinstance(text, ast.String):
        diagnostics.extend(() if text is None else [error("check.type:layout", text.span)])
        return None
    if model is not None:
        chunks = len(pipeline.pieces(text.value, model)[0])
        for why in pipeline.parse_layout(text.value, model, chunks, 1)[1]:
            why = f"this pipeline layout has {why}" if why[0].isdigit() else why
            diagnostics.append(error("check.pipeline_layout:refused", text.span, why=why))
    return text.value


def read_isolation(
    stmt: ast.IsolateStmt, sizes: Sequence[str], code: Code, diagnostics: list[Diagnostic]
) -> Isolation | None:
    """Read the variants of an `isolate`; return None for an unknown axis.

    `sizes` are the names besides axes that may be isolated: seq, batch, gpus. Errors in `diagnostics`:
    check.unknown_axis, check.unknown_word, check.isolate, and those of `code`.
    """
    known = [*axes.COMPOSITES, *axes.BY_NAME, *sizes]
    if stmt.axis.id not in known:
        help = suggest(stmt.axis.id, known) or (f"one of {', '.join(known)}",)
        diagnostics.append(error("check.unknown_axis:not-isolated", stmt.axis.span, axis=stmt.axis.id, help=help))
        return None
    axis, words, variants = stmt.axis.id, axes.COMPOSITES.get(stmt.axis.id), list[Variant | None]()
    for value in stmt.values:  # a value of the axis, or a word that stands for values of several axes
        made, word = None, value.id if isinstance(value, ast.Name) else ""
        if words is None:
            if (number := code(stmt.axis, value)) is not None:
                label = axes.label(axes.BY_NAME[axis].decode(number) if axis in axes.BY_NAME else number)
                made = Variant(label, {axis: number})
        elif word in words:
            made = Variant(word, {a: axes.BY_NAME[a].encode(v) for a, v in words[word].items()})
        else:
            known, help = ", ".join(words), suggest(word, [*words])
            diagnostics.append(error("check.unknown_word:one-of", value.span, name=axis, words=known, help=help))
        variants.append(made)
    distinct = {v.label: v for v in variants if v is not None}
    if len(distinct) < 2 and None not in variants:
        diagnostics.append(error("check.isolate", stmt.span, axis=axis))
    return Isolation(axis, tuple(distinct.values()), stmt.span)


FIELDS = ("train.train_iters", "train.train_samples", "train.num_epochs")
"""The fields of Bridge that set a run's length."""
UNITS: Mapping[str, tuple[str, int]] = {
    "tokens": ("run_tokens", 1),
    "hours": ("run_seconds", 3600),
    "days": ("run_seconds", 86400),
}
"""By unit: the name that rules read, and how many of that name's units one is."""
_DAYS = {"week": 7, "weeks": 7, "month": 30, "months": 30}
MOST = 10**18
_EXAMPLE = "write `for 2T tokens` or `for 14 days`"
_SCALES = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([MBT]?)")


def read_length(
    stmt: ast.ForStmt | None, sets: Mapping[str, ast.SetStmt], diagnostics: list[Diagnostic]
) -> Mapping[str, int]:
    """Return the stated length, by the name that rules read; report a `set` of a field that states a length too."""
    if stmt is None:
        return {}
    for path in (p for p in FIELDS if p in sets):
        diagnostics.append(error("check.twice:length", stmt.span, Label(sets[path].span, "here"), path=path))
    unit, amount = stmt.unit.id, _AMOUNT.fullmatch(stmt.amount.id)
    if unit not in UNITS:
        field = f"train.{last_name(unit.lower())}"
        right = f"set {field} = {stmt.amount.id}" if field in FIELDS and stmt.amount.id.isdecimal() else ""
        if unit in _DAYS and stmt.amount.id.isdecimal():
            right = f"for {int(stmt.amount.id) * _DAYS[unit]} days"
        fixes = (Fix(f"Write `{right}`", REPLACE, stmt.span, right),) if right else ()
        help = (f"write `{right}`",) if right else suggest(unit, [*UNITS]) or (_EXAMPLE,)
        units, at = ", ".join(UNITS), stmt.unit.span
        diagnostics.append(error("check.unknown_word:counts", at, units=units, unit=unit, help=help, fixes=fixes))
        return {}
    name, one = UNITS[unit]
    value = round(float(amount[1]) * _SCALES[amount[2]] * one) if amount else 0
    if not 0 < value <= MOST or (amount and amount[2] and name != "run_tokens"):
        at, text = stmt.amount.span, stmt.amount.id
        diagnostics.append(error("check.size:number", at, amount=text, unit=unit, help=_EXAMPLE))
        return {}
    return {name: value}


PHASES = {"fit": "fit", "scale": "scale", "profile": "profile", "retune": "throughput"}
"""The runs of a workflow, in order, with the phase of each."""


def phases(p: Program) -> list[Program]:
    """Return the run itself, or with `workflow` one program for each phase: main.fit, main.scale and so on."""
    if "workflow" not in p.spans:
        return [p]
    return [evolve(p, name=f"{p.name}.{word}", phase=phase, workflow=p.name) for word, phase in PHASES.items()]


def misplaced(fixed: Mapping[str, ast.Stmt]) -> Iterator[Diagnostic]:
    """Report statements that a workflow excludes: a phase, a sweep or an isolation."""
    if "workflow" in fixed:
        here = Label(fixed["workflow"].span, "every phase here")
        if "phase" in fixed:
            yield error("check.workflow:phase", fixed["phase"].span, here)
        if "sweep" in fixed:
            yield error("check.workflow:sweep", fixed["sweep"].span, here)
