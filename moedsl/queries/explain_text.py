"""Print an explanation from its JSON: of one value, of a whole run, or of why no layout fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.facts.axes import AXES, BY_NAME, LAYOUT, SUMMARY, pairs
from moedsl.rules.stdlib import NEEDS
from moedsl.solver.nearest import lines, of_expression, of_name, word
from moedsl.support.text import change, short, table, tokens, wrapped

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


def value_text(e: Json) -> str:
    """Print the origin of the value, its alternatives, the price of advice, and the rules that it obeys."""
    out = [run_line(e), ""]
    if "field" in e and e["field"]["path"] != e["name"]:
        out.append(f"{e['field']['path']} = {e['field']['value']}, which `{e['name']}` decides")
    out.append(f"{e['name']} = {of_name(e['name'], e['value'])}    {e['doc']}")
    parts = [
        "\n".join([*out, *_origin(e["origin"])]),
        _alternatives(e),
        _priced_advice(e),
        _tight(e),
        _other_rules(e),
        _branches(e),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def paragraph(text: str, indent: str = "  ") -> str:
    """Wrap a paragraph; all lines except the first are indented by two more spaces."""
    return wrapped(text, indent, indent + "  ", width=110)


def run_line(e: Json) -> str:
    """Name the run that is explained."""
    return f"{e['run']}: {e['model']} on {e['gpus']} {e['hardware']}, {tokens(e['seq'])} tokens, {e['phase']} first"


def _origin(o: Json) -> list[str]:
    at = place(o["at"]) if o.get("at") else ""
    if o["kind"] == "pinned":
        out = [f"  pinned at {at}: {o['at']['text']}"]
    elif o["kind"] == "chosen":
        out = [f"  chosen by {o['rank']} among {', '.join(word(v) for v in o['among'])}"]
        out += [paragraph(o["near"], "    ")] if "near" in o else []
    else:
        by = f" by {o['rule']}, {at}" if o.get("rule") else ""
        out = [f"  {o['kind']}{by}"]
    if o.get("because"):
        out.append(paragraph(("candidates: " if o["kind"] == "chosen" else "because: ") + o["because"], "    "))
        out.append(paragraph(f"cite: {'; '.join(o['cite'])}", "    ")) if o["cite"] else None
    shown = [*lines(o["tree"], "    ")] if o.get("tree") and o["tree"]["parts"] else []
    return [*out, *shown, *(_when(o["when"]) if o.get("when") else [])]


def _when(condition: Json) -> list[str]:
    first, *rest = lines(condition, "    ")
    return [f"    when {first.strip()}", *rest]


def place(at: Json) -> str:
    """Write FILE:LINE, or only the file if the line is unknown."""
    return f"{at['file']}:{at['line']}" if at["line"] else at["file"]


def _alternatives(e: Json) -> str:
    if not e["alternatives"]:
        return ""
    rows = [("", "all else fixed", "all else re-optimized")] if e["alternatives"][0]["same_otherwise"] else []
    rows += [(word(a["value"]), fixed(a["same_otherwise"]), best(a["best"])) for a in e["alternatives"]]
    cells = [r if r[1] else (r[0], r[2]) for r in rows]
    return f"Instead of {word(e['value'])}\n" + "\n".join(table(cells, "l"))


def fixed(f: Json | None) -> str:
    """Write what an alternative costs or breaks with all else fixed, for a cell of a table."""
    if f is None:
        return ""
    if not f["breaks"]:
        return cost(f)
    first = f["breaks"][0]
    more = f" and {len(f['breaks']) - 1} more" if len(f["breaks"]) > 1 else ""
    needs = NEEDS.get(first["rule"]) if "needed_gib" in f else None
    over = f" ({needs} {f['needed_gib']:.0f} GiB)" if needs else parts(first["tree"])
    return f"breaks {short(first['rule'])}{over}{more}"


def parts(tree: Json) -> str:
    """Write the values of an expression's names, in the order in which it reads them."""
    seen: dict[str, str] = {}
    todo = [tree]
    while todo:
        node = todo.pop(0)
        if node["text"].replace("_", "").isalnum() and node is not tree:
            seen.setdefault(node["text"], of_name(node["text"], node["value"]))
        else:
            todo = [*node["parts"], *todo]
    return f" ({', '.join(f'{k} {v}' for k, v in seen.items())})" if seen else ""


