"""The overview as text, read from its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.explainer.text import paragraph, place, price, run_line
from moedsl.explainer.tree import word
from moedsl.support.text import short, table

Json = Mapping[str, Any]


def overview_text(e: Json) -> str:
    """The decisions, the run file's own rules, and the advice with its prices."""
    parts = [_head(e), _decisions(e["decisions"]), _own(e["own_rules"]), _advice(e["advice"]), _allowed(e["allowed"])]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(e: Json) -> str:
    plan = e["plan"]
    return f"{run_line(e)}: {plan['step_time_s']:.2f} s a step, {plan['peak_gib']:.1f} GiB at the peak"


def _decisions(decisions: Sequence[Json]) -> str:
    rows = [(d["name"], word(d["value"]), d["origin"]["kind"], _why(d["origin"])) for d in decisions]
    return "Decisions (`moedsl explain FILE NAME` says more of each)\n" + "\n".join(table(rows, "l"))


def _why(o: Json) -> str:
    if o["kind"] == "pinned":
        return f"{place(o['at'])}: {o['at']['text']}"
    if o["kind"] == "chosen":
        return f"by {short(o['rank'])} among {len(o['among'])} values"
    return f"{o.get('because') or ''}" + (f" ({short(o['rule'])})" if o.get("rule") else "")


def _own(rules: Sequence[Json]) -> str:
    out: list[str] = []
    for r in rules:
        named = ", ".join(f"{k} {word(v)}" for k, v in r["values"].items())
        state = "holds" if r["applies"] and r["holds"] else "no case here" if r["holds"] else "broken"
        out.append(f"  {state}  {r['text']} ({named}), {place(r['at'])}")
        out += [paragraph(f"because: {r['because']}", "      ")] if r["because"] else []
    return "Required by the run file\n" + "\n".join(out) if out else ""


def _advice(advice: Sequence[Json]) -> str:
    """Not followed first, then followed, then what has no case here in one paragraph."""
    out: list[str] = []
    for state in ("not followed", "followed", "not for the layout to decide"):
        for a in (a for a in advice if a["state"] == state and not _free(a)):
            out.append(f"  {state:<12}  {short(a['rule'])}{price(a)}")
            why = f"{a['because'] or a['text']} ({'; '.join(a['cite']) or place(a['at'])})"
            out += [paragraph(why, "                ")] if state != "followed" else []
    free = [short(a["rule"]) for a in advice if _free(a)]
    out += [paragraph(f"followed, and the plan is the same without it: {', '.join(free)}")] if free else []
    idle = [short(a["rule"]) for a in advice if a["state"] == "no case here"]
    out += [paragraph(f"no case here: {', '.join(idle)}")] if idle else []
    return "Advice and its price\n" + "\n".join(out) if out else ""


def _free(a: Json) -> bool:
    """Whether the best layout follows an advice anyway."""
    return a["state"] == "followed" and a["price"] is not None and a["price"].get("changes") == {}


def _allowed(allowed: Sequence[Json]) -> str:
    lines = [f"  {a['rule']}, {place(a['at'])}: {a['because'] or 'no reason given'}" for a in allowed]
    return "Allowed by the run file\n" + "\n".join(lines) if lines else ""
