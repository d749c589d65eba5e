"""Print a report from its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moedsl.facts.axes import show
from moedsl.support.text import counted, table, wrapped

Json = dict[str, Any]
NAME = 90
"""The most characters of a kernel's name."""
LEAST = 0.0005
"""Classes below this share of a step are in one line."""
CAUSES = {
    "launch": "launched late",
    "communication": "waits for communication",
    "bubble": "waits for another stage",
    "dependency": "waits for another operation",
    "unresolved": "cause unknown",
}
PRICED = "prices what the rules know against the largest loss"
HOST_CAUSES = CAUSES | {"launch": "Python between operators"}


BLOCKS = {"communication": "communication", "memory": "copies"}
"""The block of classes that each wall loses time to; the host's time has none."""


def text(r: Json) -> str:
    """Print the report."""
    s, rank = r["steps"], "" if r["rank"] is None else f", rank {r['rank']} of {r['world']}"
    of = r["device_name"] or ("CPU" if r["on_cpu"] else "")
    lines = [f"{r['trace']}: {r['tool']}{rank}{', ' * bool(of)}{of}"]
    spread = f", {_ms(s['min_s'])} to {_ms(s['max_s'])}" if s["used"] > 1 else ""
    lines.append(f"  {counted(s['used'], 'step')} of {_ms(r['step_s'])}{spread}; found by {s['name'][:NAME]}")
    left = s["n"] - s["used"]
    if left:
        lines.append(f"  left out: {counted(left, 'step')}, more than half as long again as the median")
    rows = [(name, _ms(w["s"]), _share(w["share"])) for name, w in r["walls"].items()]
    blocks = [
        [*lines, *(wrapped(text, "  remark: ", " " * 10) for text in r["remarks"])],
        *_ranks(r),
        ["Walls", *table(rows, "lr"), wrapped(f"largest loss: {_loss(r)}")],
        _classes(r),
        _collectives(r),
        _idle(r),
        _modules(r),
        _unknown(r),
    ]
    blocks += [b for c in r.get("plans", ()) for b in (_compared(c), _fixes(c))]
    blocks += (
        [] if "plans" in r else [[wrapped(f"next: --run FILE compares this with the plan of a run file, and {PRICED}")]]
    )
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _ranks(r: Json) -> Iterator[list[str]]:
    if len(r["ranks"]) < 2:
        return
    rows = [("trace", "rank", "part", "step", "compute", "communication", "exposed", "idle")]
    rows += [
        (
            one["trace"], "-" if one["rank"] is None else str(one["rank"]), str(one["part"]), _ms(one["step_s"]),
            _ms(one["compute_s"]), _ms(one["communication_s"]), _ms(one["communication_exposed_s"]), _ms(one["idle_s"]),
        )
        for one in r["ranks"]
    ]  # fmt: skip
    yield ["Ranks", *table(rows, "lr"), *map(_spread, r["spread"])]


def _spread(p: Json) -> str:
    """Say which rank of a part is slowest, and whether it always is."""
    more = p["slowest_s"] / p["fastest_s"] - 1 if p["fastest_s"] else 0.0
    said = f"part {p['part']}: {p['slowest']} has most time outside communication, {_ms(p['slowest_s'])}"
    said += f", {more:.1%} more than {p['fastest']}, and most in {p['slowest_in']} of {counted(p['steps'], 'step')}"
    return wrapped(said)


def _loss(r: Json) -> str:
    """Name the largest loss, and the classes that have most of it."""
    name = r["largest_loss"]
    block = BLOCKS.get(name)
    some = sorted((c for c in r["classes"] if c["wall"] == block and c["exposed_s"]), key=lambda c: -c["exposed_s"])
    most = ", ".join(f"{c['class']} {_ms(c['exposed_s'])}" for c in some[:3])
    wall = r["walls"][name]
    return f"{name}, {_ms(wall['s'])} a step, {_share(wall['share'])}{': ' * bool(most)}{most}"


