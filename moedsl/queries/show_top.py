"""The best layouts as a table, from their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moedsl.queries.tables import NUMBERS, Json, budget_note, cost, cost_head, figures_table, numbers, whole
from moedsl.schema.axes import pairs
from moedsl.support.text import short, wrapped

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def top_text(p: Json, found: Sequence[Json], because: Mapping[str, str]) -> str:
    """The best layouts of a plan; a letter stands for each advice that one of them leaves."""
    letters = _lettered(found)
    head = ("", *NUMBERS, *cost_head(found[0]), "leaves", "layout")
    rows = [(str(f["rank"]), *numbers(f), *cost(f), _left(f, letters), _differs(f)) for f in found]
    lines = [f"{p['name']}: the {len(found)} best meshes on {p['gpus']} {p['hardware']}, each with its best policies"]
    lines += [*figures_table([head, *rows]), *budget_note(found[0])]
    return "\n".join([*lines, *_legend(letters, because)]) + "\n"


def _differs(f: Json) -> str:
    return whole(f["layout"]) if f["rank"] == 1 else pairs(f["changes"])


def _lettered(found: Iterable[Json]) -> dict[str, str]:
    """A letter, or a number once they run out, for each advice in the order in which it comes up."""
    ids = dict.fromkeys(i for f in found for i in f["against_advice"])
    return {i: _LETTERS[n] if n < len(_LETTERS) else str(n) for n, i in enumerate(ids)}


def _left(f: Json, letters: Mapping[str, str]) -> str:
    return " ".join(letters[i] for i in f["against_advice"]) or "-"


def _legend(letters: Mapping[str, str], because: Mapping[str, str]) -> list[str]:
    if not letters:
        return []
    lines = [wrapped(f"{letter}  {short(i)}: {because[i]}", "  ", "     ") for i, letter in letters.items()]
    return ["Advice that is left", *lines]
