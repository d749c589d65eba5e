"""Print the comparison with older runs from its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.facts.axes import show
from moedsl.rules.effects import EXECUTION
from moedsl.runs.results.regressions import FASTER, NOISE, SLOWER, UNKNOWN
from moedsl.runs.results.text import figure
from moedsl.support.text import table, wrapped

Json = Mapping[str, Any]
_HEAD = ("run", "baseline", "now", "change", "noise", "predicted", "peak GiB", "")


def text(regressions: Sequence[Json]) -> str:
    """Print a row for each run, then what changed in it."""
    rows = table([_HEAD, *map(_row, regressions)], "lrrrrrrl")
    said = [wrapped(s, "  ", "    ", width=110) for r in regressions for s in _said(r)]
    return "\n".join(["compared with the baseline, useful tokens/s/GPU", *rows, *said]) + "\n"


def _row(r: Json) -> tuple[str, ...]:
    before, now = r["rate"]
    peaks = [figure(p, ".1f") for p in r["peak_gib"]]
    noise, expected = r["noise"], r["predicted_change"]
    peak = " -> ".join(peaks) if all(peaks) else ""
    return (
        r["name"], figure(before, ",.0f"), figure(now, ",.0f"), figure(r["change"], "+.1%"),
        "" if noise is None else f"±{noise:.1%}", figure(expected, "+.1%"), peak, r["verdict"],
    )  # fmt: skip


def _said(r: Json) -> Iterator[str]:
    name = r["name"]
    if r["verdict"] in (SLOWER, FASTER) and 1 in r["runs"]:
        yield f"{name}: a run ran once, on its own machines; another allocation can differ by more than its steps do"
    if r["verdict"] == NOISE:
        yield f"{name}: the difference is within the noise of the steps: run longer, or repeat each run"
    if r["verdict"] == UNKNOWN:
        yield f"{name}: too few steps after the warm-up to know the noise"
    yield from (f"{name}: {line}" for line in _changes(r))
    yield from (f"{name}, baseline: {text}" for text in r["warnings"])


def _changes(r: Json) -> Iterator[str]:
    if r["changes"] is None:
        return
    if not r["changes"]:
        yield "nothing changed in the plan: look at the machines, the data and the container"
        return
    for c in r["changes"]:
        effect = "" if c["effect"] == EXECUTION else f" ({c['effect']})"
        alone = f", alone {c['alone']}" if c["alone"] else ""
        yield f"{c['name']} {show(c['a'])} -> {show(c['b'])}{effect}{alone}"
    if not r["same_experiment"]:
        yield "these are different experiments, compared by useful tokens"
