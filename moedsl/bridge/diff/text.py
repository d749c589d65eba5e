"""Print `moedsl diff` from its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.facts.axes import show
from moedsl.rules.effects import BENCHMARK, EXECUTION, EXPERIMENT, UNKNOWN
from moedsl.support.text import wrapped

Json = Mapping[str, Any]
TITLES = {
    EXPERIMENT: "Changes the experiment",
    BENCHMARK: "Benchmark-only",
    UNKNOWN: "Unknown: no rule states its effect",
    EXECUTION: "Changes only how it runs",
}
_ENV = "env_vars."


def text(d: Json) -> str:
    """Print the verdict, then each group of differences, then the estimates."""
    parts = [_head(d), *_groups(d), _estimates(d), _notes(d)]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(d: Json) -> str:
    sides = [f"{s.upper()}  {d[s]['name']}{_mark(d[s])}" for s in ("a", "b")]
    return "\n".join([*sides, "", *d["verdict"]["says"]])


def _mark(side: Json) -> str:
    return f"  experiment {side['fingerprint']}" if "fingerprint" in side else f"  ({side['how']})"


def _groups(d: Json) -> Iterator[str]:
    for effect, title in TITLES.items():
        lines = d["changes"][effect]
        if lines:
            yield "\n".join([title, *_table(lines, effect)])


def _table(lines: Sequence[Json], effect: str) -> Iterator[str]:
    width = max(len(x["name"]) for x in lines)
    for x in sorted(lines, key=lambda x: x["name"].startswith(_ENV)):
        alone = f"  (alone: {x['alone']})" if x.get("alone") else ""
        yield f"  {x['name'].ljust(width)}  {_pair(x['a'], x['b'])}{alone}"
        if x["because"] and (effect == BENCHMARK or x["name"] in ("micro_batch", "train.micro_batch_size")):
            yield wrapped(x["because"], " " * (width + 4), width=max(100, width + 64))


def _pair(a: Any, b: Any) -> str:
    """Write both values in words; as JSON if the words are equal, as for null and an empty list."""
    words = [_word(v) for v in (a, b)]
    return " -> ".join(words if words[0] != words[1] else [json.dumps(v) for v in (a, b)])


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else show(value)


_ROWS = (
    ("step_time_s", "step time", "{:.2f} s"),
    ("peak_gib", "peak memory", "{:.1f} GiB"),
    ("tokens_per_step", "useful tokens a step", "{:,.0f}"),
    ("tokens_per_s_per_gpu", "useful tokens/s/GPU", "{:,.0f}"),
    ("gpu_hours_per_1e9_tokens", "GPU hours for 1e9 tokens", "{:.2f}"),
)


def _estimates(d: Json) -> str:
    """Print both estimates, with the change in per cent; rates of useful tokens are comparable for any batches."""
    e = d["estimates"]
    if not e:
        return ""
    lines = [
        f"  {title:<26}{form.format(e[n][0]):>16} -> {form.format(e[n][1]):<16}{_change(e[n])}"
        for n, title, form in _ROWS
    ]
    differs = e["tokens_per_step"][0] != e["tokens_per_step"][1]
    note = ["  steps have different numbers of tokens: compare by useful tokens, not by step time"] if differs else []
    return "\n".join(["Estimated", *(line.rstrip() for line in lines), *note])


def _change(pair: Sequence[float]) -> str:
    return f"{100 * (pair[1] / pair[0] - 1):+.1f}%" if pair[0] and pair[0] != pair[1] else ""


def _notes(d: Json) -> str:
    lines = [
        f"{d['compared']} {d['by']} compared"
        + (f"; {d['one_sided']} stated by one side only are left out" if d["one_sided"] else "")
    ]
    lines += [f"{s.upper()}: {line}" for s in ("a", "b") for line in d[s]["unread"]]
    return "\n".join(lines)
