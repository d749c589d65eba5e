"""Divide the time of a trace's steps by class, by wall and by module, and the idle time by its cause.

A device is idle because the next operation was launched late, or waited for communication, for another stage or for
another operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from moedsl.runs.profile import trace
from moedsl.runs.profile.steps import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    NO_CLASS,
    Classes,
    Kind,
    Numbers,
    Steps,
    Window,
    cut,
)
from moedsl.runs.profile.trace import UNKNOWN, Trace, Union

SECOND = 1e9
GROUPS = (COMPUTE, COMMUNICATION, COPIES)
PIXELS = 1000
"""The width of a drawn step."""
SHOWN = 10
"""The most unknown names and the most modules that are listed."""
Json = dict[str, Any]


def budget(t: Trace, steps: Steps, classes: Classes) -> Json:
    """Return the means over the steady steps, in seconds per step."""
    numbers = Numbers.of(t, classes)
    windows = steps.used
    each = [_nanoseconds(cut(t, numbers, *window), numbers, t.on_cpu) for window in windows]
    mean: dict[str, Any] = {}  # times in seconds, counts as they are
    for name in each[0]:
        unit = 1 if name.startswith("launches") else SECOND
        mean[name] = sum((np.asarray(one[name]) / len(each) / unit for one in each), np.zeros(())).tolist()
    lengths = [(b - a) / SECOND for a, b in windows]
    step = sum(lengths) / len(lengths)
    idle_by_cause = dict(zip(CAUSES, mean["idle"], strict=True))
    # The walls are disjoint: time in which operations overlap counts as compute first, then as communication
    sent = mean["wall communication"] + idle_by_cause[WAIT] + idle_by_cause[BUBBLE]
    walls = {"compute": mean["compute_s"], "communication": sent, "host": idle_by_cause[LAUNCH],
             "memory": mean["wall copies"]}  # fmt: skip
    losses = ("communication", "host", "memory")
    largest = max(losses, key=lambda w: walls[w])
    walls["unresolved"] = max(step - sum(walls.values()), 0.0)
    # The time without compute, by what runs instead, or by why the device is idle
    absent = idle_by_cause | {
        WAIT: idle_by_cause[WAIT] + mean["wall communication"] - mean["wall bubble"],
        BUBBLE: idle_by_cause[BUBBLE] + mean["wall bubble"],
        "copies": mean["wall copies"],
    }
    by_class = [
        {"class": k.name, "wall": k.block, "busy_s": busy, "exposed_s": exposed, "launches": launches, "work_s": work,
         "share": busy / step}
        for k, busy, exposed, launches, work in zip(numbers.kinds, *(mean[n] for n in OF_CLASS), strict=True)
    ]  # fmt: skip
    collectives = [
        {"class": k, "group": g, "busy_s": busy, "exposed_s": exposed, "work_s": work, "launches": launches}
        for (k, g), busy, exposed, launches, work in zip(
            numbers.collectives, *(mean[f"{n} collective"] for n in OF_CLASS), strict=True
        )
    ]
    return {
        "steps": {
            "found_by": steps.by, "name": steps.name, "n": len(steps.windows), "used": len(windows),
            "median_s": float(np.median(lengths)), "min_s": min(lengths), "max_s": max(lengths),
            "each_s": [(b - a) / SECOND for a, b in steps.windows],
            "own_each_s": [(b - a - one["sent"]) / SECOND for (a, b), one in zip(windows, each, strict=True)],
        },
        "step_s": step,
        "device": {n: mean[n] for n in ("busy_s", "idle_s", "compute_s", "compute_absent_s", "communication_s",
                                        "communication_exposed_s")},
        "walls": {name: {"s": s, "share": s / step} for name, s in walls.items()},
        "largest_loss": largest,
        "classes": _longest_first(c for c in by_class if c["launches"] or c["busy_s"]),
        "collectives": _longest_first(c for c in collectives if c["work_s"]),  # where the trace names groups
        "idle": {"total_s": mean["idle_s"], "by_cause": idle_by_cause},
        "compute_absent": {"total_s": mean["compute_absent_s"], "by_cause": absent},
        **_by_text(mean, t, numbers, classes),
        "timeline": timeline(cut(t, numbers, *windows[int(np.argsort(lengths)[len(lengths) // 2])]), numbers),
    }  # fmt: skip


def _longest_first(rows: Iterable[Json]) -> list[Json]:
    return sorted(rows, key=lambda r: -r["busy_s"])


def timeline(w: Window, numbers: Numbers) -> Json:
    """Return when each block runs in one step, as shares of the step; gaps narrower than a pixel are closed."""
    out: Json = {"step_s": w.length / SECOND}
    for name in GROUPS:
        found = w.union(np.isin(w.kind, numbers.block(name)))
        drawn = trace.union(found.start, found.end + w.length // PIXELS)
        spans = zip(drawn.start - w.start, drawn.end - w.start, strict=True)
        out[name] = [[round(float(a) / w.length, 4), round(min(float(b) / w.length, 1.0), 4)] for a, b in spans]
    return out


OF_CLASS = ("busy", "exposed", "launches", "work")


def _nanoseconds(w: Window, numbers: Numbers, on_cpu: bool) -> dict[str, Any]:
    """Return the nanoseconds and the launches of one step by name: numbers, or a list by class, collective or text."""
    blocks = {name: w.union(np.isin(w.kind, numbers.block(name))) for name in GROUPS}
    busy = trace.joined(*blocks.values())
    compute, sent = blocks[COMPUTE], blocks[COMMUNICATION]
    computed_or_sent = trace.joined(compute, sent)
    # Of pipeline sends and receives, only the time that neither compute nor other communication hides counts
    pipeline = [i for i, k in enumerate(numbers.kinds) if k == PIPELINE]
    sends = [i for i in numbers.block(COMMUNICATION) if i not in pipeline]
    hidden = trace.joined(compute, w.union(np.isin(w.kind, sends)))
    waits = idle(w, busy, numbers.kinds, on_cpu)
    out: dict[str, Any] = {
        "busy_s": busy.length, "idle_s": w.length - busy.length, "compute_s": compute.length,
        "compute_absent_s": w.length - compute.length, "communication_s": sent.length,
        "communication_exposed_s": trace.outside(sent, trace.joined(compute, blocks[COPIES])),
        "wall communication": computed_or_sent.length - compute.length,
        "wall copies": busy.length - computed_or_sent.length,
        "wall bubble": trace.outside(w.union(np.isin(w.kind, pipeline)), hidden),
        "sent": computed_or_sent.length - compute.length + waits[WAIT] + waits[BUBBLE],
        "idle": [*waits.values()],
    }  # fmt: skip
    others = {k: trace.joined(*(u for name, u in blocks.items() if name != k)) for k in GROUPS}
    of = numbers.of_collective[w.text]  # the class and process group of each collective
    known = of >= 0
    of_kind = [(k.block, w.union(w.kind == i)) for i, k in enumerate(numbers.kinds)]
    of_collective = [(COMMUNICATION, w.union(of == i)) for i in range(len(numbers.collectives))]
    for end, each, by, mask in (("", of_kind, w.kind, ...), (" collective", of_collective, of[known], known)):
        out[f"busy{end}"] = [own.length for _, own in each]
        out[f"exposed{end}"] = [trace.outside(own, others[block]) for block, own in each]
        out |= {f"{n}{end}": np.bincount(by, c[mask], len(each)) for n, c in (("work", w.work), ("launches", w.begun))}
    texts = len(numbers.of_text)
    return out | {"work text": np.bincount(w.text, w.work, texts), "launches text": np.bincount(w.text, w.begun, texts)}


def _by_text(mean: Mapping[str, Any], t: Trace, numbers: Numbers, classes: Classes) -> Json:
    """Return the compute by module, and the share and the largest names of the work that matches no pattern.

    The module is the innermost host range that is not an operator: a module or an autograd function.
    """
    modules, unknown = defaultdict[str, float](float), defaultdict[str, list[float]](lambda: [0.0, 0.0])
    for (name, around), kind, work, launches in zip(
        t.texts, numbers.of_text.tolist(), mean["work text"], mean["launches text"], strict=True
    ):
        if numbers.kinds[kind].block == COMPUTE:
            module = (n for n in reversed(around) if "::" not in n and classes.step(n) is None)
            modules[next(module, "")] += work
        if numbers.kinds[kind].name == NO_CLASS:
            unknown[name][0] += work
            unknown[name][1] += launches
    whole, computed = sum(mean["work"]), sum(modules.values())
    named = sorted(((n, s) for n, s in modules.items() if n and s), key=lambda p: -p[1])
    rows = sorted(((n, s, c) for n, (s, c) in unknown.items() if s), key=lambda r: -r[1])
    return {
        "modules": [{"module": n, "work_s": s, "share": s / computed} for n, s in named[:SHOWN]],
        "unknown": {
            "share": sum(s for _, s, _ in rows) / whole if whole else 0.0,
            "names": len(rows),
            "kernels": [{"name": n, "work_s": s, "share": s / whole, "launches": c} for n, s, c in rows[:SHOWN]],
        },
    }


LAUNCH, WAIT, BUBBLE, DEPENDENCY, UNRESOLVED = CAUSES = (
    "launch", "communication", "bubble", "dependency", "unresolved",
)  # fmt: skip
"""The causes: a late launch by the host, or waiting for a collective, for another stage or for another operation; or
the trace cannot tell."""
PIPELINE = Kind(COMMUNICATION, "pipeline")


def idle(w: Window, busy: Union, kinds: Sequence[Kind], on_cpu: bool) -> dict[str, int]:
    """Return the idle nanoseconds of a window by cause.

    The cause follows from the launch of the operation after a gap, and from the operations on both sides. On a CPU,
    Python runs between operations.
    """
    out: dict[str, int] = dict.fromkeys(CAUSES, 0)
    by_end = np.argsort(w.ends, kind="stable")
    gaps = trace.gaps(busy, w.start, w.end)
    nexts = np.searchsorted(w.starts, gaps.end).tolist()
    lasts = np.searchsorted(w.ends[by_end], gaps.start).tolist()
    ended: list[int] = w.kind[by_end].tolist()
    launches: list[int] = [*w.launched.tolist(), w.after[0]]
    begun: list[int] = [*w.kind.tolist(), w.after[1]]
    for begin, end, following, last in zip(gaps.start.tolist(), gaps.end.tolist(), nexts, lasts, strict=True):
        before = kinds[ended[last]] if last < len(ended) and begin > w.start else None
        after = kinds[begun[following]] if begun[following] != UNKNOWN else None
        launched = launches[following]
        if launched == UNKNOWN and not on_cpu:
            cause = UNRESOLVED
        elif on_cpu or launched >= begin:
            cause = LAUNCH
        elif PIPELINE in (before, after):
            cause = BUBBLE
        else:
            waits = any(k is not None and k.block == COMMUNICATION for k in (before, after))
            cause = WAIT if waits else DEPENDENCY
        out[cause] += end - begin
    return out
