"""What the tables of the answers share: columns, cells, layouts in words, what a budget comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.queries.budget import COVERS
from moedsl.schema.axes import SUMMARY, pairs
from moedsl.support.text import table, wrapped

Json = Mapping[str, Any]
NUMBERS = ("s a step", "tokens/s/GPU", "peak GiB", "")
"""The headings of `numbers`."""


def figures_table(rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align figures right, the first `left` columns and the last one left."""
    return table(rows, "l" * left + "r" * (len(rows[0]) - 1 - left) + "l")


def whole(layout: Json) -> str:
    """A layout in the axes that tell most of it."""
    return pairs({n: layout[n] for n in SUMMARY if layout[n] != 1})


def numbers(f: Json) -> tuple[str, ...]:
    """The cells below `NUMBERS`."""
    return f"{f['step_time_s']:.2f}", f"{f['tokens_per_s_per_gpu']:,.0f}", f"{f['peak_gib']:.1f}", f.get("verdict", "")


def cost_head(f: Json) -> tuple[str, ...]:
    """The headings of `cost`: of a budget where there is one, else of 10^9 tokens."""
    if "budget" not in f:
        return ("GPU-hours/1B",)
    return ("days", "GPU-hours", *(("cost",) if "cost" in f["budget"] else ()))


def cost(f: Json) -> tuple[str, ...]:
    """What tokens cost, in cells."""
    if "budget" not in f:
        return (f"{f['gpu_hours_per_billion_tokens']:,.1f}",)
    b = f["budget"]
    return (f"{b['days']:,.1f}", f"{b['gpu_hours']:,.0f}", *((f"{b['cost']:,.0f}",) if "cost" in b else ()))


def amount(tokens: int) -> str:
    """A budget in its largest unit."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if tokens >= size:
            return f"{tokens / size:g}{unit}"
    return str(tokens)


def budget_note(f: Json) -> list[str]:
    """What days and GPU-hours stand for; nothing without a budget."""
    if "budget" not in f:
        return []
    b = f["budget"]
    price = f" at {b['price_per_gpu_hour']:g} a GPU-hour" if "cost" in b else ""
    return [wrapped(f"for {amount(b['tokens'])} tokens{price}. {COVERS}")]


def budget_text(p: Json) -> str:
    """What the budget of a plan takes, in a paragraph of its own."""
    b = p["budget"]
    head = (
        f"{p['name']}: {amount(b['tokens'])} tokens are {b['steps']:,} steps, {b['days']:,.1f} days on {p['gpus']} GPUs"
    )
    money = f", {b['cost']:,.0f} at {b['price_per_gpu_hour']:g} a GPU-hour" if "cost" in b else ""
    return f"{head}, {b['gpu_hours']:,.0f} GPU-hours{money}\n{wrapped(COVERS)}\n"
