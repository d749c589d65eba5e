"""Compare runs by useful tokens, with each other and with older runs of the same name, and print the results.

For the best run, it says whether its lead exceeds the spread of the steps; for a run and its baseline, how much slower
it is, whether noise may explain that, and what changed.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import hypot
from typing import Any

from attrs import frozen

from moedsl.bridge.diff import compare
from moedsl.bridge.run_sides import Side, read_sides
from moedsl.facts.axes import show
from moedsl.rules.rule import EXECUTION, EXPERIMENT
from moedsl.runs.results.gather import Run
from moedsl.runs.results.measure import BATCH, OK, RATE, UNFINISHED, error_of_repeats, warning_texts
from moedsl.support.text import paragraph, table

Json = dict[str, Any]
Row = Mapping[str, Any]
CERTAIN = 3.0
"""A difference beyond this many standard errors is not noise: with the few blocks of a run, 99 of 100 differences that
are noise are smaller."""
SLOWER, FASTER, NOISE, SMALL, UNKNOWN = "slower", "faster", "within noise", "below the tolerance", "noise unknown"
FAILED, NO_BASELINE, NO_RUN = "failed", "no baseline", "not run"
WORSE = (SLOWER, FAILED)
"""The verdicts that count as a regression."""


@frozen
class Repeats:
    """All runs of one name, or of one value of a sweep: their rows, and the first run, which has their plan.

    Speeds are useful tokens/s/GPU.
    """

    rows: tuple[Row, ...]
    run: Run | None

    @property
    def name(self) -> str:
        return str(self.rows[0]["name"])

    @property
    def speeds(self) -> list[Row]:
        """The speed statistics of each run that is ok or unfinished."""
        return [r[RATE] for r in self.rows if r["status"] in (OK, UNFINISHED) and r[RATE]]

    @property
    def rate(self) -> float | None:
        """The median of the runs' medians."""
        return statistics.median(s["median"] for s in self.speeds) if self.speeds else None

    @property
    def error(self) -> float | None:
        """The standard error of `rate`: of several runs from their medians, of one from its steps; None if unknown."""
        medians = [s["median"] for s in self.speeds]
        return error_of_repeats(medians) if len(medians) > 1 else self.speeds[0]["error"] if medians else None

    @property
    def peak(self) -> float | None:
        return max((r["peak_gib"] for r in self.rows if r["peak_gib"] is not None), default=None)


def repeats(rows: Sequence[Row], runs: Sequence[Run] = ()) -> dict[str, Repeats]:
    """Group rows by name, with their runs if given."""
    out: dict[str, Repeats] = {}
    for row, run in zip_longest(rows, runs):
        before = out.get(row["name"])
        out[row["name"]] = Repeats((*before.rows, row), before.run) if before else Repeats((row,), run)
    return out


def comparisons(rows: Sequence[Json]) -> list[dict[str, Any]]:
    """Compare the runs of each sweep or isolation, and all other runs as one group.

    Each comparison has the winner, the runner-up, their relative difference, and whether the winner's steps lie beyond
    the runner-up's, by interquartile ranges.
    """
    groups: dict[tuple[str, str], list[Json]] = {}
    for r in rows:
        of = r.get("value_of", {})
        groups.setdefault((of.get("of", ""), of.get("axis", "")), []).append(r)
    out = list[dict[str, Any]]()
    for (of, axis), group in groups.items():
        ranked = [(c.rate, c) for c in repeats(group).values() if c.rate is not None]
        ranked.sort(key=lambda pair: -pair[0])
        winner, runner_up, *_ = *(c.name for _, c in ranked), None, None
        difference = beyond_spread = None
        if len(ranked) > 1:
            (rate, first), (other, second) = ranked[:2]
            difference = rate / other - 1
            beyond_spread = min(s["q1"] for s in first.speeds) > max(s["q3"] for s in second.speeds)
        planned = [r for r in group if "experiment" in r]
        prints = {(r["experiment"], r["global_batch"] if warning_texts(r, (BATCH,)) else None) for r in planned}
        out.append({
            "of": of or None,
            "axis": axis or None,
            "names": list(dict.fromkeys(r["name"] for r in group)),
            "same_experiment": len(prints) < 2,
            "winner": winner,
            "runner_up": runner_up,
            "difference": difference,
            "beyond_spread": beyond_spread,
            "runs_of_each": min((len(c.speeds) for _, c in ranked[:2]), default=None),
        })  # fmt: skip
    return out


_HEAD = ("steps", "s a step", "useful tokens/s/GPU", "spread", "predicted", "off by", "TFLOPS/GPU", "peak GiB", "")


