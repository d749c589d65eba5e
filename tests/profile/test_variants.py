"""Files that are valid and differ from what today's profilers write: each has the same classes, known by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moedsl.compiler import load_stdlib
from moedsl.runs.profile import steps
from moedsl.runs.profile.report import reports
from tests.helpers.nsight_export import Export, write
from tests.profile.test_budget import ADAM, ATTENTION, GATHER, GEMM

Json = dict[str, Any]
Events = list[Json]
STEPS, STEP = 3, 1000
OPERATIONS = (
    # name, start, end, stream, launch, in microseconds of a step
    (GEMM, 100, 300, 7, 91),
    (GEMM, 200, 400, 8, 95),
    (GATHER, 350, 450, 20, 97),
    (ATTENTION, 560, 660, 7, 550),
    ("Memcpy DtoH (Device -> Pinned)", 640, 680, 9, 551),
    (ADAM, 800, 900, 7, 558),
    ("zzz_their_own", 920, 940, 7, 910),
)
BY_HAND = {
    # busy, alone
    "gemm": (300, 250),
    "all_gather": (100, 50),
    "attention_backward": (100, 80),
    "host_copy": (40, 20),
    "optimizer": (100, 100),
    "unknown": (20, 20),
}
LATE = 270
"""Idle microseconds of a step before an operation that was launched late: 0 to 100, 450 to 560, 900 to 920, and the last
60 but those of the last step, after which nothing follows."""


@cache
def classes() -> steps.Classes:
    return steps.read(load_stdlib())[0]


def found(path: Path) -> list[Json]:
    each, problems = reports(path, classes(), lambda _: None)
    assert not problems
    return each


def agrees(r: Json, launches: bool = True) -> None:
    """Compare a report with the sums by hand."""
    assert r["step_s"] == pytest.approx(STEP * 1e-6) and r["steps"]["n"] == STEPS
    assert {c["class"]: (c["busy_s"] * 1e6, c["exposed_s"] * 1e6) for c in r["classes"]} == {
        k: pytest.approx(v) for k, v in BY_HAND.items()
    }
    assert r["idle"]["by_cause"]["launch"] * 1e6 == pytest.approx(LATE if launches else 0)


def kineto(device: int = 0, since: int = 0) -> Events:
    """What PyTorch's profiler writes of three steps."""
    out: Events = []
    for step in range(STEPS):
        t = since + step * STEP
        out.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 47, "tid": 48, "ts": t,
                    "dur": STEP})  # fmt: skip
        for n, (name, start, end, stream, launch) in enumerate(OPERATIONS, 100 * device + 10 * step):
            out.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 47, "tid": 48,
                        "ts": t + launch, "dur": 2, "args": {"correlation": n}})  # fmt: skip
            cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            out.append({"ph": "X", "cat": cat, "name": name, "pid": device, "tid": stream, "ts": t + start,
                        "dur": end - start,
                        "args": {"correlation": n, "stream": stream, "device": device}})  # fmt: skip
    return out


def halved(events: Events) -> Events:
    """Each span as its begin and its end."""
    begins = [{k: v for k, v in e.items() if k != "dur"} | {"ph": "B"} for e in events]
    ends = [{"ph": "E", "pid": e["pid"], "tid": e["tid"], "ts": e["ts"] + e["dur"]} for e in events]
    return [e for pair in zip(begins, ends, strict=True) for e in pair]


def each(change: Callable[[Json], Json]) -> Callable[[Events], Events]:
    return lambda events: [e | change(e) for e in events]


def texts(e: Json) -> Json:
    return {"args": {k: str(v) for k, v in e.get("args", {}).items()}}


