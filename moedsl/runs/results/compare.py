"""Find the best run by useful tokens, tell whether its lead exceeds the spread of the steps, and print the results."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from moedsl.runs.results.contradictions import BATCH, said
from moedsl.runs.results.measure import OK, RATE, UNFINISHED
from moedsl.support.text import table, wrapped

Json = dict[str, Any]


@frozen
class Candidate:
    """One value of a sweep, or one run: all runs of its name. Figures are useful tokens/s of a GPU."""

    name: str
    rate: float
    """The median of the runs' medians."""
    low: float
    high: float
    """The quartiles of the steps; over several runs, the outermost."""
    runs: int


def comparisons(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Compare the runs of each sweep or isolation, and all other runs together."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for r in rows:
        of = r.get("value_of", {})
        groups.setdefault((of.get("of", ""), of.get("axis", "")), []).append(r)
    return [_comparison(of, axis, group) for (of, axis), group in groups.items()]


def _comparison(of: str, axis: str, rows: Sequence[Json]) -> dict[str, Any]:
    ranked = sorted(candidates(rows), key=lambda c: -c.rate)
    prints = {(r["experiment"], r["global_batch"] if said(r, (BATCH,)) else None) for r in rows if "experiment" in r}
    return {
        "of": of or None,
        "axis": axis or None,
        "names": list(dict.fromkeys(r["name"] for r in rows)),
        "same_experiment": len(prints) < 2,
        **_verdict(ranked),
    }


def candidates(rows: Sequence[Json]) -> list[Candidate]:
    """Group the runs with a measurement by name."""
    by_name: dict[str, list[Json]] = {}
    for r in rows:
        if r["status"] in (OK, UNFINISHED) and r[RATE]:
            by_name.setdefault(r["name"], []).append(r[RATE])
    return [
        Candidate(name, statistics.median(s["median"] for s in some), min(s["q1"] for s in some),
                  max(s["q3"] for s in some), len(some))
        for name, some in by_name.items()
    ]  # fmt: skip


def _verdict(ranked: Sequence[Candidate]) -> dict[str, Any]:
    """The winner and the runner-up, the difference, and whether their middle halves of steps are apart."""
    if not ranked:
        return {"winner": None, "runner_up": None, "difference": None, "beyond_spread": None, "runs_of_each": None}
    first = ranked[0]
    if len(ranked) == 1:
        return {"winner": first.name, "runner_up": None, "difference": None, "beyond_spread": None,
                "runs_of_each": first.runs}  # fmt: skip
    second = ranked[1]
    return {
        "winner": first.name,
        "runner_up": second.name,
        "difference": first.rate / second.rate - 1,
        "beyond_spread": first.low > second.high,
        "runs_of_each": min(c.runs for c in ranked[:2]),
    }


_HEAD = ("steps", "s a step", "useful tokens/s/GPU", "spread", "predicted", "off by", "TFLOPS/GPU", "peak GiB", "")


def text(data: Json) -> str:
    """Print every comparison as a table, with failed runs and their causes below it."""
    pairs = [(c, [r for r in data["runs"] if r["name"] in c["names"]]) for c in data["comparisons"]]
    return "\n".join("\n".join(_section(c, rows)) + "\n" for c, rows in pairs)


def _section(c: Json, rows: Sequence[Json]) -> Iterator[str]:
    yield f"{c['of']}: {c['axis']}, measured, compared by useful tokens" if c["axis"] else "measured, by useful tokens"
    named = [*zip(_labels(rows), rows, strict=True)]
    yield from _table([(c["axis"] or "run", *_HEAD), *((name, *_cells(r, c)) for name, r in named)])
    yield from (_paragraph(f"{name}: {r['status']}, {r['cause']}") for name, r in named if r["cause"])
    yield from (_paragraph(f"{name}: {_remark(r)}") for name, r in named if _remark(r))
    yield _paragraph(verdict(c, rows))
    if not c["same_experiment"]:
        yield _paragraph("these runs are different experiments: `moedsl diff` of their plans shows how")


def label(row: Json) -> str:
    """The value of a sweep, with its plan's place if another plan has it too; else the run's name."""
    if "value_of" not in row:
        return row["name"]
    return row["value_of"]["value"] + (f" ({row['place']})" if "place" in row else "")


def _labels(rows: Sequence[Json]) -> list[str]:
    """The labels of the rows of a table; those of repeated runs have their log."""
    plain = [label(r) for r in rows]
    logs = [os.path.abspath(r["logs"][0]) if r.get("logs") else "" for r in rows]
    again = [i for i, name in enumerate(plain) if plain.count(name) > 1 and logs[i]]
    if len(again) < 2:
        return plain
    common = os.path.commonpath([os.path.dirname(logs[i]) for i in again])
    return [f"{name} ({os.path.relpath(logs[i], common)})" if i in again else name for i, name in enumerate(plain)]


def _cells(r: Json, c: Json) -> tuple[str, ...]:
    """The cells of a row after its label."""
    rate, seconds, guess = r[RATE], r["step_time_s"], r["predicted"]
    if rate is None or r["status"] not in (OK, UNFINISHED):
        return "", "", "", "", figure(guess and guess[RATE], ",.0f"), "", "", _peak(r), r["status"]
    return (
        str(r["samples"]),
        f"{seconds['median']:.3f}" if seconds["median"] < 1 else f"{seconds['median']:.2f}",
        f"{rate['median']:,.0f}",
        f"{rate['spread']:.1%}",
        figure(guess and guess[RATE], ",.0f"),
        figure(guess and guess[RATE] / rate["median"] - 1, "+.1%"),
        figure(r["tflops_per_gpu"], ".0f"),
        _peak(r),
        "best" if r["name"] == c["winner"] and c["runner_up"] else "",
    )


def _peak(r: Json) -> str:
    return figure(r["peak_gib"], ".1f")


def figure(value: float | None, form: str) -> str:
    """Write a number; nothing for one that is not known."""
    return "" if value is None else format(value, form)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the columns that have a value in any row."""
    kept = [i for i in range(len(rows[0])) if i == 0 or any(r[i] for r in rows[1:])]
    return table([[r[i] for i in kept] for r in rows])


def _remark(r: Json) -> str:
    """Return the remarks of a run that counts, and what its log contradicts."""
    said = [f"{r['skipped_iterations']} iterations were skipped and train nothing"] if r["skipped_iterations"] else []
    if r["status"] == OK and r["symptoms"]:
        said.append("finished, with these symptoms in its log: " + "; ".join(s["because"] for s in r["symptoms"]))
    return "; ".join([*said, *(w["text"] for w in r["warnings"])])


def verdict(c: Json, rows: Sequence[Json]) -> str:
    """Write who wins, by how much, and whether that exceeds the spread of the steps."""
    names = {r["name"]: label(r) for r in rows}
    if c["winner"] is None:
        return "no run has a measurement"
    if c["runner_up"] is None:
        only, ran = _called(c, names[c["winner"]]), c["runs_of_each"]
        return f"only {only} has a measurement" if ran == 1 else f"{only} ran {ran} times; only it has a measurement"
    lead = f"{_called(c, names[c['winner']])} leads {names[c['runner_up']]} by {c['difference']:.1%}"
    if not c["beyond_spread"]:
        return f"{lead}, within the spread: the middle halves of their steps overlap. Run longer, or repeat each run"
    once = "; each ran once, on its own machines" if c["runs_of_each"] == 1 else ""
    return f"{lead}, beyond the spread: the middle halves of their steps do not overlap{once}"


def _called(c: Json, name: str) -> str:
    return f"{c['axis']}={name}" if c["axis"] else name


def _paragraph(text: str) -> str:
    return wrapped(text, "  ", "    ", width=110)