def text(data: Json) -> str:
    """Format every comparison as a table, with failed runs and their causes below it."""
    pairs = [(c, [r for r in data["runs"] if r["name"] in c["names"]]) for c in data["comparisons"]]
    return "\n".join("\n".join(_section(c, rows)) + "\n" for c, rows in pairs)


def _section(c: Json, rows: Sequence[Json]) -> Iterator[str]:
    yield f"{c['of']}: {c['axis']}, measured, compared by useful tokens" if c["axis"] else "measured, by useful tokens"
    # The labels of repeated runs name their log
    labels, logs = [label(r) for r in rows], [os.path.abspath(r["logs"][0]) if r.get("logs") else "" for r in rows]
    again = [i for i, name in enumerate(labels) if labels.count(name) > 1 and logs[i]]
    if len(again) > 1:
        common = os.path.commonpath([os.path.dirname(logs[i]) for i in again])
        for i in again:
            labels[i] += f" ({os.path.relpath(logs[i], common)})"
    cells: list[tuple[str, ...]] = [(c["axis"] or "run", *_HEAD)]
    for name, r in zip(labels, rows, strict=True):
        rate, guess = r[RATE], r["predicted"] and r["predicted"][RATE]
        peak, predicted = figure(r["peak_gib"], ".1f"), figure(guess, ",.0f")
        if rate is None or r["status"] not in (OK, UNFINISHED):
            cells.append((name, "", "", "", "", predicted, "", "", peak, r["status"]))
            continue
        middle = r["step_time_s"]["median"]
        seconds = f"{middle:.3f}" if middle < 1 else f"{middle:.2f}"
        cells.append((
            name, str(r["samples"]), seconds,
            f"{rate['median']:,.0f}", f"{rate['spread']:.1%}", predicted,
            figure(guess and guess / rate["median"] - 1, "+.1%"), figure(r["tflops_per_gpu"], ".0f"), peak,
            "best" if r["name"] == c["winner"] and c["runner_up"] else "",
        ))  # fmt: skip
    kept = [i for i in range(len(cells[0])) if i == 0 or any(row[i] for row in cells[1:])]
    yield from table([[row[i] for i in kept] for row in cells])
    named = [*zip(labels, rows, strict=True)]
    yield from (paragraph(f"{name}: {r['status']}, {r['cause']}") for name, r in named if r["cause"])
    for name, r in named:
        notes = [w["text"] for w in r["warnings"]]
        if r["status"] == OK and r["symptoms"]:
            seen = "; ".join(s["because"] for s in r["symptoms"])
            notes.insert(0, f"finished, with these symptoms in its log: {seen}")
        if r["skipped_iterations"]:
            notes.insert(0, f"{r['skipped_iterations']} iterations were skipped and train nothing")
        if notes:
            yield paragraph(f"{name}: {'; '.join(notes)}")
    yield paragraph(verdict(c, rows))
    if not c["same_experiment"]:
        yield paragraph("these runs are different experiments: `moedsl diff` of their plans shows how")


def label(row: Json) -> str:
    """Return a row's label: its sweep value, with its plan's path if another plan has it too; else the run's name."""
    if "value_of" not in row:
        return row["name"]
    return row["value_of"]["value"] + (f" ({row['place']})" if "place" in row else "")


def figure(value: float | None, form: str) -> str:
    """Format a number; empty if it is None."""
    return "" if value is None else format(value, form)


def verdict(c: Json, rows: Sequence[Json]) -> str:
    """Say which run wins, by how much, and whether that exceeds the spread of the steps."""
    names = {r["name"]: label(r) for r in rows}
    if c["winner"] is None:
        return "no run has a measurement"
    winner = f"{c['axis']}={names[c['winner']]}" if c["axis"] else names[c["winner"]]
    if c["runner_up"] is None:
        ran = c["runs_of_each"]
        return (
            f"only {winner} has a measurement" if ran == 1 else f"{winner} ran {ran} times; only it has a measurement"
        )
    lead = f"{winner} leads {names[c['runner_up']]} by {c['difference']:.1%}"
    if not c["beyond_spread"]:
        return f"{lead}, within the spread: the middle halves of their steps overlap. Run longer, or repeat each run"
    once = "; each ran once, on its own machines" if c["runs_of_each"] == 1 else ""
    return f"{lead}, beyond the spread: the middle halves of their steps do not overlap{once}"


def regressions(new: Mapping[str, Repeats], old: Mapping[str, Repeats], tolerance: float) -> list[Json]:
    """Compare new with old runs of the same name.

    If each side has only one name, the two are compared even if the names differ.
    """
    if len(new) == len(old) == 1:
        (one,), (other,) = new.values(), old.values()
        return [_pair(one.name, one, other, tolerance)]
    return [_pair(name, new.get(name), old.get(name), tolerance) for name in dict.fromkeys((*new, *old))]


