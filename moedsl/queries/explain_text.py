"""Print from its JSON the explanation of one value or of a whole run, or why no layout fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.facts.axes import AXES, BY_NAME, LAYOUT, SUMMARY, pairs
from moedsl.rules.stdlib import NEEDS
from moedsl.solver.nearest import lines, of_expression, of_name, word
from moedsl.support.text import change, paragraph, short, table, tokens

Json = Mapping[str, Any]


def text_of(e: Json) -> str:
    """Print an explanation of any kind."""
    match e["kind"]:
        case "overview":
            return overview_text(e)
        case "infeasible":
            return infeasible_text(e)
        case "failure":  # there is only its diagnostic
            return "\n".join(p for p in (e["message"], "\n".join(map(paragraph, e["relaxations"]))) if p) + "\n"
        case "page":
            return f"{e['text']}\n"
        case _:
            return value_text(e)


def overview_text(e: Json) -> str:
    """Print the decisions, the run file's own rules, and the advice with its prices."""
    plan, decided = e["plan"], [(d["name"], d["value"], d["origin"]) for d in e["decisions"]]
    rows = list[tuple[str, ...]]()
    for name, value, o in decided:
        if o["kind"] == "pinned":
            reason = f"{place(o['at'])}: {o['at']['text']}"
        elif o["kind"] == "chosen":
            reason = f"by {short(o['rank'])} among {len(o['among'])} values"
        else:
            reason = f"{o.get('because') or ''}" + (f" ({short(o['rule'])})" if o.get("rule") else "")
        rows.append((name, word(value), o["kind"], reason))
    own = list[str]()
    for r in e["own_rules"]:
        state = "holds" if r["applies"] and r["holds"] else "not applicable" if r["holds"] else "broken"
        own.append(f"  {state}  {r['text']} ({_named(r['values'])}), {place(r['at'])}")
        own += [paragraph(f"because: {r['because']}", "      ")] if r["because"] else []
    # Advice that is not followed first, then followed, then in one paragraph each what has no cost or does not apply
    advice = list[str]()
    for state in ("not followed", "followed", "independent of the layout"):
        for a in (a for a in e["advice"] if a["state"] == state and not _free(a)):
            advice.append(f"  {state:<12}  {short(a['rule'])}{price(a)}")
            because = f"{a['because'] or a['text']} ({'; '.join(a['cite']) or place(a['at'])})"
            advice += [paragraph(because, "                ")] if state != "followed" else []
    free = [short(a["rule"]) for a in e["advice"] if _free(a)]
    advice += [paragraph(f"followed at no cost: {', '.join(free)}")] if free else []
    idle = [short(a["rule"]) for a in e["advice"] if a["state"] == "not applicable"]
    advice += [paragraph(f"not applicable: {', '.join(idle)}")] if idle else []
    allowed = [f"  {a['rule']}, {place(a['at'])}: {a['because'] or 'no reason given'}" for a in e["allowed"]]
    return _sections(
        [f"{run_line(e)}: {plan['step_time_s']:.2f} s a step, {plan['peak_gib']:.1f} GiB at the peak"],
        ["Decisions (`moedsl explain FILE NAME` explains one)", *table(rows, "l")],
        ["Required by the run file", *own] if own else [],
        ["Advice and its price", *advice] if advice else [],
        ["Allowed by the run file", *allowed] if allowed else [],
    )


def _sections(*parts: Sequence[str]) -> str:
    """Join paragraphs, each a list of lines; leave out empty ones."""
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _named(values: Json) -> str:
    return ", ".join(f"{name} {word(value)}" for name, value in values.items())


def _free(a: Json) -> bool:
    """Whether the best layout would follow the advice even if it were dropped."""
    return a["state"] == "followed" and a["price"] is not None and a["price"].get("changes") == {}


_SHOWN = (
    *(n for n in LAYOUT if n in BY_NAME),
    *(a.name for a in AXES if a.section != "layout" and (a.name in SUMMARY or (a.role == "held" and a.opened))),
)
"""The axes that describe a layout and its use of memory best."""


