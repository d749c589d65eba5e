"""List a run's best layouts, each with a different mesh, with speed, memory and token costs; print a file's plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from attrs import frozen

from moedsl.compiler import Result
from moedsl.cost.estimate import verdict
from moedsl.emit import isolation_table
from moedsl.facts.axes import SUMMARY, pairs
from moedsl.facts.units import GIB
from moedsl.planner import several
from moedsl.planner.advice import reason
from moedsl.planner.plan import Plan, Priced, Ranked, TokenCost
from moedsl.planner.text import Command, next_text, notes_text, page_text, plan_text
from moedsl.solver.laws import Row
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import to_json
from moedsl.support.text import counted, duration, short, table, wrapped


def top(chosen: Chosen, k: int, budget: Budget | None = None) -> tuple[Ranked, ...]:
    """List the `k` best meshes with their best policies by the run's ranking, best first; fewer if fewer fit."""
    rows, left = chosen.solution.rows[:k], chosen.compiled.unfollowed
    if k > len(rows) and not shared(chosen):  # for a shared layout, only the stored rows exist
        rows = Search(chosen.compiled, chosen.cost, keep=k).run().rows
    now = rows[0].codes
    return tuple(
        priced(Ranked, chosen, r, budget, rank=i, layout=r.layout, changes=r.changes(now), against_advice=left(r))
        for i, r in enumerate(rows, 1)
    )


def shared(chosen: Chosen) -> bool:
    """Whether other runs share the layout: variants of `isolate`, and the profile phase of a `workflow`."""
    p = chosen.problem.program
    return p.isolate is not None or (p.workflow is not None and p.phase == "profile")


def because(chosen: Chosen) -> dict[str, str]:
    """Return the reasons of all advice and of the run's own wishes, by id."""
    laws = (*chosen.compiled.wishes, *chosen.compiled.advice)
    return {law.rule.id: reason(law.rule) for law in laws}


AnyPriced = TypeVar("AnyPriced", bound=Priced)


def priced(
    record: type[AnyPriced], chosen: Chosen, row: Row, budget: Budget | None, judged: bool = True, **more: Any
) -> AnyPriced:
    """Make a record of a layout from its figures and `more`; `judged=False` skips the verdict, which is slow."""
    gpus, tokens = chosen.problem.gpus, step_tokens(chosen)
    return record(
        gpus=gpus,
        step_time_s=row.step_time,
        tokens_per_s=tokens / row.step_time,
        tokens_per_s_per_gpu=tokens / row.step_time / gpus,
        peak_gib=row.peak_memory / GIB,
        gpu_hours_per_billion_tokens=10**9 / tokens * row.step_time * gpus / HOUR,
        verdict=verdict(chosen.cost, row.codes) if judged else None,
        budget=budget and budget.of(row.step_time, tokens, gpus),
        **more,
    )


def step_tokens(c: Chosen) -> int:
    """Return the tokens in one step."""
    return int(c.problem.global_batch * c.problem.values["seq"])


HOUR, DAY = 3600.0, 86400.0  # seconds
COVERS = (
    "Days and GPU-hours are for uninterrupted steps at the estimated step time, without checkpoints, restarts, "
    "evaluation or warm-up."
)


