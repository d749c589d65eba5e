"""Print the answers to questions as tables, and the plans of a file: on one page, or whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moedsl.compiler import Result
from moedsl.facts.axes import SUMMARY, pairs
from moedsl.planner import plan, several
from moedsl.planner.page import Command, next_text, notes_text, page_text
from moedsl.planner.plan import Plan, Priced, Ranked
from moedsl.planner.text import plan_text, runs_text
from moedsl.queries.layouts import COVERS
from moedsl.queries.what_if import KINDS
from moedsl.support.diagnostics import to_json
from moedsl.support.text import counted, duration, short, table, tokens, wrapped

Json = Mapping[str, Any]
NUMBERS = ("s a step", "tokens/s/GPU", "peak GiB", "")
"""The headings of `numbers`."""


def figures_table(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align figures right, the first `left` columns and the last one left."""
    return table(rows, "l" * left + "r" * (len(rows[0]) - 1 - left) + "l")


def whole(layout: Mapping[str, Any], also: Iterable[str] = ()) -> str:
    """Write a layout with its most important axes, of which sizes of 1 are left out, and `also` others."""
    also = {*also}
    shown = [n for n in SUMMARY if layout[n] != 1 or n in also]
    return pairs({n: layout[n] for n in (*shown, *(n for n in layout if n in also and n not in SUMMARY))})


def numbers(f: Priced) -> tuple[str, ...]:
    """The cells below `NUMBERS`."""
    return f"{f.step_time_s:.2f}", f"{f.tokens_per_s_per_gpu:,.0f}", f"{f.peak_gib:.1f}", f.verdict or ""


def cost_head(f: Priced) -> tuple[str, ...]:
    """The headings of `cost`: for a budget if there is one, else for 10^9 tokens."""
    if f.budget is None:
        return ("GPU-hours/1B",)
    return ("days", "GPU-hours") if f.budget.cost is None else ("days", "GPU-hours", "cost")


def cost(f: Priced) -> tuple[str, ...]:
    """The cells for the cost of tokens."""
    if f.budget is None:
        return (f"{f.gpu_hours_per_billion_tokens:,.1f}",)
    b = f.budget
    return (f"{b.days:,.1f}", f"{b.gpu_hours:,.0f}", *(() if b.cost is None else (f"{b.cost:,.0f}",)))


def amount(tokens: int) -> str:
    """Write a budget in its largest unit."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if tokens >= size:
            return f"{tokens / size:g}{unit}"
    return str(tokens)


def budget_note(f: Priced) -> list[str]:
    """Explain days and GPU-hours; empty without a budget."""
    if f.budget is None:
        return []
    price = "" if f.budget.price_per_gpu_hour is None else f" at {f.budget.price_per_gpu_hour:g} a GPU-hour"
    return [wrapped(f"for {amount(f.budget.tokens)} tokens{price}. {COVERS}")]


def budget_text(p: Plan, b: plan.TokenCost) -> str:
    """Print steps, days and cost of a plan's budget."""
    head = f"{p.name}: {amount(b.tokens)} tokens take {counted(b.steps, 'step', ',')}"
    time = f"{b.days:,.1f} days" if b.days >= 2 else duration(b.days * 86400)
    hours = f"{b.gpu_hours:,.0f}" if b.gpu_hours >= 10 else f"{b.gpu_hours:.2g}"
    money = "" if b.cost is None else f", {b.cost:,.0f} at {b.price_per_gpu_hour:g} a GPU-hour"
    return f"{head}, {time} on {counted(p.gpus, 'GPU')}, {hours} GPU-hours{money}\n{wrapped(COVERS)}\n"


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def top_text(p: Plan, layouts: Sequence[Ranked], because: Mapping[str, str]) -> str:
    """Print the best layouts of a plan; a letter stands for each advice that one of them ignores."""
    letters = _lettered(layouts)
    head = ("", *NUMBERS, *cost_head(layouts[0]), "ignores", "layout")
    ignored = [" ".join(letters[i] for i in f.against_advice) or "-" for f in layouts]
    changed = dict.fromkeys(name for f in layouts for name in f.changes)
    differs = [whole(layouts[0].layout, changed), *(pairs(f.changes) for f in layouts[1:])]
    rows = [(str(f.rank), *numbers(f), *cost(f), a, b) for f, a, b in zip(layouts, ignored, differs, strict=True)]
    lines = [f"{p.name}: the {len(layouts)} best meshes on {p.gpus} {p.hardware}, each with its best policies"]
    lines += [*figures_table([head, *rows]), *budget_note(layouts[0])]
    return "\n".join([*lines, *_legend(letters, because)]) + "\n"


