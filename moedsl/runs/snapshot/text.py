"""Print the report of a snapshot from its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moedsl.runs.snapshot.stages import BY_NAME, GIVEN, NEAREST, ONLY
from moedsl.support.text import table, wrapped

Json = dict[str, Any]


def text(each: Sequence[Json]) -> str:
    """Print the report of each device, or of several ranks a table and the report of the fullest."""
    if len({r["snapshot"] for r in each}) < 2:
        return "\n".join(map(_one, each))
    plans = [[r["plans"][i] for r in each] for i in range(len(each[0].get("plans", ())))]
    fullest = max(each, key=lambda r: r["peak_gib"])
    blocks = [_ranks(each), *(_by_stage(each, p) for p in plans), ["The fullest of them (--json has each)"]]
    return "\n\n".join("\n".join(b) for b in blocks) + "\n\n" + _one(fullest)


def _one(r: Json) -> str:
    blocks = [_head(r), _kinds(r), _modules(r), _sources(r), *(_compared(c, r["rank"]) for c in r.get("plans", ()))]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _ranks(each: Sequence[Json]) -> list[str]:
    """Print the peak of each rank by kind."""
    kinds = [*dict.fromkeys(k["kind"] for r in each for k in r["kinds"])]
    rows = [("snapshot", "rank", "peak", *kinds)]
    for r in each:
        sizes = {k["kind"]: f"{k['gib']:.1f}" for k in r["kinds"]}
        rank = "-" if r["rank"] is None else str(r["rank"])
        rows.append((r["snapshot"], rank, f"{r['peak_gib']:.1f}", *(sizes.get(k, "-") for k in kinds)))
    return ["Live at the peak, by rank and kind, GiB", *table(rows, "lr")]


def _by_stage(each: Sequence[Json], plans: Sequence[Json]) -> list[str]:
    """Print the peak of each rank next to that of its stage in the plan."""
    first = plans[0]
    rows = [("stage", "predicted", "measured", "difference", "of")]
    for stage in range(first["of_stages"]):
        mine = [(r, p) for r, p in zip(each, plans, strict=True) if p["stage"] == stage]
        for r, p in mine:
            peak = p["table"][-1]
            rows.append((str(stage), *_line(peak), f"{r['snapshot']}, {_known(p, r['rank'])}"))
        if not mine:
            rows.append((str(stage), _gib(first["stages_gib"][stage]), "-", "-", "no snapshot"))
    return [f"Compared with the plan of {first['run']}, by stage", *table(rows, "rrrrl")]


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


def _compared(c: Json, rank: int | None) -> list[str]:
    rows = [("", "predicted", "measured", "difference"), *((x["part"], *_line(x)) for x in c["table"])]
    head = f"Compared with the plan of {c['run']}, stage {c['stage']} of 0 to {c['of_stages'] - 1}: {_known(c, rank)}"
    return [
        wrapped(head, "", "  "),
        *table(rows, "lr"),
        f"  its fullest stage has {_gib(c['lower_gib'])} to {_gib(c['upper_gib'])}",
    ]


def _line(x: Json) -> tuple[str, str, str]:
    difference = f"{x['measured_gib'] - x['predicted_gib']:+.1f} GiB"
    return _gib(x["predicted_gib"]), _gib(x["measured_gib"]), difference


def _known(c: Json, rank: int | None) -> str:
    """Say how the stage is known."""
    return {
        ONLY: "the only one",
        GIVEN: "as given",
        BY_NAME: f"rank {rank} by the file's name",
        NEAREST: "the one whose total is nearest; give SNAPSHOT=STAGE if it is another",
    }[c["stage_by"]]


def _gib(size: float) -> str:
    return f"{size:.2f} GiB" if size < 1 else f"{size:.1f} GiB"
