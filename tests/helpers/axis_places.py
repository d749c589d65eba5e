"""The places that a person extends for a new axis: for each the axes that it does not know, by its path."""

from collections.abc import Callable, Iterable

from moedsl.compiler import load_stdlib
from moedsl.cost import memory, step
from moedsl.emit.fields import BACK
from moedsl.emit.settings import decided_fields
from moedsl.facts import axes
from moedsl.planner.plan import Plan
from moedsl.rehearse import shrink
from moedsl.rules.collect import of_library
from moedsl.rules.rule import Rule
from tests.helpers.paths import ROOT
from tests.helpers.plans import changed

Answer = Callable[[Plan], object]


def unknown(plan: Plan) -> dict[str, list[str]]:
    """By place, the axes of `moedsl/facts/axes.py` that it does not know; `plan` is any plan."""
    rules = [r for r in of_library(load_stdlib())[0] if r.id.startswith("std.")]
    known: dict[str, Iterable[str]] = {
        "stdlib/rules/": {*axes.SIZES, *_named(rules, "candidates"), *_named(rules, "default")},
        "stdlib/rules/effects.moe": _named(rules, "effect"),
        "moedsl/cost/": {*memory.COLUMNS, *step.LAYER, *step.ONCE},
        "moedsl/emit/fields.py": _deciding(plan, decided_fields) & BACK.keys(),
        "moedsl/rehearse/": {*shrink.AXES, "vpp", "micro_batch", *shrink.OFF, *shrink.AS_PLANNED},
        "docs/language.md": _documented(),
    }
    return {place: [a.name for a in axes.AXES if a.name not in {*names}] for place, names in known.items()}


def _named(rules: Iterable[Rule], kind: str) -> set[str]:
    return {r.name for r in rules if r.kind == kind}


def _deciding(plan: Plan, answer: Answer) -> set[str]:
    """The axes of which some other value gives another answer for a plan."""
    before = answer(plan)
    return {a.name for a in axes.AXES if any(answer(other) != before for other in _changed(plan, a))}


def _changed(plan: Plan, axis: axes.Axis) -> Iterable[Plan]:
    now = axis.encode(getattr(getattr(plan, axis.section), axis.name))
    codes = (2, 3) if axis.kind == "int" else range(len(axis.words) or 2)
    for code in (c for c in codes if c != now):
        yield changed(plan, **{axis.section: {axis.name: axis.decode(code)}})


def _documented() -> set[str]:
    """The names in the first column of the table of `pin`."""
    section = (ROOT / "docs" / "language.md").read_text(encoding="utf-8").split("\n### pin\n")[1].split("\n### ")[0]
    rows = (line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    return {name for cell in rows for name in cell.replace("`", " ").replace(",", " ").split()}