def _classes(r: Json) -> list[str]:
    rows = [("class", "busy", "alone", "of the step", "launches")]
    some = [c for c in r["classes"] if c["share"] >= LEAST]
    rows += [(c["class"], _ms(c["busy_s"]), _ms(c["exposed_s"]), _share(c["share"]), _count(c)) for c in some]
    rest = [c["class"] for c in r["classes"] if c["share"] < LEAST]
    more = [wrapped(f"below {LEAST:.2%} of the step: {', '.join(rest)}")] if rest else []
    return ["Classes, each the union of its operations", *table(rows, "lr"), *more]


def _count(c: Json) -> str:
    return f"{c['launches']:,.0f}"


def _collectives(r: Json) -> list[str]:
    rows = [("class", "process group", "busy", "alone", "launches")]
    rows += [(c["class"], c["group"], _ms(c["busy_s"]), _ms(c["exposed_s"]), _count(c)) for c in r["collectives"]]
    return ["Communication by process group", *table(rows, "llr")] if len(rows) > 1 else []


def _idle(r: Json) -> list[str]:
    words = HOST_CAUSES if r["on_cpu"] else CAUSES
    rows = [(words[c], _ms(s), _share(s / r["step_s"])) for c, s in r["idle"]["by_cause"].items() if s]
    return [f"Idle {_ms(r['idle']['total_s'])} a step", *table(rows, "lr")] if rows else []


def _modules(r: Json) -> list[str]:
    rows = [(m["module"][:NAME], _ms(m["work_s"]), _share(m["share"])) for m in r["modules"]]
    return (
        ["Compute by module or autograd function, sums of durations and their share", *table(rows, "lr")]
        if rows
        else []
    )


def _unknown(r: Json) -> list[str]:
    u = r["unknown"]
    if not u["share"]:
        return []
    rows = [(_share(k["share"]), k["name"][:NAME]) for k in u["kernels"]]
    return [f"Unknown {_share(u['share'])} of the work, {counted(u['names'], 'name')}", *table(rows, "rl")]


def _compared(c: Json) -> list[str]:
    """Print the measured step next to the predicted one."""
    walls = [("wall", "predicted", "", "measured", "", "difference")]
    steps = [c["table"][-1][key] for key in ("predicted_s", "measured_s")]
    walls += [
        (
            w["wall"], _ms(w["predicted_s"]), _share(w["predicted_s"] / steps[0]), _ms(w["measured_s"]),
            _share(w["measured_s"] / steps[1]), f"{w['difference_s'] * 1e3:+,.1f} ms",
        )
        for w in c["walls"]
    ]  # fmt: skip
    rows = [("part of the step", "predicted", "measured", "difference", "explained by")]
    rows += [
        (
            x["part"], _ms(x["predicted_s"]), "-" if x["measured_s"] is None else _ms(x["measured_s"]),
            "-" if x["difference_s"] is None else f"{x['difference_s'] * 1e3:+,.1f} ms", _explained(x["constant"]),
        )
        for x in c["table"]
    ]  # fmt: skip
    remarks = [wrapped(text, "  remark: ", " " * 10) for text in c["remarks"]]
    return [f"Compared with the plan of {c['run']}", *table(walls, "lr"), "", *table(rows, "lrrrl"), *remarks]


def _explained(k: Json | None) -> str:
    if k is None:
        return ""
    if k["would_be"] <= 0:
        return f"no value of {k['name']} alone"
    change = f"{k['name']} {k['value']:.3g} -> {k['would_be']:.3g}{'' if k['unit'] == 'share' else ' ' + k['unit']}"
    return change if k["possible"] else f"{change}, out of its range"


def _fixes(c: Json) -> list[str]:
    """Print what the rules know for the largest loss, priced from the measured step."""
    f = c["fixes"]
    if f is None:
        return []
    tried = [(f"{t['axis']}={show(t['value'])}", _ms(t["step_s"]), f"{t['change']:+.1%}") for t in f["tried"]]
    return [f"Fixes for {f['wall']}, priced from the measured step", *table(tried, "lr"), wrapped(f["fix"] or "")]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _share(share: float) -> str:
    return f"{share:.1%}"