def _lettered(layouts: Iterable[Ranked]) -> dict[str, str]:
    """A letter for each advice in order of occurrence, and numbers after the last letter."""
    ids = dict.fromkeys(i for f in layouts for i in f.against_advice)
    return {i: _LETTERS[n] if n < len(_LETTERS) else str(n) for n, i in enumerate(ids)}


def _legend(letters: Mapping[str, str], because: Mapping[str, str]) -> list[str]:
    if not letters:
        return []
    lines = [wrapped(f"{letter}  {short(i)}: {because[i]}", "  ", "     ") for i, letter in letters.items()]
    return ["Advice not followed", *lines]


MOST_POINTS = 12
"""The most points of a front in a table; JSON has all."""


def pareto_text(p: Plan, trades: plan.Pareto) -> str:
    """Print both trade-offs, each as a table."""
    return f"{_memory_time(p, trades.memory_time)}\n\n{_gpus_time(p, trades.gpus_time)}\n"


def _memory_time(p: Plan, m: plan.MemoryTime) -> str:
    points, plan = m.points, m.plan
    on = f"{p.name}: memory against speed on {p.gpus} {p.hardware}"
    head = f"{on}, {len(points)} layouts on the Pareto front"
    listed = thinned(points)
    rows = [("", *NUMBERS, *cost_head(plan), "changes from the plan")]
    rows += [("o", *numbers(f), *cost(f), pairs(f.changes) or "the plan") for f in listed]
    rows += [("P", *numbers(plan), *cost(plan), _standing(m))]
    lines = [head, *figures_table(rows), *budget_note(plan)]
    if len(listed) < len(points):
        lines.append(f"  {len(listed)} of {len(points)} are shown; --json has all")
    return "\n".join(lines)


def _standing(m: plan.MemoryTime) -> str:
    """Write that the plan is on the front, or the fastest layout that beats it and why the run ranks that one lower."""
    ahead = [m.points[i] for i in m.plan.beaten_by]
    if not ahead:
        return "the plan, on the front"
    fastest = min(ahead, key=lambda f: f.step_time_s)
    faster = 100 * (fastest.step_time_s / m.plan.step_time_s - 1)
    return f"the plan; {pairs(fastest.changes)} is {faster:+.1f}% step time{_behind(fastest, m.plan)}"


def _behind(point: plan.FrontPoint, plan: plan.Standing) -> str:
    """Write why the run does not choose a layout that beats the plan: the deciding key, or the ignored advice."""
    decides = point.behind
    if not isinstance(decides, plan.Behind):
        return ""
    left = [short(i) for i in point.against_advice if i not in plan.against_advice]
    if decides.key == "score" and left:
        return f", ignoring {', '.join(left)}"
    by = f"`{decides.key}` {decides.value:.4g} against {decides.plan:.4g}"
    return f", but ranks lower by {short(decides.rule)}: {by}"


def thinned(points: Sequence[plan.FrontPoint]) -> list[plan.FrontPoint]:
    """Choose at most `MOST_POINTS` of a front: both ends, and points at equal steps between."""
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def _gpus_time(p: Plan, g: plan.GpusTime) -> str:
    if not g.points:
        return f"{p.name}: no number of {p.hardware} is enough for this step"
    b = p.batch
    head = (
        f"{p.name}: GPUs against time at {b.global_batch} sequences of {tokens(b.seq)} a step; "
        f"{g.fewest} {p.hardware} are the fewest"
    )
    rows = [("GPUs", *NUMBERS, *cost_head(g.points[0]), "", "changes from the plan")]
    rows += [(str(f.gpus), *numbers(f), *cost(f), _at(f), pairs(f.changes)) for f in g.points]
    lines = [head, *figures_table(rows), *budget_note(g.points[0])]
    if g.without:
        lines.append(wrapped(f"no layout on {', '.join(map(str, g.without))}"))
    return "\n".join(lines)


