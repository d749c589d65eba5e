"""Names of kernels: those in two reports of real runs, and those of the wheels; below 5% are unknown."""

import ast
import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moedsl.compiler import load_stdlib
from moedsl.runs.profile import steps
from moedsl.runs.profile.report import reports
from moedsl.runs.profile.steps import NO_CLASS, Classes
from tests.helpers.nsight_export import Export, write
from tests.helpers.tables import table_of
from tests.profile.test_budget import ADAM, ATTENTION, GATHER, GEMM

REPORTED = table_of("profile", "kinds: reported")
RANGES = {
    (("c10d::alltoall_base_", "nccl:all_to_all"), "alltoall"),
    (("nn.Module: MoELayer_0", "_AllToAll"), "alltoall"),
    (("all_to_allv", "EXPERT_MODEL_PARALLEL_GROUP"), "alltoall"),
    (("send", "PIPELINE_MODEL_PARALLEL_GROUP"), "pipeline"),
    (("p2p.send_forward",), "pipeline"),
    (("nccl:coalesced",), "pipeline"),
    ((), "send_receive"),
}


@pytest.fixture(scope="module")
def classes() -> Classes:
    found, wrong = steps.read(load_stdlib())
    assert not wrong
    return found


def test_reported_names(classes: Classes) -> None:
    assert {name: classes.of(name, ()).name for name in REPORTED} == REPORTED


@pytest.mark.parametrize("case", sorted(RANGES))
def test_sends_and_receives_by_their_ranges(classes: Classes, case: tuple[tuple[str, ...], str]) -> None:
    around, want = case
    assert classes.of("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", around).name == want


def test_grouped_products_by_their_range(classes: Classes) -> None:
    name = "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT"
    assert classes.of(name, ("autograd::engine::evaluate_function: _GroupedLinearBackward",)).name == "grouped_gemm"


def test_a_name_alone_makes_no_kernel_an_operator(classes: Classes) -> None:
    """On the CPU it is a function of autograd, whose ranges are its own."""
    for name in ("Kernel2", "OurScan", "_OurScan"):
        assert classes.of(name, ("_Ours",)).name == NO_CLASS
        assert classes.of(name, (name,), on_cpu=True).name == "autograd"


def test_every_class_says_why_and_on_whose_word(classes: Classes) -> None:
    assert all(r.because and r.cites for r in classes.rules)


def unknown_share(classes: Classes, names: set[str]) -> float:
    """The share of the names without a class, for the message of a failure with the names."""
    unknown = sorted(n for n in names if classes.of(n, ()).name == NO_CLASS)
    if len(unknown) >= 0.05 * len(names):
        pytest.fail(f"{len(unknown)} of {len(names)} unknown: {unknown[:40]}")
    return len(unknown) / len(names)


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def launched(roots: list[Path]) -> set[str]:
    """The Triton kernels that some Python launches, `NAME[grid](...)`; what they only call is inlined."""
    jitted, called = set[str](), set[str]()
    for file in (f for root in roots for f in root.rglob("*.py") if "inference" not in f.parts):
        text = file.read_text(encoding="utf-8")
        if "triton" not in text and "](" not in text:
            continue
        tree = ast.parse(re.sub(r"\\(?=[^\n'\"\\abfnrtv0-9xuUN])", r"\\\\", text))
        for n in ast.walk(tree):
            if isinstance(n, ast.FunctionDef) and any("triton.jit" in ast.unparse(d) for d in n.decorator_list):
                jitted.add(n.name)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) and isinstance(n.func.value, ast.Name):
                called.add(n.func.value.id)
    return jitted & called


@pytest.mark.bridge
def test_triton_kernels_of_the_wheels(classes: Classes) -> None:
    fla = folder("fla")
    names = launched(
        [folder("transformer_engine"), folder("megatron") / "core", fla / "ops" / "gated_delta_rule", fla / "ops" / "common",
         fla / "modules" / "conv"]
    )  # fmt: skip
    assert len(names) > 60
    unknown_share(classes, names)


@pytest.mark.bridge
@pytest.mark.skipif(
    shutil.which("c++filt") is None and not os.environ.get("MOEDSL_REQUIRE_ALL"), reason="c++filt is not installed"
)
def test_kernels_of_pytorch(classes: Classes) -> None:
    """The names that PyTorch registers with CUDA stand in its library."""
    library = folder("torch") / "lib" / "libtorch_cuda.so"
    if not library.exists():
        pytest.skip("this PyTorch is built without CUDA")
    mangled = {
        m.decode() for m in re.findall(rb"_ZN2at6native[\w.$]{1,400}?kernel[\w.$]{4,400}(?=\0)", library.read_bytes())
    }
    said = subprocess.run(
        ["c++filt"], input="\n".join(sorted(mangled)[::50]), capture_output=True, text=True, check=True
    )
    names = {n for n in said.stdout.splitlines() if n.startswith("void at::native::")}
    assert len(names) > 200
    unknown_share(classes, names)
    found = Counter(classes.of(n, ()).name for n in names)
    assert {"elementwise", "reduce", "index", "sort"} <= {*found}


# Files that are valid and differ from what today's profilers write: each has the same classes, known by hand.

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
BY_HAND = table_of("profile", "kinds: by hand")
LATE = 270
"""Idle microseconds of a step before an operation that was launched late: 0 to 100, 450 to 560, 900 to 920, and the last
60 but those of the last step, after which nothing follows."""


@cache
def classes_of() -> steps.Classes:
    return steps.read(load_stdlib())[0]


def found(path: Path) -> list[Json]:
    each, problems = reports(path, classes_of(), lambda _: None)
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
EXPORTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = table_of("profile", "kinds: exports")


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
