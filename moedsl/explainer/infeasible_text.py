"""Why nothing fits, as text, read from its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.explainer.text import paragraph, place, run_line
from moedsl.explainer.tree import lines
from moedsl.schema.axes import AXES, BY_NAME, LAYOUT, SUMMARY, pairs
from moedsl.support.text import short

Json = Mapping[str, Any]
_SHOWN = (
    *(n for n in LAYOUT if n in BY_NAME),
    *(a.name for a in AXES if a.section != "layout" and (a.name in SUMMARY or (a.role == "held" and a.opened))),
)
"""The axes that tell most of a layout and of what it holds in memory."""


def infeasible_text(e: Json) -> str:
    """The conflict, the ways out with the best layout of each, and the nearest layout's failing expression."""
    parts = [
        f"{run_line(e)}\n\n{paragraph(e['message'], '')}",
        _conflict(e),
        *(_members(core, _HEADS[False, len(core) == 1]) for core in e["others"]),
        _ways(e),
        _nearest(e["nearest"]),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def failure_text(e: Json) -> str:
    """A failure that has no analysis beyond its diagnostic."""
    help = "\n".join(paragraph(r) for r in e["relaxations"])
    return "\n".join(p for p in (e["message"], help) if p) + "\n"


def _conflict(e: Json) -> str:
    if not e["conflict"]:
        return "Nothing that the run file adds is to blame: its model, sequence and GPUs alone leave no room"
    return _members(e["conflict"], _HEADS[e["legal_but_for_prices"], len(e["conflict"]) == 1])


def _members(core: Sequence[Json], head: str) -> str:
    out: list[str] = []
    for m in core:
        text = f": {m['text']}" if m["kind"] in ("law", "candidates") else ""
        out.append(f"  {m['kind']:<10}  {short(m['name'])}{text}, {place(m['at'])}")
        out += [paragraph(f"{m['because']} ({'; '.join(m['cite'])})", " " * 14)] if m["because"] else []
    return "\n".join([head, *out])


_HEADS = {
    (True, True): "This alone leaves no layout that fits",
    (True, False): "Together these leave no layout that fits; without any one of them there is one",
    (False, True): "This alone cannot hold",
    (False, False): "These exclude each other; without any one of them the others can hold",
}


def _ways(e: Json) -> str:
    if not e["relaxations"]:
        what = e["together"][0]
        return paragraph(what[0].upper() + what[1:], "")
    out: list[str] = []
    for w in e["relaxations"]:
        best = pairs({k: w["best"][k] for k in _SHOWN})
        out += [f"  {w['change']}", f"      best: {best}; {_prices(w)}"]
    return "Any one of these leads out\n" + "\n".join(out)


def _prices(e: Json) -> str:
    return f"{e['peak_gib']:.1f} GiB, {e['step_time_s']:.2f} s a step"


def _nearest(n: Json | None) -> str:
    if n is None:
        return ""
    layout = pairs({k: n["layout"][k] for k in _SHOWN})
    prices = f": {_prices(n)}" if n["peak_gib"] is not None else ""
    head = f"Nearest layout: {layout}\n  it breaks {n['rule']}{prices}"
    return "\n".join([head, *lines(n["tree"], "    ")])
