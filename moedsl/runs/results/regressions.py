"""Compare runs with older ones, and print it: how much slower each is, whether noise may explain it, what changed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any

from attrs import frozen

from moedsl.bridge.diff.compare import compare
from moedsl.bridge.diff.sources import Side, sides
from moedsl.facts.axes import show
from moedsl.rules.effects import EXECUTION, EXPERIMENT
from moedsl.runs.results.compare import figure
from moedsl.runs.results.contradictions import BATCH, said
from moedsl.runs.results.gather import Run
from moedsl.runs.results.measure import OK, RATE, UNFINISHED, of_repeats
from moedsl.support.text import table, wrapped

Row = Mapping[str, Any]
Json = dict[str, Any]
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
        "verdict": _verdict(new, old, change, noise, tolerance),
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


def _verdict(new: Told | None, old: Told | None, change: float | None, noise: float | None, tolerance: float) -> str:
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
    read = sides(targets) if all(targets) else []
    both = [s for s in read if isinstance(s, Side)]
    if len(both) < 2:
        return _UNKNOWN
    found = compare(*both)
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


_HEAD = ("run", "baseline", "now", "change", "noise", "predicted", "peak GiB", "")


def as_table(regressions: Sequence[Json]) -> str:
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