def infeasible_text(e: Json) -> str:
    """Print the conflict, the changes with the best layout of each, and the nearest layout's failing expression."""
    core, nearest = e["conflict"], e["nearest"]
    conflict = ["No layout fits this model and sequence on these GPUs, even without pins and requirements"]
    if core:
        conflict = _members(core, _HEADS[e["legal_but_for_prices"], len(core) == 1])
    ways = ["Any one of these changes opens a layout"]
    for w in e["relaxations"]:
        ways += [f"  {w['change']}", f"      best: {pairs({k: w['best'][k] for k in _SHOWN})}; {_prices(w)}"]
    if not e["relaxations"]:
        what = e["together"][0]
        ways = [paragraph(what[0].upper() + what[1:], "")]
    near = list[str]()
    if nearest is not None:
        layout = pairs({k: nearest["layout"][k] for k in _SHOWN})
        prices = f": {_prices(nearest)}" if nearest["peak_gib"] is not None else ""
        near = [f"Nearest layout: {layout}", f"  it breaks {nearest['rule']}{prices}", *lines(nearest["tree"], "    ")]
    return _sections(
        [f"{run_line(e)}\n\n{paragraph(e['message'], '')}"],
        conflict,
        *(_members(other, _HEADS[False, len(other) == 1]) for other in e["others"]),
        ways,
        near,
    )


def _members(core: Sequence[Json], head: str) -> list[str]:
    out = [head]
    for m in core:
        text = f": {m['text']}" if m["kind"] in ("law", "candidates") else ""
        out.append(f"  {m['kind']:<10}  {short(m['name'])}{text}, {place(m['at'])}")
        out += [paragraph(f"{m['because']} ({'; '.join(m['cite'])})", " " * 14)] if m["because"] else []
    return out


_HEADS = {
    (True, True): "No layout fits with this",
    (True, False): "No layout fits with all of these; without any one of them a layout fits",
    (False, True): "This cannot hold",
    (False, False): "These cannot all hold; without any one of them the others can",
}


def _prices(e: Json) -> str:
    return f"{e['peak_gib']:.1f} GiB, {e['step_time_s']:.2f} s a step"


def value_text(e: Json) -> str:
    """Print the origin of the value, its alternatives, the price of advice, and the rules that it obeys."""
    head = [run_line(e), ""]
    if "field" in e and e["field"]["path"] != e["name"]:
        head.append(f"{e['field']['path']} = {e['field']['value']}, which `{e['name']}` decides")
    head.append(f"{e['name']} = {of_name(e['name'], e['value'])}    {e['doc']}")
    rows = [(word(a["value"]), fixed(a["same_otherwise"]), best(a["best"])) for a in e["alternatives"]]
    if rows and e["alternatives"][0]["same_otherwise"]:
        rows = [("", "all else fixed", "all else re-optimized"), *rows]
    cells = [r if r[1] else (r[0], r[2]) for r in rows]
    advice = list[str]()
    for a in (a for a in e["advice"] if a["state"] != "not applicable"):
        advice.append(f"  {a['state']:<12}  {short(a['rule'])}: {a['text']}{price(a)}")
        advice.append(paragraph(why(a), " " * 16))
    # The origin: a pin, a choice or a rule, then its reason, and the values that it comes from
    o = e["origin"]
    at = place(o["at"]) if o.get("at") else ""
    if o["kind"] == "pinned":
        origin = [f"  pinned at {at}: {o['at']['text']}"]
    elif o["kind"] == "chosen":
        origin = [f"  chosen by {o['rank']} among {', '.join(word(v) for v in o['among'])}"]
        origin += [paragraph(o["near"], "    ")] if "near" in o else []
    else:
        origin = [f"  {o['kind']}" + (f" by {o['rule']}, {at}" if o.get("rule") else "")]
    if o.get("because"):
        origin.append(paragraph(("candidates: " if o["kind"] == "chosen" else "because: ") + o["because"], "    "))
        origin += [paragraph(f"cite: {'; '.join(o['cite'])}", "    ")] if o["cite"] else []
    origin += lines(o["tree"], "    ") if o.get("tree") and o["tree"]["parts"] else []
    if o.get("when"):
        first, *rest = lines(o["when"], "    ")
        origin += [f"    when {first.strip()}", *rest]
    return _sections(
        [*head, *origin],
        [f"Instead of {word(e['value'])}", *table(cells, "l")] if cells else [],
        ["Advice", *advice] if advice else [],
        *_rules(e["rules"]),
    )


