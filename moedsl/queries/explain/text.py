"""Print an explanation from its JSON form: of one value, of a whole run, or of why no layout fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.facts.axes import AXES, BY_NAME, LAYOUT, SUMMARY, pairs
from moedsl.queries.explain.value_text import paragraph, place, price, run_line, value_text
from moedsl.solver.infeasible.tree import lines, word
from moedsl.support.text import short, table

Json = Mapping[str, Any]


def text_of(e: Json) -> str:
    """Print an explanation of any kind."""
    kinds = {
        "overview": overview_text,
        "infeasible": infeasible_text,
        "failure": failure_text,
        "page": lambda e: f"{e['text']}\n",
    }
    return kinds.get(e["kind"], value_text)(e)


def overview_text(e: Json) -> str:
    """Print the decisions, the run file's own rules, and the advice with its prices."""
    parts = [
        _head(e),
        _decisions(e["decisions"]),
        _own_rules(e["own_rules"]),
        _advice(e["advice"]),
        _allowed(e["allowed"]),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(e: Json) -> str:
    plan = e["plan"]
    return f"{run_line(e)}: {plan['step_time_s']:.2f} s a step, {plan['peak_gib']:.1f} GiB at the peak"


def _decisions(decisions: Sequence[Json]) -> str:
    rows = [(d["name"], word(d["value"]), d["origin"]["kind"], _why(d["origin"])) for d in decisions]
    return "Decisions (`moedsl explain FILE NAME` explains one)\n" + "\n".join(table(rows, "l"))


def _why(o: Json) -> str:
    if o["kind"] == "pinned":
        return f"{place(o['at'])}: {o['at']['text']}"
    if o["kind"] == "chosen":
        return f"by {short(o['rank'])} among {len(o['among'])} values"
    return f"{o.get('because') or ''}" + (f" ({short(o['rule'])})" if o.get("rule") else "")


def _own_rules(rules: Sequence[Json]) -> str:
    out: list[str] = []
    for r in rules:
        named = ", ".join(f"{k} {word(v)}" for k, v in r["values"].items())
        state = "holds" if r["applies"] and r["holds"] else "not applicable" if r["holds"] else "broken"
        out.append(f"  {state}  {r['text']} ({named}), {place(r['at'])}")
        out += [paragraph(f"because: {r['because']}", "      ")] if r["because"] else []
    return "Required by the run file\n" + "\n".join(out) if out else ""


def _advice(advice: Sequence[Json]) -> str:
    """Print advice that is not followed first, then followed, then not applicable in one paragraph."""
    out: list[str] = []
    for state in ("not followed", "followed", "independent of the layout"):
        for a in (a for a in advice if a["state"] == state and not _free(a)):
            out.append(f"  {state:<12}  {short(a['rule'])}{price(a)}")
            why = f"{a['because'] or a['text']} ({'; '.join(a['cite']) or place(a['at'])})"
            out += [paragraph(why, "                ")] if state != "followed" else []
    free = [short(a["rule"]) for a in advice if _free(a)]
    out += [paragraph(f"followed at no cost: {', '.join(free)}")] if free else []
    idle = [short(a["rule"]) for a in advice if a["state"] == "not applicable"]
    out += [paragraph(f"not applicable: {', '.join(idle)}")] if idle else []
    return "Advice and its price\n" + "\n".join(out) if out else ""


def _free(a: Json) -> bool:
    """Whether the best layout would follow an advice anyway."""
    return a["state"] == "followed" and a["price"] is not None and a["price"].get("changes") == {}


def _allowed(allowed: Sequence[Json]) -> str:
    lines = [f"  {a['rule']}, {place(a['at'])}: {a['because'] or 'no reason given'}" for a in allowed]
    return "Allowed by the run file\n" + "\n".join(lines) if lines else ""


_SHOWN = (
    *(n for n in LAYOUT if n in BY_NAME),
    *(a.name for a in AXES if a.section != "layout" and (a.name in SUMMARY or (a.role == "held" and a.opened))),
)
"""The axes that describe a layout and its use of memory best."""


def infeasible_text(e: Json) -> str:
    """Print the conflict, the changes with the best layout of each, and the nearest layout's failing expression."""
    parts = [
        f"{run_line(e)}\n\n{paragraph(e['message'], '')}",
        _conflict(e),
        *(_members(core, _HEADS[False, len(core) == 1]) for core in e["others"]),
        _ways(e),
        _nearest(e["nearest"]),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def failure_text(e: Json) -> str:
    """Print a failure that has only its diagnostic."""
    help = "\n".join(paragraph(r) for r in e["relaxations"])
    return "\n".join(p for p in (e["message"], help) if p) + "\n"


def _conflict(e: Json) -> str:
    if not e["conflict"]:
        return "No layout fits this model and sequence on these GPUs, even without pins and requirements"
    return _members(e["conflict"], _HEADS[e["legal_but_for_prices"], len(e["conflict"]) == 1])


def _members(core: Sequence[Json], head: str) -> str:
    out: list[str] = []
    for m in core:
        text = f": {m['text']}" if m["kind"] in ("law", "candidates") else ""
        out.append(f"  {m['kind']:<10}  {short(m['name'])}{text}, {place(m['at'])}")
        out += [paragraph(f"{m['because']} ({'; '.join(m['cite'])})", " " * 14)] if m["because"] else []
    return "\n".join([head, *out])


_HEADS = {
    (True, True): "No layout fits with this",
    (True, False): "No layout fits with all of these; without any one of them a layout fits",
    (False, True): "This cannot hold",
    (False, False): "These cannot all hold; without any one of them the others can",
}


def _ways(e: Json) -> str:
    if not e["relaxations"]:
        what = e["together"][0]
        return paragraph(what[0].upper() + what[1:], "")
    out: list[str] = []
    for w in e["relaxations"]:
        best = pairs({k: w["best"][k] for k in _SHOWN})
        out += [f"  {w['change']}", f"      best: {best}; {_prices(w)}"]
    return "Any one of these changes opens a layout\n" + "\n".join(out)


def _prices(e: Json) -> str:
    return f"{e['peak_gib']:.1f} GiB, {e['step_time_s']:.2f} s a step"


def _nearest(n: Json | None) -> str:
    if n is None:
        return ""
    layout = pairs({k: n["layout"][k] for k in _SHOWN})
    prices = f": {_prices(n)}" if n["peak_gib"] is not None else ""
    head = f"Nearest layout: {layout}\n  it breaks {n['rule']}{prices}"
    return "\n".join([head, *lines(n["tree"], "    ")])
