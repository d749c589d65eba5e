"""Print plans for several commands."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from attrs import evolve

from moedsl.cli import console, terminal
from moedsl.compiler import Result
from moedsl.planner import several
from moedsl.planner.page import Command, coloured
from moedsl.planner.plan import Plan
from moedsl.planner.text import SECTIONS, head
from moedsl.queries.pages import page, texts


def with_ladders(result: Result) -> None:
    """Add its ladder to each plan; plans of a workflow have theirs."""
    from moedsl.planner import ladder

    pairs = zip(result.chosen, result.plans, strict=True)
    result.plans = tuple(evolve(p, ladder=p.ladder or ladder.of_run(c)) for c, p in pairs)


def prints_notes(a: Namespace) -> bool:
    """Whether warnings and notes go to stderr: a page has them itself, and a section is only what was asked for."""
    whole = a.full or a.json or getattr(a, "top", None) or getattr(a, "pareto", False)
    return a.stop_after not in (None, "plan") or bool(whole)


def only(result: Result, run: str | None) -> None:
    """Of a workflow or an isolation keep the run of this name."""
    if run is not None:
        kept = [(c, p) for c, p in zip(result.chosen, result.plans, strict=True) if p.name == run]
        result.chosen, result.plans = tuple(c for c, _ in kept), tuple(p for _, p in kept)


def after_plan(program: str, plans: Sequence[Plan]) -> list[Command]:
    """The commands that come after the plans of a program, which the words of `typed` name."""
    write = (f"moedsl compile {program} -o out", "write the recipe")
    if len(plans) > 1:
        return [(f"moedsl plan {program} --run {quote(plans[0].name)}", "one run on a page"), write]
    return [write, (f"moedsl plan {program} --full", "every value with its reason")]


def typed(a: Namespace) -> str:
    """The words that name the program again, with what the arguments say of it."""
    file = "FILE" if a.file in (None, "-") else quote(a.file)
    if a.expression is not None and a.expression.strip().isprintable():
        file = f"-e {quote(a.expression.strip())}"
    options = {"--like": a.like, "--target": a.target}
    return " ".join([file, *(f"{option} {quote(value)}" for option, value in options.items() if value)])


def show(a: Namespace, result: Result, next: Sequence[Command]) -> None:
    """Print the plans, or the output of the requested stage; `next` are the commands that come next."""
    if a.stop_after and a.stop_after != "plan":
        from moedsl.cli import stages

        console.print_json(stages.dump(result, a.stop_after))
    elif a.json:
        console.print_json(one(result.plans))
    elif a.full:
        console.print_text(lambda: "\n".join(texts(result.plans)), end="")
    elif a.section:
        console.print_text(lambda: "\n".join(_sections(result.plans, a.section)), end="")
    else:
        text = page(result, next, terminal.width(sys.stdout))
        if terminal.coloured(sys.stdout):
            terminal.print_painted(coloured(text), sys.stdout, end="")
        else:
            print(text, end="")
        if getattr(a, "ladder", False):
            console.print_text(lambda: "\n" + "\n".join(_sections(result.plans, "ladder")), end="")


def _sections(plans: Sequence[Plan], name: str) -> Iterator[str]:
    """Print one section of each plan."""
    for p in plans:
        text = SECTIONS[name](p) or f"the plan of {p.name} has no section `{name}`"
        yield f"{text}\n" if len(plans) == 1 else f"{head(p)}\n\n{text}\n"


def one(plans: Sequence[Plan]) -> dict[str, Any]:
    """The plan of a file with one run; for several runs, an object with all."""
    if len(plans) == 1:
        return plans[0].to_json()
    compared = _compared(plans)
    return {"version": 1, "runs": [p.to_json() for p in plans], **({"comparisons": compared} if compared else {})}


def _compared(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Compare the variants of each isolation, and the values of each sweep."""
    swept = [sweep.to_json() for sweep in several.sweeps(plans)]
    if not any(p.isolation for p in plans):
        return swept
    from moedsl.emit import isolation_table as table

    return [*(c.to_json() for c in table.comparisons(plans)), *swept]
