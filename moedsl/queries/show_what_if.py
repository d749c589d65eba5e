"""What each change would buy as a table, from its JSON."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.queries.asked import KINDS
from moedsl.queries.tables import NUMBERS, Json, budget_note, cost, cost_head, figures_table, numbers, whole
from moedsl.schema.axes import pairs
from moedsl.support.text import tokens, wrapped

ALONE = "Every line is the best layout of a compile of its own, by {rank} of the {phase} phase"
BY_SPEED = "."
NOT_BY_SPEED = (
    ", which is not speed: a change may show less here than tuning would make of it; "
    "ask with `throughput first` for the speed."
)
ELSEWHERE = "E: another experiment, whose loss is not to be compared with the base's; what makes it one: "


def what_if_text(a: Json) -> str:
    """The base, then every change in a line under the heading of its kind, or why it has no layout."""
    s, base, solved = a["step"], a["base"], [f for f in a["lines"] if "why" not in f]
    step = f"{s['tokens']:,} tokens a step (now {s['global_batch']} sequences of {tokens(s['seq'])})"
    head, now, *lines = figures_table([_title(base), _now(base), *map(_line, solved)], left=2)
    body = _grouped(a, dict(zip((f["change"] for f in solved), lines, strict=True)))
    names = dict.fromkeys(n for f in solved for n in f["another_experiment"])
    mark = [wrapped(ELSEWHERE + ", ".join(names))] if names else []
    above = f"{a['name']}: what if, with the same {step}"
    return "\n".join([above, head, now, *body, _ranked(a), *mark, *budget_note(base)]) + "\n"


def _ranked(a: Json) -> str:
    """What the lines are the best by, and what to ask where that is not their speed."""
    said = ALONE.format(rank=a["ranks_by"], phase=a["phase"])
    return wrapped(said + (BY_SPEED if a["by_speed"] else NOT_BY_SPEED))


def _title(base: Json) -> tuple[str, ...]:
    return ("", "", *NUMBERS, "speedup", *cost_head(base), "layout")


def _now(base: Json) -> tuple[str, ...]:
    what = f"now: {base['gpus']} {base['hardware']}, {tokens(base['seq'])}"
    return (what, "", *numbers(base), "1.00x", *cost(base), whole(base["layout"]))


def _line(f: Json) -> tuple[str, ...]:
    mark, speed = "E" if f["another_experiment"] else "", f"{f['speedup']:.2f}x"
    return (f["change"], mark, *numbers(f), speed, *cost(f), pairs(f["changes"]) or "the same layout")


def _grouped(a: Json, lines: dict[str, str]) -> Iterator[str]:
    """Every kind with its heading and its lines."""
    for kind, heading in KINDS.items():
        mine = [f for f in a["lines"] if f["kind"] == kind]
        yield from [heading] if mine else []
        yield from (lines[f["change"]] if f["change"] in lines else _refused(f) for f in mine)


def _refused(f: Json) -> str:
    return wrapped(f"{f['change']}: {f['why']}", "  ", "    ")
