"""Print the report of a gap from its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.facts.axes import show
from moedsl.runs.gap.measured import AFFINITY
from moedsl.runs.results.compare import RATE
from moedsl.support.text import table, wrapped

Json = Mapping[str, Any]
_HEAD = ("", "s a step", "useful tokens/s/GPU", "TFLOPS/GPU", "against measured")

_SHOWN = {
    "slow steps": "slow steps: {steps} of {of_steps} steps, {share:.1%} of the time; the median step is none of them",
    "data loading": "data loading: {seconds:.3f} s a step, {share:.1%}, on the rank that waits longest",
    "clocks": "clocks: {least_mhz:.0f} to {most_mhz:.0f} MHz; the slowest GPU is {share:.1%} below the fastest",
    "stragglers": "stragglers: {least_tflops:.0f} to {most_tflops:.0f} TFLOPS; the slowest rank is {share:.1%} below",
    "temperature": "temperature: up to {most_celsius:.0f} °C",
    "affinity": "affinity: not bound to the CPUs of their GPU, on {ranks} ranks: {because}",
}


def text(r: Json) -> str:
    """Print the speeds, then each comparison, then what the log shows."""
    published, recipe = r["published"], r["recipe"]
    parts = [
        [r["name"], *table([_HEAD, *_speeds(r)], "lr"), *_predicted(r), *map(_line, r["remarks"])],
        [*_published(published)] if published else ["No published run is of this model and GPU."],
        [*_recipe(recipe)] if recipe else ["Bridge ships no recipe for this model, GPU and number of GPUs."],
        ["The log shows", *(_line(s) for s in _shown(r["log"]))] if r["log"] else [],
    ]
    return "\n\n".join("\n".join(p) for p in parts if p) + "\n"


def _speeds(r: Json) -> Iterator[tuple[str, ...]]:
    measured = r["measured"][RATE]
    for name in ("measured", "predicted", "published"):
        one = r[name]
        if one:
            against = "" if name == "measured" else f"{one[RATE] / measured - 1:+.1%}"
            yield (name, f"{one['step_s']:.2f}", f"{one[RATE]:,.0f}",
                   f"{one['tflops_per_gpu']:.0f}", against)  # fmt: skip


def _predicted(r: Json) -> Iterator[str]:
    p = r["predicted"]
    where, interval = "inside" if p["inside"] else "outside", f"{p['lower_s']:.2f} to {p['upper_s']:.2f} s"
    yield _line(f"the measured step is {where} the interval of nine in ten runs, {interval}")


def _published(p: Json) -> Iterator[str]:
    page = p["source"].removeprefix("docs/")
    yield f"Published  {p['id']} of NVIDIA's {page}: {p['speed'] - 1:+.1%}"
    yield from _settings(p["settings"])
    yield _line(f"explained by settings: {p['explained'] - 1:+.1%}")
    left = p["unexplained"] - 1
    within = abs(left) <= p["tells"]
    judged = "less than" if within else "more than"
    yield _line(f"not explained: {left:+.1%}, {judged} the ±{p['tells']:.1%} that the estimate can tell here")
    if p["log_at_most"] > 1:
        yield _line(f"the log explains at most {p['log_at_most'] - 1:+.1%}, which leaves {p['left'] - 1:+.1%}")
    yield _line("no measured price: " + "; ".join(map(_unpriced, p["unpriced"])))


def _unpriced(s: Json) -> str:
    """Name a setting without a price, with its values where they are known."""
    if s["setting"] == AFFINITY:
        return "affinity, which no published row states"
    return f"{s['setting']} ({_values(s['here'])} -> {_values(s['there'])})"


def _recipe(r: Json) -> Iterator[str]:
    yield f"NVIDIA's recipe  {r['name']}"
    if "refused_by" in r:
        yield _line(f"refused here by {r['refused_by']}: {r['because']}")
        return
    yield _line(f"predicted {r['predicted_step_s']:.2f} s a step, {r['speed'] - 1:+.1%} speed, {r['verdict']}")
    yield from _settings(r["settings"])
    if r["written_for"]:
        yield _line("written for " + ", ".join(f"{n} {show(v)}" for n, v in r["written_for"].items()))


def _settings(settings: Sequence[Json]) -> Iterator[str]:
    rows = [
        (f"{s['speed'] - 1:+.1%}", s["setting"], f"{_values(s['here'])} -> {_values(s['there'])}{_measured(s)}")
        for s in settings
    ]
    yield from table(rows, "rll")


def _measured(s: Json) -> str:
    """Say by how many measured pairs a price is known; the estimate has the others."""
    m = s.get("measured")
    if m is None:
        return ""
    if m["pairs"] == 1:
        return "  (measured once)"
    return f"  (measured {m['pairs']} times, {m['low'] - 1:+.1%} to {m['high'] - 1:+.1%})"


def _values(values: Json) -> str:
    """Write values; a single one without its name."""
    if len(values) == 1:
        return _word(next(iter(values.values())))
    return " ".join(f"{n}={_word(v)}" for n, v in values.items())


def _word(value: Any) -> str:
    return "none" if value is None else show(value)


def _shown(found: Sequence[Json]) -> Iterator[str]:
    yield from (_SHOWN[s["what"]].format(**s) for s in found)


def _line(text: str) -> str:
    return wrapped(text, "  ", "    ", width=110)
