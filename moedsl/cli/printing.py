"""Print plans, and the output of other stages as JSON for `--stop-after`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from shlex import quote
from typing import Any

import attrs
from attrs import evolve

from moedsl.cli import console, terminal
from moedsl.compiler import Result
from moedsl.facts import axes
from moedsl.lang.printer import print_expr
from moedsl.planner import ladder, several
from moedsl.planner.plan import Plan
from moedsl.planner.text import SECTIONS, Command, coloured, head
from moedsl.queries.pages import page, texts
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule
from moedsl.solver.problem import lower


def with_ladders(result: Result) -> None:
    """Add a ladder to each plan that has none; plans of a workflow have theirs already."""
    pairs = zip(result.chosen, result.plans, strict=True)
    result.plans = tuple(evolve(p, ladder=p.ladder or ladder.of_run(c)) for c, p in pairs)


def prints_notes(a: Namespace) -> bool:
    """Whether warnings and notes go to stderr: not for a page, which shows them itself, nor for a section."""
    whole = a.full or a.json or getattr(a, "top", None) or getattr(a, "pareto", False)
    return a.stop_after not in (None, "plan") or bool(whole)


def only(result: Result, run: str | None) -> None:
    """Keep only the run named `run` of a workflow or an isolation; None keeps all."""
    if run is not None:
        kept = [(c, p) for c, p in zip(result.chosen, result.plans, strict=True) if p.name == run]
        result.chosen, result.plans = tuple(c for c, _ in kept), tuple(p for _, p in kept)


def after_plan(program: str, plans: Sequence[Plan]) -> list[Command]:
    """Return the commands to run next; `program` is what `typed` returns."""
    write = (f"moedsl compile {program} -o out", "write the recipe")
    if len(plans) > 1:
        return [(f"moedsl plan {program} --run {quote(plans[0].name)}", "one run on a page"), write]
    if program.startswith("-e "):  # once is enough of a program
        return [(write[0], "write the recipe; `plan --full` prints every value with its reason")]
    return [write, (f"moedsl plan {program} --full", "every value with its reason")]


def typed(a: Namespace) -> str:
    """Return the arguments that name the same program in another command."""
    file = "FILE" if a.file in (None, "-") else quote(a.file)
    if a.expression is not None and a.expression.strip().isprintable():
        file = f"-e {quote(a.expression.strip())}"
    options = {"--like": a.like, "--target": a.target}
    return " ".join([file, *(f"{option} {quote(value)}" for option, value in options.items() if value)])


def show(a: Namespace, result: Result, next: Sequence[Command]) -> None:
    """Print the plans, or the output of the requested stage; `next` are the commands to suggest."""

    def section(name: str) -> str:
        """Format this section of each plan."""
        found = [(p, SECTIONS[name](p) or f"the plan of {p.name} has no section `{name}`") for p in result.plans]
        return "\n".join(f"{text}\n" if len(found) == 1 else f"{head(p)}\n\n{text}\n" for p, text in found)

    if a.stop_after and a.stop_after != "plan":
        console.print_json(stage_json(result, a.stop_after))
    elif a.json:
        console.print_json(plans_json(result.plans))
    elif a.full:
        console.print_text(lambda: "\n".join(texts(result.plans)), end="")
    elif a.section:
        console.print_text(lambda: section(a.section), end="")
    else:
        text = page(result, next, terminal.width(sys.stdout))
        if terminal.coloured(sys.stdout):
            terminal.print_painted(coloured(text), sys.stdout, end="")
        else:
            console.print_text(lambda: text, end="")
        if getattr(a, "ladder", False):
            console.print_text(lambda: "\n" + section("ladder"), end="")


def plans_json(plans: Sequence[Plan]) -> dict[str, Any]:
    """Return the plan of a file with one run; for several runs an object with all plans, and with comparisons of each
    isolation's variants and each sweep's values."""
    if len(plans) == 1:
        return plans[0].to_json()
    compared = [sweep.to_json() for sweep in several.sweeps(plans)]
    if any(p.isolation for p in plans):
        from moedsl.emit import isolation_table

        compared = [*(c.to_json() for c in isolation_table.comparisons(plans)), *compared]
    return {"version": 1, "runs": [p.to_json() for p in plans], **({"comparisons": compared} if compared else {})}


_PLAIN = ("name", "gpus", "seq", "batch", "phase", "task", "routing", "data", "precision", "target")


def stage_json(r: Result, stage: str) -> Any:
    """Return the output of one stage for every run, as JSON values."""
    if stage == "parse":
        return tree(r.module)
    out: list[dict[str, Any]] = []
    if stage == "check":
        for p in r.programs:
            adapter = attrs.asdict(p.adapter, recurse=False) if p.adapter else None
            adapter = {**adapter, "targets": sorted(adapter["targets"])} if adapter else None
            out.append({
                **{n: getattr(p, n) for n in _PLAIN},
                "model": attrs.asdict(p.model),
                "hardware": attrs.asdict(p.hardware),
                "vlm": sorted(p.vlm),
                "adapter": adapter,
                "pins": {n: axes.BY_NAME[n].decode(pin.code) for n, pin in p.pins.items()},
                "wishes": {r.id: print_expr(r.expr) for r in p.rules if r.wish},
                "allows": list(p.allows),
                "set": dict(p.sets),
            })  # fmt: skip
        return out
    if stage == "solve":
        for c in r.chosen:
            rows = [
                {a.name: a.decode(row.codes[a.name]) for a in axes.AXES}
                | {"peak_memory": row.peak_memory, "step_time": row.step_time}
                for row in c.solution.rows
            ]
            counts = {"gpus": c.problem.gpus, "legal": c.solution.legal, "priced": c.solution.priced}
            out.append({"name": c.problem.program.name, **counts, "rows": rows})
        return out
    for p in (lower(p, p.gpus or p.hardware.gpus_per_node) for p in r.programs):
        origins = {
            n: o.id if isinstance(o, Rule) else "pinned" if isinstance(o, Pin) else None for n, o in p.origins.items()
        }
        out.append({
            "name": p.program.name,
            "gpus": p.gpus,
            "fixed": {n: sorted(v) if isinstance(v, frozenset) else v for n, v in p.values.items()},
            "domains": {a.name: [a.decode(int(v)) for v in p.domains[a.name]] for a in axes.AXES},
            "origins": origins,
            "laws": {rule.id: print_expr(rule.expr) for rule in p.program.of("require")},
        })  # fmt: skip
    return out


def tree(value: Any) -> Any:
    """Convert a syntax tree to JSON: the class as `kind`, then the fields."""
    if attrs.has(type(value)):
        names = [f.name for f in attrs.fields(type(value)) if f.name != "span"]
        return {"kind": type(value).__name__, **{n: tree(getattr(value, n)) for n in names}}
    return [tree(v) for v in value] if isinstance(value, tuple | list) else value