def _rules(rules: Sequence[Json]) -> Iterator[list[str]]:
    """Yield three sections: rules that refuse an alternative, other rules that read the value, rules that do not apply.

    The ranking is in the second; the third has the other rules for a setting and why they do not apply."""
    against, reading, branches = list[str](), list[str](), list[str]()
    for r in rules:
        if r.get("tight"):
            verb = "refuses" if r["kind"] == "require" else "advises against"
            against.append(f"  {r['rule']} ({place(r['at'])}): {r['text']}")
            against.append(f"    {verb} {', '.join(word(v) for v in r['refuses'])}")
            against += [paragraph(f"because: {r['because']}", "    ")] if r["because"] else []
            against += [paragraph(f"cite: {'; '.join(r['cite'])}", "    ")] if r["cite"] else []
        elif r["kind"] == "require":
            state = "allowed" if r["allowed"] else "holds" if r["holds"] else "broken"
            through = f", through {', '.join(r['through'])}" if r["through"] else ""
            reading.append(f"  {state}  {short(r['rule'])}{through}: {r['text']} ({_named(r['values'])})")
            reading.append(paragraph(why(r), "      "))
        elif r["kind"] == "rank":
            keys = ", ".join(f"{k['text']} = {of_expression(k['text'], k['value'])}" for k in r["keys"] if k["bears"])
            reading += [f"  ranked by {r['rule']}: {keys}", paragraph(r["because"], "      ")]
        elif "condition" in r and r["condition"] is None:
            branches.append(f"  {r['text']} by default: {r['because']}")
        elif "condition" in r:
            state = "applies too, but comes later" if r["applies"] else "does not apply"
            branches.append(f"  {r['text']} {state}: {r['because']}")
            branches += ["    when " + lines(r["condition"])[0], *lines(r["condition"], "    ")[1:]]
    yield ["Rules against the alternatives", *against] if against else []
    yield ["Rules that also read it", *reading] if reading else []
    yield ["Other rules for this setting", *branches] if branches else []


def run_line(e: Json) -> str:
    """Write the title: run, model, GPUs, sequence length and phase."""
    return f"{e['run']}: {e['model']} on {e['gpus']} {e['hardware']}, {tokens(e['seq'])} tokens, {e['phase']} first"


def place(at: Json) -> str:
    """Write FILE:LINE, or only the file if the line is unknown."""
    return f"{at['file']}:{at['line']}" if at["line"] else at["file"]


def fixed(f: Json | None) -> str:
    """Write a table cell: what an alternative costs or breaks with all else fixed."""
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
    """Write the values of the names in an expression, in the order in which it reads them."""
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
    """Write a table cell: the best layout with an alternative, or why there is none."""
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
    worse, d = "", b["decided_by"]  # the first ranking key that differs
    if d is not None and isinstance(d["plan"], bool):
        worse = f"; `{d['key']}` is {of_expression(d['key'], d['other'])}, here {of_expression(d['key'], d['plan'])}"
    elif d is not None and d["key"] not in ("score", "step_time"):
        worse = f"; {d['key']} {word(d['other'])} against {word(d['plan'])}"
    against = f"; against {', '.join(short(r) for r in b['against_advice'])}" if b["against_advice"] else ""
    rate = f", {100 * b['throughput_change']:+.1f}% tokens/s/GPU" if "throughput_change" in b else ""
    return f"{cost(b)}{rate}{with_}{worse}{against}"


def cost(p: Json) -> str:
    """Write the changes of step time and peak memory from the plan."""
    return change(p["step_time_change"], p["peak_change_gib"])


def price(a: Json) -> str:
    """Write what following or dropping advice would cost; empty if that is unknown."""
    p = a["price"]
    if p is None:
        return ""
    if p.get("layout", 0) is None:
        return f"; following it: {p['because']}"
    with_ = f" with {pairs(p['changes'])}" if p["changes"] else ""
    if a["state"] == "not followed":
        return f"; following it: {cost(p)}{with_}"
    return f"; without it: {cost(p)}{with_}" if p["changes"] else "; without it nothing changes"


def why(r: Json) -> str:
    """Write a rule's reason with its sources; without sources, with the rule's location."""
    return f"{r['because'] or 'stated in the run file'} ({'; '.join(r['cite']) or place(r['at'])})"