def _pair(name: str, new: Repeats | None, old: Repeats | None, tolerance: float) -> Json:
    now, before = (t.rate if t else None for t in (new, old))
    change = now / before - 1 if now and before else None
    noise = None  # the largest change that noise may cause, as a share of the baseline
    if new and old and now and before and new.error is not None and old.error is not None:
        noise = CERTAIN * hypot(new.error / now, old.error / before)
    if before is None:
        verdict = NO_BASELINE
    elif new is None:
        verdict = NO_RUN
    elif change is None:
        verdict = FAILED
    elif noise is None:
        verdict = UNKNOWN
    elif abs(change) <= max(noise, tolerance):
        verdict = NOISE if abs(change) <= noise else SMALL
    else:
        verdict = SLOWER if change < 0 else FASTER
    return {
        "name": name, "verdict": verdict, "rate": [before, now], "change": change, "noise": noise,
        "runs": [len(t.speeds) if t else 0 for t in (old, new)],
        "peak_gib": [t.peak if t else None for t in (old, new)],
        "warnings": [w["text"] for r in (old.rows if old else ()) for w in r["warnings"]],
        **(_changed(old, new) if new and old else _UNKNOWN),
    }  # fmt: skip


_UNKNOWN: Json = {"same_experiment": None, "changes": None, "predicted_change": None}


def _changed(old: Repeats, new: Repeats) -> Json:
    """Return what differs between the plans or recipes of two runs, the experiment first, and the predicted change.

    No change is predicted if a log has another batch than its plan.
    """
    runs = [t.run for t in (old, new) if t.run]
    targets = [str(r.plan_file or r.recipe or "") for r in runs]
    both = [s for s in (read_sides(targets) if all(targets) else []) if isinstance(s, Side)]
    if len(both) < 2:
        return _UNKNOWN
    is_other = any(warning_texts(r, (BATCH,)) for r in (*old.rows, *new.rows))
    batches = [sorted({r["global_batch"] for r in t.rows if r["global_batch"]}) for t in (old, new)]
    a, b = (values[0] if len(values) == 1 else values for values in batches)
    lines: list[Json] = []
    if is_other and a != b:
        lines.append({"name": "global batch of the log", "a": a, "b": b, "effect": EXPERIMENT})
    lines += [line for group in compare(*both).to_json()["changes"].values() for line in group]
    rates = [r.plan.estimate.useful_tokens_per_s_per_gpu for r in runs if r.plan]
    return {
        "same_experiment": all(line["effect"] == EXECUTION for line in lines),
        "changes": [{k: line.get(k) for k in ("name", "a", "b", "effect", "alone")} for line in lines],
        "predicted_change": rates[1] / rates[0] - 1 if len(rates) == 2 and not is_other else None,
    }


def as_table(regressions: Sequence[Json]) -> str:
    """Format a row for each run, then what changed in it."""
    rows, notes = list[tuple[str, ...]](), list[str]()
    head = ("run", "baseline", "now", "change", "noise", "predicted", "peak GiB", "")
    for r in regressions:
        name, verdict, noise = r["name"], r["verdict"], "" if r["noise"] is None else f"±{r['noise']:.1%}"
        rates, peaks = [figure(rate, ",.0f") for rate in r["rate"]], [figure(p, ".1f") for p in r["peak_gib"]]
        change, predicted = (figure(r[key], "+.1%") for key in ("change", "predicted_change"))
        rows.append((name, *rates, change, noise, predicted, " -> ".join(peaks) if all(peaks) else "", verdict))
        if verdict in (SLOWER, FASTER) and 1 in r["runs"]:
            once = "a run ran once, on its own machines; another allocation can differ by more than its steps do"
            notes.append(f"{name}: {once}")
        if verdict == NOISE:
            notes.append(f"{name}: the difference is within the noise of the steps: run longer, or repeat each run")
        if verdict == UNKNOWN:
            notes.append(f"{name}: too few steps after the warm-up to know the noise")
        for c in r["changes"] or ():
            effect = "" if c["effect"] == EXECUTION else f" ({c['effect']})"
            alone = f", alone {c['alone']}" if c["alone"] else ""
            notes.append(f"{name}: {c['name']} {show(c['a'])} -> {show(c['b'])}{effect}{alone}")
        if r["changes"] == []:
            notes.append(f"{name}: nothing changed in the plan: look at the machines, the data and the container")
        elif r["same_experiment"] is False:
            notes.append(f"{name}: these are different experiments, compared by useful tokens")
        notes += [f"{name}, baseline: {text}" for text in r["warnings"]]
    lines = [
        "compared with the baseline, useful tokens/s/GPU",
        *table([head, *rows], "lrrrrrrl"),
        *map(paragraph, notes),
    ]
    return "\n".join(lines) + "\n"
