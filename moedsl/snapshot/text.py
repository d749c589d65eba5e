"""Print the report of a snapshot from its JSON."""

from __future__ import annotations

from typing import Any

from moedsl.support.text import table, wrapped

Json = dict[str, Any]


def text(r: Json) -> str:
    """Print the report of one device."""
    blocks = [_head(r), _kinds(r), _modules(r), _sources(r), *(_compared(c) for c in r.get("plans", ()))]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _head(r: Json) -> list[str]:
    unused = r["fragmentation"]
    return [
        f"{r['snapshot']}: device {r['device']}, peak {_gib(r['peak_gib'])} in {r['events']:,} events",
        f"  {_gib(r['at_start_gib'])} before the first event, {_gib(r['at_end_gib'])} at the end",
        f"  reserved {_gib(r['reserved_gib'])} at the end, {unused['share']:.1%} unused",
        *(wrapped(text, "  remark: ", " " * 10) for text in r["remarks"]),
    ]


def _kinds(r: Json) -> list[str]:
    rows = [(k["kind"], _gib(k["gib"]), f"{k['share']:.1%}") for k in r["kinds"]]
    return ["Live at the peak, by kind", *table(rows, "lr")]


def _modules(r: Json) -> list[str]:
    rows = [(m["module"], m["kind"], _gib(m["gib"])) for m in r["modules"]]
    return ["Live at the peak, by module", *table([("module", "kind", "size"), *rows], "llr")]


def _sources(r: Json) -> list[str]:
    rows = [(s["source"], s["kind"], _gib(s["gib"]), f"{s['allocations']:,}") for s in r["sources"]]
    return ["Live at the peak, by source", *table([("source", "kind", "size", "allocations"), *rows], "llr")]


def _compared(c: Json) -> list[str]:
    rows = [("", "predicted", "measured", "difference")]
    rows += [
        (
            x["part"],
            _gib(x["predicted_gib"]),
            _gib(x["measured_gib"]),
            f"{x['measured_gib'] - x['predicted_gib']:+.1f} GiB",
        )
        for x in c["table"]
    ]
    head = f"Compared with the plan of {c['run']}, stage {c['stage']} of {c['of_stages']}, whose total is nearest"
    return [head, *table(rows, "lr"), f"  its fullest stage has {_gib(c['lower_gib'])} to {_gib(c['upper_gib'])}"]


def _gib(size: float) -> str:
    return f"{size:.2f} GiB" if size < 1 else f"{size:.1f} GiB"