@frozen
class Budget:
    """The tokens to train on, image tokens included, and the price of a GPU-hour if it is known."""

    tokens: int
    price: float | None = None

    def of(self, step_time: float, step_tokens: int, gpus: int) -> TokenCost:
        """Return the whole steps for the budget and their cost, given seconds and tokens of a step."""
        steps = -(-self.tokens // step_tokens)
        hours = steps * step_time * gpus / HOUR
        cost = None if self.price is None else hours * self.price
        return TokenCost(self.tokens, steps, steps * step_time / DAY, hours, self.price, cost)


def figures_table(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align the first `left` columns and the last one left, and figures right."""
    return table(rows, "l" * left + "r" * (len(rows[0]) - 1 - left) + "l")


def whole(layout: Mapping[str, Any], also: Iterable[str] = ()) -> str:
    """Write a layout's most important axes, without sizes of 1, and the axes in `also`."""
    also = {*also}
    shown = [n for n in SUMMARY if layout[n] != 1 or n in also]
    return pairs({n: layout[n] for n in (*shown, *(n for n in layout if n in also and n not in SUMMARY))})


def speed(f: Priced) -> dict[str, str]:
    """Make table cells by heading: a layout's step time, rate, memory and verdict."""
    rate, peak = f"{f.tokens_per_s_per_gpu:,.0f}", f"{f.peak_gib:.1f}"
    return {"s a step": f"{f.step_time_s:.2f}", "tokens/s/GPU": rate, "peak GiB": peak, "": f.verdict or ""}


def cost(f: Priced) -> dict[str, str]:
    """Make table cells by heading: the budget's days, GPU-hours and price, or else GPU-hours per 10^9 tokens."""
    if (b := f.budget) is None:
        return {"GPU-hours/1B": f"{f.gpu_hours_per_billion_tokens:,.1f}"}
    money = {} if b.cost is None else {"cost": f"{b.cost:,.0f}"}
    return {"days": f"{b.days:,.1f}", "GPU-hours": f"{b.gpu_hours:,.0f}", **money}


def amount(tokens: int) -> str:
    """Write a number of tokens in the largest unit that fits: T, B or M."""
    unit, size = next(((u, n) for u, n in (("T", 10**12), ("B", 10**9), ("M", 10**6)) if tokens >= n), ("", 1))
    return f"{tokens / size:g}{unit}" if unit else str(tokens)


def budget_note(f: Priced) -> list[str]:
    """Write what days and GPU-hours mean; empty without a budget."""
    if f.budget is None:
        return []
    price = "" if f.budget.price_per_gpu_hour is None else f" at {f.budget.price_per_gpu_hour:g} a GPU-hour"
    return [wrapped(f"for {amount(f.budget.tokens)} tokens{price}. {COVERS}")]


def budget_text(p: Plan, b: TokenCost) -> str:
    """Print the steps, days and cost of a token budget."""
    head = f"{p.name}: {amount(b.tokens)} tokens take {counted(b.steps, 'step', ',')}"
    time = f"{b.days:,.1f} days" if b.days >= 2 else duration(b.days * DAY)
    hours = f"{b.gpu_hours:,.0f}" if b.gpu_hours >= 10 else f"{b.gpu_hours:.2g}"
    money = "" if b.cost is None else f", {b.cost:,.0f} at {b.price_per_gpu_hour:g} a GPU-hour"
    return f"{head}, {time} on {counted(p.gpus, 'GPU')}, {hours} GPU-hours{money}\n{wrapped(COVERS)}\n"


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def top_text(p: Plan, layouts: Sequence[Ranked], because: Mapping[str, str]) -> str:
    """Print a plan's best layouts; advice that they ignore is marked by letters, and by numbers once z is used."""
    ids = dict.fromkeys(i for f in layouts for i in f.against_advice)
    letters = {i: _LETTERS[n] if n < len(_LETTERS) else str(n) for n, i in enumerate(ids)}
    changed = dict.fromkeys(name for f in layouts for name in f.changes)
    rows: list[tuple[str, ...]] = [("", *speed(layouts[0]), *cost(layouts[0]), "ignores", "layout")]
    for f in layouts:
        ignored = " ".join(letters[i] for i in f.against_advice) or "-"
        layout = whole(f.layout, changed) if f is layouts[0] else pairs(f.changes)
        rows.append((str(f.rank), *speed(f).values(), *cost(f).values(), ignored, layout))
    lines = [f"{p.name}: the {len(layouts)} best meshes on {p.gpus} {p.hardware}, each with its best policies"]
    lines += [*figures_table(rows), *budget_note(layouts[0])]
    lines += ["Advice not followed"] if letters else []
    lines += [wrapped(f"{letter}  {short(i)}: {because[i]}", "  ", "     ") for i, letter in letters.items()]
    return "\n".join(lines) + "\n"


def page(result: Result, next: Sequence[Command], width: int) -> str:
    """Print the page of a single plan, or for several plans a table with their notes."""
    notes = [to_json(d, result.sources) for d in result.diagnostics]
    if len(result.plans) == 1:
        return page_text(result.plans[0], notes, next, width)
    below = "\n".join([*notes_text(notes, width), *next_text(next, width)])
    return "\n".join([several.runs_text(result.plans, width), *_comparisons(result.plans), f"{below}\n"])


def texts(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield every plan in full; of an isolation only the first variant, because a table compares the variants."""
    seen = set[tuple[str, str]]()
    for p in plans:
        group = (p.isolation.of, p.isolation.axis) if p.isolation else (p.name, "")
        if group not in seen:
            yield plan_text(p)
        seen.add(group)
    yield from _comparisons(plans)


def _comparisons(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield tables that compare the variants of each isolation, and the values of each sweep."""
    yield from (c.text() for c in isolation_table.comparisons(plans))
    yield from (sweep.text() for sweep in several.sweeps(plans))
