"""Divide the steps of a trace: by class, by wall, by module, and the idle time by its cause.

A device is idle because the next operation was launched late, or waited for communication or for another stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
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
"""Unknown names and modules that are listed."""
Json = dict[str, Any]


def budget(t: Trace, steps: Steps, classes: Classes) -> Json:
    """Return the means over the steady steps, in seconds a step."""
    numbers = Numbers.of(t, classes)
    windows = steps.used
    each = [_nanoseconds(cut(t, numbers, *window), numbers, t.on_cpu) for window in windows]
    mean = defaultdict[str, float](float)  # times in seconds, counts as they are
    for one in each:
        for name, value in one.items():
            mean[name] += value / len(each) / (1 if name.startswith("launches") else SECOND)
    lengths = [(b - a) / SECOND for a, b in windows]
    step = sum(lengths) / len(lengths)
    # The walls are disjoint: where an operation of one runs while another does, the time counts as compute first, then
    # as communication
    walls = {"compute": mean["compute_s"], "communication": _sent(mean), "host": mean[f"idle {LAUNCH}"],
             "memory": mean["wall copies"]}  # fmt: skip
    losses = ("communication", "host", "memory")
    largest = max(losses, key=lambda w: walls[w])
    walls["unresolved"] = max(step - sum(walls.values()), 0.0)
    idle_by_cause = {c: mean[f"idle {c}"] for c in CAUSES}
    # The time without compute by what runs instead, else by why the device is idle
    absent = idle_by_cause | {
        WAIT: mean[f"idle {WAIT}"] + mean["wall communication"] - mean["wall bubble"],
        BUBBLE: mean[f"idle {BUBBLE}"] + mean["wall bubble"],
        "copies": mean["wall copies"],
    }
    by_class = [
        {
            "class": k.name, "wall": k.block, "busy_s": mean[f"busy {i}"], "exposed_s": mean[f"exposed {i}"],
            "launches": mean[f"launches kind {i}"], "work_s": mean[f"work kind {i}"], "share": mean[f"busy {i}"] / step,
        }
        for i, k in enumerate(numbers.kinds)
    ]  # fmt: skip
    collectives = [
        {"class": k, "group": g, **{f"{n}_s": mean[f"{n} collective {i}"] for n in ("busy", "exposed", "work")},
         "launches": mean[f"launches collective {i}"]}
        for i, (k, g) in enumerate(numbers.collectives)
    ]  # fmt: skip
    return {
        "steps": {
            "found_by": steps.by, "name": steps.name, "n": len(steps.windows), "used": len(windows),
            "median_s": float(np.median(lengths)), "min_s": min(lengths), "max_s": max(lengths),
            "each_s": [(b - a) / SECOND for a, b in steps.windows],
            "own_each_s": [(b - a - _sent(e)) / SECOND for (a, b), e in zip(windows, each, strict=True)],
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
        "modules": _modules(mean, t, numbers, classes),
        "unknown": _unknown(mean, t, numbers),
        "timeline": timeline(cut(t, numbers, *windows[int(np.argsort(lengths)[len(lengths) // 2])]), numbers),
    }  # fmt: skip


def _longest_first(rows: Iterable[Json]) -> list[Json]:
    return sorted(rows, key=lambda r: -r["busy_s"])


def timeline(w: Window, numbers: Numbers) -> Json:
    """Return when each block runs in one step, as shares of it; what is nearer than a pixel is one."""
    out: Json = {"step_s": w.length / SECOND}
    for name in GROUPS:
        found = w.union(np.isin(w.kind, numbers.block(name)))
        drawn = trace.union(found.start, found.end + w.length // PIXELS)
        spans = zip(drawn.start - w.start, drawn.end - w.start, strict=True)
        out[name] = [[round(float(a) / w.length, 4), round(min(float(b) / w.length, 1.0), 4)] for a, b in spans]
    return out


def _nanoseconds(w: Window, numbers: Numbers, on_cpu: bool) -> dict[str, float]:
    """Return the nanoseconds and the launches of one step by name."""
    blocks = {name: w.union(np.isin(w.kind, numbers.block(name))) for name in GROUPS}
    busy = trace.joined(*blocks.values())
    compute, sent = blocks[COMPUTE], blocks[COMMUNICATION]
    computed_or_sent = trace.joined(compute, sent)
    # Of the pipeline's sends and receives, what neither compute nor other communication hides
    pipeline = [i for i, k in enumerate(numbers.kinds) if k == PIPELINE]
    sends = [i for i in numbers.block(COMMUNICATION) if i not in pipeline]
    hidden = trace.joined(compute, w.union(np.isin(w.kind, sends)))
    out: dict[str, float] = {
        "busy_s": busy.length, "idle_s": w.length - busy.length, "compute_s": compute.length,
        "compute_absent_s": w.length - compute.length, "communication_s": sent.length,
        "communication_exposed_s": trace.alone(sent, trace.joined(compute, blocks[COPIES])),
        "wall communication": computed_or_sent.length - compute.length,
        "wall copies": busy.length - computed_or_sent.length,
        "wall bubble": trace.alone(w.union(np.isin(w.kind, pipeline)), hidden),
    }  # fmt: skip
    others = {k: trace.joined(*(u for name, u in blocks.items() if name != k)) for k in GROUPS}
    of = numbers.of_collective[w.text]  # the class and process group of each collective
    each = [(str(i), w.kind == i, k.block) for i, k in enumerate(numbers.kinds)]
    each += [(f"collective {i}", of == i, COMMUNICATION) for i in range(len(numbers.collectives))]
    for name, mine, block in each:
        own = w.union(mine)
        out |= {f"busy {name}": own.length, f"exposed {name}": trace.alone(own, others[block])}
    known = of >= 0
    for name, by, mask, n in (("kind", w.kind, ..., len(numbers.kinds)), ("text", w.text, ..., len(numbers.of_text)),
                              ("collective", of[known], known, 0)):  # fmt: skip
        for total, column in (("work", w.work), ("launches", w.begun)):
            sums = np.bincount(by, column[mask], n).tolist()
            out |= {f"{total} {name} {i}": value for i, value in enumerate(sums) if value}
    return out | {f"idle {c}": s for c, s in idle(w, busy, numbers.kinds, on_cpu).items()}


def _sent(mean: dict[str, float]) -> float:
    """Return the time of communication that nothing hides, and of waiting for it."""
    return mean["wall communication"] + mean[f"idle {WAIT}"] + mean[f"idle {BUBBLE}"]


def _modules(mean: dict[str, float], t: Trace, numbers: Numbers, classes: Classes) -> list[Json]:
    """Return the compute by the innermost range of the host that is no operator: a module or a function of autograd."""
    work: dict[str, float] = defaultdict(float)
    for i, (_, around) in enumerate(t.texts):
        if numbers.kinds[numbers.of_text[i]].block == COMPUTE:
            module = (n for n in reversed(around) if "::" not in n and classes.step(n) is None)
            work[next(module, "")] += mean[f"work text {i}"]
    named = sorted(((n, s) for n, s in work.items() if n and s), key=lambda p: -p[1])
    whole = sum(work.values())
    return [{"module": n, "work_s": s, "share": s / whole} for n, s in named[:SHOWN]]


def _unknown(mean: dict[str, float], t: Trace, numbers: Numbers) -> Json:
    """Return the share of the work that no pattern names, and the names that have most of it."""
    names: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for i, (name, _) in enumerate(t.texts):
        if numbers.kinds[numbers.of_text[i]].name == NO_CLASS:
            names[name][0] += mean[f"work text {i}"]
            names[name][1] += mean[f"launches text {i}"]
    whole = sum(mean[f"work kind {i}"] for i in range(len(numbers.kinds)))
    rows = sorted(((n, s, c) for n, (s, c) in names.items() if s), key=lambda r: -r[1])
    listed = [{"name": n, "work_s": s, "share": s / whole, "launches": c} for n, s, c in rows[:SHOWN]]
    return {"share": sum(s for _, s, _ in rows) / whole if whole else 0.0, "names": len(rows), "kernels": listed}


LAUNCH, WAIT, BUBBLE, DEPENDENCY, UNRESOLVED = CAUSES = (
    "launch", "communication", "bubble", "dependency", "unresolved",
)  # fmt: skip
"""The host launched late; a collective was awaited; another stage was; another operation was; the trace cannot tell."""
PIPELINE = Kind(COMMUNICATION, "pipeline")


def idle(w: Window, busy: Union, kinds: Sequence[Kind], on_cpu: bool) -> dict[str, int]:
    """Return the idle nanoseconds of a window by cause: the launch of the operation after a gap, and the operations on
    both sides. On a CPU, Python runs between its operations."""
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