def _at(f: plan.GpusPoint) -> str:
    where = "" if f.on_front else "slower"
    return f"P {where}".rstrip() if f.plan else where or "o"


ALONE = "Each line is compiled separately: it is the best layout by {rank} of the {phase} phase"
BY_SPEED = "."
NOT_BY_SPEED = ", not by speed: write `throughput first` to compare the speed of tuned layouts."
ELSEWHERE = "E: a different experiment, whose loss cannot be compared with the base's; it differs in: "


def what_if_text(a: Json) -> str:
    """Print the base, then a line for every change under the heading of its kind, or why it has no layout."""
    s, base, solved = a["step"], a["base"], [f for f in a["lines"] if "why" not in f]
    step = f"{s['tokens']:,} tokens a step (now {s['global_batch']} sequences of {tokens(s['seq'])})"
    figures = Priced.from_json(base)
    title = ("", "", *NUMBERS, "goodput", "speedup", *cost_head(figures), "layout")
    head, now, *lines = figures_table([title, _now(a, figures), *map(_line, solved)], left=2)
    body = _grouped(a, dict(zip((f["change"] for f in solved), lines, strict=True)))
    names = dict.fromkeys(n for f in solved for n in f["another_experiment"])
    mark = [wrapped(ELSEWHERE + ", ".join(names))] if names else []
    above = f"{a['name']}: what if, with the same {step}"
    # Name the ranking of the lines, and how to compare by speed if it is another
    ranking = ALONE.format(rank=a["ranks_by"], phase=a["phase"])
    return (
        "\n".join(
            [
                above,
                head,
                now,
                *body,
                wrapped(ranking + (BY_SPEED if a["by_speed"] else NOT_BY_SPEED)),
                *mark,
                *budget_note(figures),
            ]
        )
        + "\n"
    )


def _now(a: Json, f: Priced) -> tuple[str, ...]:
    """The base, with what each line changes."""
    base = a["base"]
    layout = whole(base["layout"], sorted({name for line in a["lines"] for name in line.get("changes", ())}))
    what = f"now: {base['gpus']} {base['hardware']}, {tokens(base['seq'])}"
    return (what, "", *numbers(f), f"{base['goodput']:.1%}", "1.00x", *cost(f), layout)


def _line(f: Json) -> tuple[str, ...]:
    mark, speed, p = "E" if f["another_experiment"] else "", f"{f['speedup']:.2f}x", Priced.from_json(f)
    goodput = f"{f['goodput']:.1%}"
    return (f["change"], mark, *numbers(p), goodput, speed, *cost(p), pairs(f["changes"]) or "the same layout")


def _grouped(a: Json, lines: dict[str, str]) -> Iterator[str]:
    """Print every kind with its heading and its lines."""
    for kind, heading in KINDS.items():
        mine = [f for f in a["lines"] if f["kind"] == kind]
        yield from [heading] if mine else []
        yield from (lines.get(f["change"]) or wrapped(f"{f['change']}: {f['why']}", "  ", "    ") for f in mine)


def page(result: Result, next: Sequence[Command], width: int) -> str:
    """The page of one plan; of several, a table first."""
    notes = [to_json(d, result.sources) for d in result.diagnostics]
    if len(result.plans) == 1:
        return page_text(result.plans[0], notes, next, width)
    below = "\n".join([*notes_text(notes, width), *next_text(next, width)])
    return "\n".join([runs_text(result.plans, width), *_comparisons(result.plans), f"{below}\n"])


def texts(plans: Sequence[Plan]) -> Iterator[str]:
    """Print all of every plan; of an isolation only its first variant, because a table compares them."""
    seen = set[tuple[str, str]]()
    for p in plans:
        group = (p.isolation.of, p.isolation.axis) if p.isolation else (p.name, "")
        if group not in seen:
            yield plan_text(p)
        seen.add(group)
    yield from _comparisons(plans)


def _comparisons(plans: Sequence[Plan]) -> Iterator[str]:
    """Compare the variants of each isolation, and the values of each sweep."""
    if any(p.isolation for p in plans):
        from moedsl.emit import isolation_table as table  # it reads the fields of recipes

        yield from map(table.text, table.comparisons(plans))
    yield from map(several.sweep_text, several.comparisons(plans))