def best(b: Json) -> str:
    """Write the best layout with an alternative, or why there is none, for a cell of a table."""
    if b["layout"] is None:
        if b["refused_by"]:
            return f"{short(b['refused_by'][0])} refuses it in every layout"
        if not b["legal_layouts"]:
            return "no layout is legal"
        if b["least_gib"] is None:
            return "no layout fits"
        least = f"the smallest needs {b['least_gib']:.0f} GiB"
        return f"none of {b['legal_layouts']:,} legal meshes has a layout that fits; {least}"
    with_ = f", with {pairs(b['changes'])}" if b["changes"] else ""
    because = b["decided_by"]
    worse = "" if because is None or because["key"] in ("score", "step_time") else f"; {key(because)}"
    against = f"; against {', '.join(short(r) for r in b['against_advice'])}" if b["against_advice"] else ""
    rate = f", {100 * b['throughput_change']:+.1f}% tokens/s/GPU" if "throughput_change" in b else ""
    return f"{cost(b)}{rate}{with_}{worse}{against}"


def key(d: Json) -> str:
    """Write the first key of the ranking that differs."""
    if isinstance(d["plan"], bool):
        return f"`{d['key']}` is {of_expression(d['key'], d['other'])}, here {of_expression(d['key'], d['plan'])}"
    return f"{d['key']} {word(d['other'])} against {word(d['plan'])}"


def cost(p: Json) -> str:
    """Write the prices of a change compared with the plan."""
    return change(p["step_time_change"], p["peak_change_gib"])


def _priced_advice(e: Json) -> str:
    return advice_text([a for a in e["advice"] if a["state"] != "not applicable"])


def advice_text(advice: Sequence[Json]) -> str:
    """Print a line for each advice: whether it is followed, and its price."""
    if not advice:
        return ""
    out = [f"  {a['state']:<12}  {short(a['rule'])}: {a['text']}{price(a)}" for a in advice]
    notes = (paragraph(why(a), " " * 16) for a in advice)
    return "Advice\n" + "\n".join(f"{line}\n{note}" for line, note in zip(out, notes, strict=True))


def price(a: Json) -> str:
    """Write what following or leaving an advice would cost; empty if that is unknown."""
    p = a["price"]
    if p is None:
        return ""
    if p.get("layout", 0) is None:
        return f"; following it: {p['because']}"
    with_ = f" with {pairs(p['changes'])}" if p["changes"] else ""
    if a["state"] == "not followed":
        return f"; following it: {cost(p)}{with_}"
    return f"; without it: {cost(p)}{with_}" if p["changes"] else "; without it nothing changes"


def _tight(e: Json) -> str:
    rules = [r for r in e["rules"] if r.get("tight")]
    return "Rules against the alternatives\n" + "\n".join(_rule(r) for r in rules) if rules else ""


def _rule(r: Json) -> str:
    at = place(r["at"])
    verb = "refuses" if r["kind"] == "require" else "advises against"
    head = f"  {r['rule']} ({at}): {r['text']}\n    {verb} {', '.join(word(v) for v in r['refuses'])}"
    reason = paragraph(f"because: {r['because']}", "    ") if r["because"] else ""
    cited = paragraph(f"cite: {'; '.join(r['cite'])}", "    ") if r["cite"] else ""
    return "\n".join(x for x in (head, reason, cited) if x)


def _other_rules(e: Json) -> str:
    """Print the rules that hold without refusing an alternative, and the ranking."""
    out = [_loose(r) for r in e["rules"] if r["kind"] == "require" and not r["tight"]]
    out += [_ranking(r) for r in e["rules"] if r["kind"] == "rank"]
    return "Rules that also read it\n" + "\n".join(out) if out else ""


def _loose(r: Json) -> str:
    state = (
        "allowed" if r["allowed"] else "holds" if r["holds"] else "not followed" if r["kind"] == "prefer" else "broken"
    )
    through = f", through {', '.join(r['through'])}" if r["through"] else ""
    named = ", ".join(f"{k} {word(v)}" for k, v in r["values"].items())
    return f"  {state}  {short(r['rule'])}{through}: {r['text']} ({named})\n{paragraph(why(r), '      ')}"


def why(r: Json) -> str:
    """Write a rule's reason and its sources, or where the run file states it."""
    return f"{r['because'] or 'stated in the run file'} ({'; '.join(r['cite']) or place(r['at'])})"


def _ranking(r: Json) -> str:
    keys = ", ".join(f"{k['text']} = {of_expression(k['text'], k['value'])}" for k in r["keys"] if k["bears"])
    return f"  ranked by {r['rule']}: {keys}\n{paragraph(r['because'], '      ')}"


def _branches(e: Json) -> str:
    """Print the other rules of a setting and why they do not apply."""
    out: list[str] = []
    for r in (r for r in e["rules"] if "condition" in r):
        if r["condition"] is None:
            out.append(f"  {r['text']} by default: {r['because']}")
            continue
        state = "applies too, but comes later" if r["applies"] else "does not apply"
        out.append(f"  {r['text']} {state}: {r['because']}")
        out += ["    when " + lines(r["condition"])[0], *lines(r["condition"], "    ")[1:]]
    return "Other rules for this setting\n" + "\n".join(out) if out else ""
