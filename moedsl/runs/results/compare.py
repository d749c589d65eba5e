"""Compare runs, and print the results: the best by useful tokens, and each run with an older one of its name.

Of the best run, it tells whether its lead exceeds the spread of the steps. Of a run and its baseline, how much slower
it is, whether noise may explain that, and what changed."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any

from attrs import frozen

from moedsl.bridge.diff import compare
from moedsl.bridge.run_sides import Side, read_sides
from moedsl.facts.axes import show
from moedsl.rules.rule import EXECUTION, EXPERIMENT
from moedsl.runs.results.gather import Run
from moedsl.runs.results.measure import BATCH, OK, RATE, UNFINISHED, of_repeats, said
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


Row = Mapping[str, Any]
CERTAIN = 3.0
"""Standard errors of the difference beyond which it is no noise: with the few blocks of a run, 99 of 100 differences
that are noise are smaller."""
SLOWER, FASTER, NOISE, SMALL, UNKNOWN = "slower", "faster", "within noise", "below the tolerance", "noise unknown"
FAILED, NO_BASELINE, NO_RUN = "failed", "no baseline", "not run"
WORSE = (SLOWER, FAILED)
"""The verdicts that make a regression."""


@frozen
class Told:
    """All runs of one name: the rows, and the first run, which has their plan."""

    run: Run
    rows: tuple[Row, ...]

    @property
    def counted(self) -> list[Row]:
        return [r for r in self.rows if r["status"] in (OK, UNFINISHED) and r[RATE]]

    @property
    def rate(self) -> float | None:
        """The median of the runs' medians, in useful tokens/s of a GPU."""
        return statistics.median(r[RATE]["median"] for r in self.counted) if self.counted else None

    @property
    def error(self) -> float | None:
        """The standard error of the rate: of several runs from their medians, of one from its steps."""
        medians = [r[RATE]["median"] for r in self.counted]
        return of_repeats(medians) if len(medians) > 1 else self.counted[0][RATE]["error"] if medians else None

    @property
    def peak(self) -> float | None:
        return max((r["peak_gib"] for r in self.rows if r["peak_gib"] is not None), default=None)


def regressions(new: Mapping[str, Told], old: Mapping[str, Told], tolerance: float) -> list[Json]:
    """Compare the runs of each name, and of one name on each side whatever it is."""
    if len(new) == len(old) == 1:
        (one,), (other,) = new.values(), old.values()
        return [_pair(one.run.name, one, other, tolerance)]
    names = dict.fromkeys((*new, *old))
    return [_pair(name, new.get(name), old.get(name), tolerance) for name in names]


def told(runs: Sequence[Run], rows: Sequence[Row]) -> dict[str, Told]:
    """Group runs with their rows by name."""
    out: dict[str, Told] = {}
    for run, row in zip(runs, rows, strict=True):
        before = out.get(run.name)
        out[run.name] = Told(before.run if before else run, (*(before.rows if before else ()), row))
    return out


def _pair(name: str, new: Told | None, old: Told | None, tolerance: float) -> Json:
    now, before = (t.rate if t else None for t in (new, old))
    change = now / before - 1 if now and before else None
    noise = _noise(new, old)
    return {
        "name": name,
        "verdict": _judgement(new, old, change, noise, tolerance),
        "rate": [before, now],
        "change": change,
        "noise": noise,
        "runs": [len(t.counted) if t else 0 for t in (old, new)],
        "peak_gib": [t.peak if t else None for t in (old, new)],
        "warnings": [w["text"] for r in (old.rows if old else ()) for w in r["warnings"]],
        **(_changed(old, new) if new and old else _UNKNOWN),
    }


def _noise(new: Told | None, old: Told | None) -> float | None:
    """The change that noise alone may be, as a share of the baseline."""
    if not (new and old and new.rate and old.rate) or new.error is None or old.error is None:
        return None
    return CERTAIN * hypot(new.error / new.rate, old.error / old.rate)


def _judgement(new: Told | None, old: Told | None, change: float | None, noise: float | None, tolerance: float) -> str:
    if old is None or old.rate is None:
        return NO_BASELINE
    if new is None:
        return NO_RUN
    if change is None:
        return FAILED
    if noise is None:
        return UNKNOWN
    if abs(change) <= noise:
        return NOISE
    return SMALL if abs(change) <= tolerance else SLOWER if change < 0 else FASTER


_UNKNOWN: Json = {"same_experiment": None, "changes": None, "predicted_change": None}


def _changed(one: Told, other: Told) -> Json:
    """What differs between the plans or recipes of two runs, the experiment first, and the predicted change; a plan
    predicts nothing for a log with another batch."""
    old, new = one.run, other.run
    targets = [str(r.plan_file or r.recipe or "") for r in (old, new)]
    read = read_sides(targets) if all(targets) else []
    both = [s for s in read if isinstance(s, Side)]
    if len(both) < 2:
        return _UNKNOWN
    found = compare(*both).to_json()
    rates = [r.plan.estimate.useful_tokens_per_s_per_gpu for r in (old, new) if r.plan]
    lines = [*_batches(one, other), *(line for group in found["changes"].values() for line in group)]
    keys = ("name", "a", "b", "effect", "alone")
    return {
        "same_experiment": all(line["effect"] == EXECUTION for line in lines),
        "changes": [{k: line.get(k) for k in keys} for line in lines],
        "predicted_change": rates[1] / rates[0] - 1 if len(rates) == 2 and not _is_other(one, other) else None,
    }


def _batches(old: Told, new: Told) -> list[Json]:
    """The change of the batches that the logs state, if one of them is not its plan's."""
    each = [sorted({r["global_batch"] for r in told.rows if r["global_batch"]}) for told in (old, new)]
    a, b = (values[0] if len(values) == 1 else values for values in each)
    if a == b or not _is_other(old, new):
        return []
    return [{"name": "global batch of the log", "a": a, "b": b, "effect": EXPERIMENT}]


def _is_other(old: Told, new: Told) -> bool:
    return any(said(r, (BATCH,)) for r in (*old.rows, *new.rows))


_PAIR_HEAD = ("run", "baseline", "now", "change", "noise", "predicted", "peak GiB", "")


def as_table(regressions: Sequence[Json]) -> str:
    """Print a row for each run, then what changed in it."""
    rows = table([_PAIR_HEAD, *map(_row, regressions)], "lrrrrrrl")
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
