"""Generated traces of several devices, threads and streams, compared with a timeline that is painted microsecond by
microsecond: the painter knows the class of each operation from the generator, and shares no code with the reader."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.cli.main import main
from moedsl.runs.profile import trace
from moedsl.runs.profile.trace import Numbered, Paths, Spans
from tests.helpers.nsight_export import Export, write
from tests.helpers.tables import table_of

Json = dict[str, Any]
LENGTH, STEPS = 4000, 4
AHEAD = 3000
"""Microseconds between a launch and its operation, where the host runs ahead."""
KERNELS = table_of("profile", "painted: kernels")
BLOCKS = {
    "compute": {"gemm", "attention_backward", "optimizer", "graph"},
    "communication": {"all_gather", "reduce_scatter"},
    "copies": {"host_copy", "device_copy", "set_memory"},
}


@frozen
class Op:
    """What runs from `start` to `end`, in microseconds."""

    start: int
    end: int
    kind: str
    stream: int = 0


def operations(rng: random.Random, kinds: list[str]) -> list[Op]:
    """Draw operations on four streams; those of one stream follow each other, and may reach into the next step."""
    out: list[Op] = []
    for stream in range(4):
        at = rng.randrange(100)
        while at < LENGTH * STEPS - 500:
            end = at + rng.choice((1, 7, 40, 150, 400))
            out.append(Op(at, end, rng.choice(kinds), 7 + stream))
            at = end + rng.choice((0, 0, 1, 30, 300))
    return out


def painted(ops: list[Op], windows: list[tuple[int, int]], blocks: dict[str, set[str]]) -> Json:
    """Paint each class, and count; the means of the windows in microseconds."""
    end = max(*(o.end for o in ops), *(b for _, b in windows))
    lines = {kind: np.zeros(end, bool) for kinds in blocks.values() for kind in kinds}
    for o in ops:
        lines[o.kind][o.start : o.end] = True
    whole = {b: np.any([lines[k] for k in kinds], axis=0) for b, kinds in blocks.items()}
    inside = np.concatenate([np.arange(a, b) for a, b in windows])
    n = len(windows)
    classes: dict[str, tuple[float, float, float]] = {}
    for block, kinds in blocks.items():
        others = np.any([line for b, line in whole.items() if b != block], axis=0)
        for kind in kinds:
            begun = sum(any(a <= o.start < b for a, b in windows) for o in ops if o.kind == kind)
            if lines[kind][inside].any() or begun:
                alone = lines[kind][inside] & ~others[inside]
                classes[kind] = (lines[kind][inside].sum() / n, alone.sum() / n, begun / n)
    compute, sent = (whole[b][inside] for b in ("compute", "communication"))
    any_ = np.any([line[inside] for line in whole.values()], axis=0)
    hidden = compute | whole["copies"][inside]
    device = {"busy_s": any_, "idle_s": ~any_, "compute_s": compute, "compute_absent_s": ~compute,
              "communication_s": sent, "communication_exposed_s": sent & ~hidden}  # fmt: skip
    return {"classes": classes, "device": {k: v.sum() / n for k, v in device.items()}}


def check(data: Json, expected: Json) -> None:
    us = 1e-6
    found = {c["class"]: (c["busy_s"] / us, c["exposed_s"] / us, c["launches"]) for c in data["classes"]}
    assert found == {k: pytest.approx(v) for k, v in expected["classes"].items()}
    assert {k: s / us for k, s in data["device"].items()} == pytest.approx(expected["device"])
    assert sum(w["s"] for w in data["walls"].values()) == pytest.approx(data["step_s"])


def profiled(capsys: pytest.CaptureFixture[str], path: Path) -> list[Json]:
    """The report of each rank of a file."""
    assert main(["profile", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    return data.get("parts", [data])


@pytest.mark.parametrize("seed", range(3))
def test_an_export_of_several_gpus(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Graphs whole and by their nodes, copies, ranges that begin before the capture; two GPUs share a process, and each
    has other classes."""
    rng = random.Random(seed)
    exports, each = [], []
    for device in range(3):
        kinds = [k for k in KERNELS if k != ("gemm", "host_copy", "attention_backward")[device]]
        ops = operations(rng, kinds)
        e = Export(pid=0x1000 + device // 2, device=device, correlated=10_000 * device)
        e.range("train", -50_000, LENGTH * STEPS - 200)
        e.range("step 0", -LENGTH, 0)
        for step in range(STEPS):
            e.range(f"step {step + 1}", LENGTH * step, LENGTH * (step + 1))
        for o in ops:
            graph = 1 + o.start // LENGTH if o.stream == 9 and o.kind in ("gemm", "optimizer") else 0
            e.kernel(KERNELS[o.kind], o.start, o.end, max(o.start - 3, 0), stream=o.stream, graph=graph)
        exports.append(e)
        each.append(ops)
    reports = profiled(capsys, write(tmp_path / "x.sqlite", exports))
    windows = [(LENGTH * s, LENGTH * (s + 1)) for s in range(STEPS)]
    assert len(reports) == 3
    for data, ops in zip(reports, each, strict=True):
        assert data["steps"]["n"] == STEPS
        check(data, painted(ops, windows, BLOCKS))


@pytest.mark.parametrize("seed", range(3))
def test_a_trace_of_two_gpus(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One process has two GPUs. Its host runs ahead by most of a step, so a step of a GPU is what the host launched in
    it. One trace counts microseconds since 1970, as PyTorch did before 2.3."""
    rng, since = random.Random(seed), 1_700_000_000_000_000 if seed == 1 else 0
    hosts = [(LENGTH * s, LENGTH * (s + 1)) for s in range(STEPS - 1)]
    events: list[Json] = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{a}",
            "pid": 1,
            "tid": 1,
            "ts": since + a,
            "dur": b - a,
        }
        for a, b in hosts
    ]
    each = []
    for device in range(2):
        kinds = [k for k in KERNELS if k not in ("graph", ("gemm", "attention_backward")[device])]
        ops = [o for o in operations(rng, kinds) if o.start > LENGTH]
        each.append(ops)
        for n, o in enumerate(ops, 10_000 * device):
            copy, fill = "Memcpy" in KERNELS[o.kind], "Memset" in KERNELS[o.kind]
            cat = "gpu_memcpy" if copy else "gpu_memset" if fill else "kernel"
            args: Json = {"correlation": n} | ({"device": device} if seed or not copy else {})
            if o.kind in BLOCKS["communication"]:
                args["Process Group Description"] = f"GROUP_{o.stream % 2}"
            events.append({"ph": "X", "cat": cat, "name": KERNELS[o.kind], "pid": device, "tid": o.stream,
                           "ts": since + o.start, "dur": o.end - o.start, "args": args})  # fmt: skip
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                           "ts": since + o.start - AHEAD, "dur": 1, "args": {"correlation": n}})  # fmt: skip
    rng.shuffle(events)
    names = [{"id": d, "name": f"GPU {d}"} for d in range(2)]
    with gzip.open(tmp_path / "x.json.gz", "wt") as out:
        json.dump({"schemaVersion": 1, "deviceProperties": names, "traceEvents": events}, out)
    reports = profiled(capsys, tmp_path / "x.json.gz")
    assert [(r["trace"], r["device_name"]) for r in reports] == [
        (f"x.json.gz, device {d}", f"GPU {d}") for d in range(2)
    ]
    for data, ops in zip(reports, each, strict=True):
        launched = [(o.start - AHEAD, o) for o in ops]
        ends = [max(o.end for at, o in launched if a <= at < b) for a, b in hosts]
        begin = max([o.end for at, o in launched if at < 0], default=0)
        windows = list(zip([begin, *ends], ends, strict=False))
        lengths = [b - a for a, b in windows]
        used = [w for w, x in zip(windows, lengths, strict=True) if x <= 1.5 * float(np.median(lengths))]
        assert data["steps"]["found_by"] == "range and launch" and data["steps"]["used"] == len(used)
        check(data, painted(ops, used, {b: k - {"graph"} for b, k in BLOCKS.items()}))
        named = [Op(o.start, o.end, f"{o.kind} GROUP_{o.stream % 2}" if o.kind in BLOCKS["communication"] else o.kind)
                 for o in ops]  # fmt: skip
        groups = {f"{kind} GROUP_{g}" for kind in BLOCKS["communication"] for g in range(2)}
        by_group = painted(named, used, {**BLOCKS, "communication": groups})["classes"]
        assert {f"{c['class']} {c['group']}": (c["busy_s"] / 1e-6, c["exposed_s"] / 1e-6, c["launches"])
                for c in data["collectives"]} == {g: pytest.approx(by_group[g]) for g in groups}  # fmt: skip


OPERATORS = {
    "gemm": "aten::mm",
    "elementwise": "aten::add",
    "all_gather": "c10d::allgather_",
    "norm": "aten::native_layer_norm",
}
HOST = {
    "compute": {"gemm", "elementwise", "norm"},
    "communication": {"all_gather", "all_reduce"},
    "copies": {"host_copy"},
}


def nested_in(rng: random.Random, start: int, end: int, out: list[Op], thread: int) -> None:
    """Draw operations in others, on one thread; none covers the one around it whole."""
    at = start + rng.randrange(1, 40)
    while at < end - 20:
        until = min(at + rng.choice((5, 60, 300, 900)), end - 5)
        out.append(Op(at, until, rng.choice([*OPERATORS]), thread))
        if until - at > 50 and rng.random() < 0.7:
            nested_in(rng, at, until, out, thread)
        at = until + rng.choice((0, 3, 50))


@pytest.mark.parametrize("seed", range(3))
def test_a_trace_of_a_cpu(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nested operators on three threads, and asynchronous collectives that outlive what starts them."""
    rng = random.Random(seed)
    ops: list[Op] = []
    for step in range(STEPS):  # the thread that steps has no operation across two of them
        nested_in(rng, LENGTH * step, LENGTH * (step + 1), ops, 1)
    for thread in (2, 3):
        nested_in(rng, 0, LENGTH * STEPS, ops, thread)
    late = [Op((o.start + o.end) // 2, o.end + 1000, "all_reduce", o.stream) for o in ops if o.kind == "all_gather"]
    names = OPERATORS | {"all_reduce": "gloo:all_reduce"}
    events: list[Json] = [
        {"ph": "X", "cat": "user_annotation" if o.kind == "all_reduce" else "cpu_op", "name": names[o.kind], "pid": 1,
         "tid": o.stream, "ts": o.start, "dur": o.end - o.start} for o in (*ops, *late)
    ]  # fmt: skip
    events += [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{s}", "pid": 1, "tid": 1, "ts": LENGTH * s,
         "dur": LENGTH} for s in range(STEPS)
    ]  # fmt: skip
    rng.shuffle(events)
    (tmp_path / "x.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (data,) = profiled(capsys, tmp_path / "x.json")
    windows = [(LENGTH * s, LENGTH * (s + 1)) for s in range(STEPS)]
    own = [part for thread in (1, 2, 3) for part in innermost([o for o in ops if o.stream == thread])]
    expected = painted([*own, *late], windows, HOST)
    begun = painted([*ops, *late], windows, HOST)["classes"]
    expected["classes"] = {k: (*v[:2], begun[k][2]) for k, v in expected["classes"].items()}
    check(data, expected)


def innermost(ops: list[Op]) -> list[Op]:
    """The microseconds in which each operation of a thread is the innermost."""
    line = [""] * max(o.end for o in ops)
    for o in sorted(ops, key=lambda o: (o.start, -o.end)):
        line[o.start : o.end] = [o.kind] * (o.end - o.start)
    return [Op(t, t + 1, kind) for t, kind in enumerate(line) if kind]


# Unions of intervals and nested ranges, compared with a timeline that is painted moment by moment.

END = 24
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple), max_size=6)
Pairs = list[tuple[int, int]]


def painted_nested(spans: Pairs) -> set[int]:
    return {t for a, b in spans for t in range(a, b)}


def made(spans: Pairs) -> trace.Union:
    start, end = (np.array([s[i] for s in spans], np.int64) for i in (0, 1))
    return trace.union(start, end)


@settings(deadline=None)
@given(SPANS, SPANS)
def test_unions(some: Pairs, others: Pairs) -> None:
    a, b = made(some), made(others)
    assert painted_nested(list(zip(a.start.tolist(), a.end.tolist(), strict=True))) == painted_nested(some)
    assert a.length == len(painted_nested(some))
    assert (a.start[1:] > a.end[:-1]).all()
    assert trace.joined(a, b).length == len(painted_nested(some) | painted_nested(others))
    assert trace.outside(a, b) == len(painted_nested(some) - painted_nested(others))
    gaps = trace.gaps(a, 0, END)
    assert painted_nested(list(zip(gaps.start.tolist(), gaps.end.tolist(), strict=True))) == {
        *range(END)
    } - painted_nested(some)


@st.composite
def trees(draw: st.DrawFn, start: int = 0, end: int = END) -> Pairs:
    """Draw ranges that nest, as those of one thread do."""
    out: Pairs = []
    at = start
    while at < end and draw(st.booleans()):
        a = draw(st.integers(at, end - 1))
        b = draw(st.integers(a + 1, end))
        out.append((a, b))
        if b - a < end - start:
            out += draw(trees(a, b))
        at = b
    return out


@settings(deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.randoms())
def test_nested_ranges(threads: list[Pairs], order: object) -> None:
    flat = [(a, b, thread) for thread, tree in enumerate(threads) for a, b in tree]
    order.shuffle(flat)  # type: ignore[attr-defined]
    names = Numbered()
    ranges = Spans()
    for a, b, thread in flat:
        ranges.add(a, b, names(f"{a}-{b}"), thread)
    moments = [(t, thread) for thread in range(len(threads)) for t in range(END)]
    paths = Paths(names)
    at, place = (np.array([m[i] for m in moments], np.int64) for i in (0, 1))
    found = trace.enclosing(ranges, at, place, paths)
    for (t, thread), path in zip(moments, found.tolist(), strict=True):
        around = {s for s in threads[thread] if s[0] <= t < s[1]}
        assert {*paths.of(path)} == {f"{a}-{b}" for a, b in around}

    parts = trace.own_parts(ranges, paths)
    c = parts.columns()
    for thread, tree in enumerate(threads):
        mine = [(int(a), int(b)) for a, b, p in zip(c["start"], c["end"], c["place"], strict=True) if p == thread]
        assert sum(b - a for a, b in mine) == len(painted_nested(mine)) == len(painted_nested(tree))
    for a, b, path, thread in zip(c["start"], c["end"], c["name"], c["place"], strict=True):
        for t in range(int(a), int(b)):
            inner = min((s for s in threads[thread] if s[0] <= t < s[1]), key=lambda s: s[1] - s[0])
            assert paths.of(int(path))[-1] == f"{inner[0]}-{inner[1]}"


@settings(deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, END - 1), st.integers(1, END)), max_size=4), st.randoms())
def test_what_outlives_the_range_that_begins_it(tree: Pairs, drawn: Pairs, order: random.Random) -> None:
    """It is asynchronous: it has its own time whole, and the others keep theirs and their paths."""
    unit = 2 * trace.ROUNDED
    tree = [(a * unit, b * unit) for a, b in tree]
    late: Pairs = []
    for at, length in drawn:
        start = at * unit + trace.ROUNDED
        around = [b for a, b in tree if a < start < b]
        late += [(start, min(around) + length * unit)] if around else []

    names, flat = Numbered(), [(s, f"{s}") for s in tree] + [(s, "late") for s in late]
    order.shuffle(flat)
    found = []
    for kept in (flat, [x for x in flat if x[1] != "late"]):
        ranges, paths = Spans(), Paths(names)
        for (a, b), name in kept:
            ranges.add(a, b, names(name), 0)
        moments = np.arange(0, END * unit, trace.ROUNDED, dtype=np.int64)
        around = trace.enclosing(ranges, moments, np.zeros(len(moments), np.int64), paths)
        parts = trace.own_parts(ranges, paths)
        rows = zip(parts.start, parts.end, (paths.of(path) for path in parts.name), strict=True)
        found.append((sorted(rows), [paths.of(path) for path in around.tolist()]))
    (parts, around), (others, without) = found
    assert around == without
    assert [p for p in parts if p[2][-1] != "late"] == others
    assert sorted((a, b) for a, b, path in parts if path[-1] == "late") == sorted(late)
    for a, _, path in parts:
        if path[-1] == "late":
            inner = min((s for s in tree if s[0] < a < s[1]), key=lambda s: s[1] - s[0])
            assert path[-2] == f"{inner}"