VARIANTS: dict[str, Callable[[Events], Any]] = {
    "begin and end": halved,
    "begin and end, sorted": lambda events: sorted(halved(events), key=lambda e: e["ts"]),
    "begin and end, mixed": lambda events: sorted(halved(events), key=lambda e: e["ts"] * 7919 % 997),
    "some of each": lambda events: [*events[::2], *halved(events[1::2])],
    "times as texts": each(lambda e: {"ts": str(e["ts"]), "dur": f"{e['dur']}.0"}),
    "arguments as texts": each(texts),
    "nanoseconds since 1970": each(lambda e: {"ts": (e["ts"] + 10**15) * 1000, "dur": e["dur"] * 1000}),
    "no categories": lambda events: [{k: v for k, v in e.items() if k != "cat"} for e in events],
    "another version as text": lambda events: {"schemaVersion": "1", "traceEvents": events},
    "no duration where it is 0": lambda events: [*events, {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 5, "dur": None}],
    "threads and streams as texts": each(lambda e: {"pid": f"GPU {e['pid']}", "tid": f"stream {e['tid']}"}),
    "ranges of the device": lambda events: [
        *events,
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#9", "pid": 0, "tid": 7, "ts": 150, "dur": 2000},
        {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 450, "dur": 100},
        {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": 450, "dur": 100},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_kineto(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(VARIANTS[name](kineto())))
    (r,) = found(tmp_path / "a.json")
    agrees(r)
    assert not r["remarks"]


def test_two_devices_whose_numbers_are_texts(tmp_path: Path) -> None:
    """Both are in the events of one process."""
    events = [e | texts(e) | {"pid": 0 if e["pid"] < 2 else 47} for d in range(2) for e in kineto(d)]
    steps = [e for e in events if e["cat"] == "user_annotation"][:STEPS]
    rest = [e for e in events if e["cat"] != "user_annotation"]
    (tmp_path / "a.json").write_text(json.dumps([*steps, *rest]))
    pair = found(tmp_path / "a.json")
    assert [r["trace"] for r in pair] == ["a.json, device 0", "a.json, device 1"]
    for r in pair:
        agrees(r)


def test_a_half_without_the_other(tmp_path: Path) -> None:
    alone = [{"ph": "B", "cat": "kernel", "name": GEMM, "pid": 0, "tid": 30, "ts": 5},
             {"ph": "E", "pid": 0, "tid": 31, "ts": 5}]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps([*halved(kineto()), *alone]))
    (r,) = found(tmp_path / "a.json")
    assert {c["class"]: c["busy_s"] * 1e6 for c in r["classes"]}["gemm"] == pytest.approx(300)
    assert r["remarks"] == ["2 events of phase B or E without the other: such a span counts no time"]


def test_small_times_in_nanoseconds(tmp_path: Path) -> None:
    """Nothing in the file says so: the report is as the format says, and a remark doubts it."""
    events = [e | {"ts": e["ts"] * 1000, "dur": e["dur"] * 1000} for e in kineto()]
    (tmp_path / "a.json").write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    (r,) = found(tmp_path / "a.json")
    assert r["step_s"] == pytest.approx(1) and "nanoseconds instead of microseconds" in r["remarks"][0]


KERNEL, COPY = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"


def export(path: Path, drop: tuple[str, ...] = (), *queries: str) -> Path:
    e = Export()
    for step in range(STEPS):
        t = step * STEP
        e.range(f"step {10 + step}", t, t + STEP)  # an odd length: the text is in the row
        for name, start, end, stream, launch in OPERATIONS:
            e.kernel(name, t + start, t + end, t + launch, stream)
    write(path, [e], drop)
    with closing(sqlite3.connect(path)) as base, base:
        for query in queries:
            base.execute(query)
    return path


NAMED = f"(SELECT value FROM StringIds WHERE id = {KERNEL}.demangledName)"
EXPORTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no streams": ((f"{KERNEL}.streamId", f"{COPY}.streamId"), ()),
    "no devices": ((f"{KERNEL}.deviceId", f"{COPY}.deviceId"), ()),
    "a name in another column": ((), (f"UPDATE {KERNEL} SET demangledName = 999 WHERE rowid % 2",)),
    "names as texts": (("StringIds",), ()),
    "ranges that overlap": (
        (),
        tuple(f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES ({a}, {b}, {kind}, 'x', 1)"
              for a, b, kind in ((50_000, 1_500_000, 60), (60_000, 2_500_000, 59), (70_000, 2_600_000, 59))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_a_variant_of_nsight(name: str, tmp_path: Path) -> None:
    drop, queries = EXPORTS[name]
    if "StringIds" in drop:
        path = export(tmp_path / "a.sqlite", (), f"UPDATE {KERNEL} SET demangledName = {NAMED}", "DROP TABLE StringIds")
    else:
        path = export(tmp_path / "a.sqlite", drop, *queries)
    (r,) = found(path)
    agrees(r)


def test_an_export_without_what_tells_launches_and_names(tmp_path: Path) -> None:
    (r,) = found(export(tmp_path / "a.sqlite", (f"{KERNEL}.correlationId", f"{COPY}.correlationId")))
    agrees(r, launches=False)
    assert "the launch of 0% of the operations" in r["remarks"][0]
    (r,) = found(export(tmp_path / "b.sqlite", ("StringIds",)))
    assert "no table StringIds" in r["remarks"][0] and r["unknown"]["share"] == pytest.approx(720 / 760)
    assert r["device"]["busy_s"] * 1e6 == pytest.approx(590)


def test_graphs_alone(tmp_path: Path) -> None:
    """A whole graph is one operation, of compute."""
    e = Export()
    for step in range(STEPS):
        e.range(f"step {10 + step}", step * STEP, step * STEP + STEP)
        e.kernel("CUDA graph", step * STEP + 100, step * STEP + 700, step * STEP + 50)
    others = (KERNEL, COPY, "CUPTI_ACTIVITY_KIND_MEMSET", "StringIds")
    (r,) = found(write(tmp_path / "a.sqlite", [e], others))
    assert [(c["class"], c["busy_s"] * 1e6) for c in r["classes"]] == [("graph", pytest.approx(600))]
