"""Snapshots in the structure that torch/cuda/memory.py documents, from a simulated allocator whose peak is known."""

import io
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import moedsl
from moedsl.cli.main import main
from moedsl.facts.units import GIB
from moedsl.planner.report import Measured
from moedsl.runs import snapshot
from tests.helpers import rotation

MIB = 1 << 20
Json = dict[str, Any]
CORE = "/opt/venv/lib/python3.12/site-packages/megatron/core"
TORCH = {
    "filename": "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
    "line": 1775,
    "name": "_call_impl",
}


def frame(path: str, line: int, name: str) -> Json:
    return {"filename": f"{CORE}/{path}", "line": line, "name": name}


WEIGHTS = [frame("distributed/param_and_grad_buffer.py", 1177, "__init__")]
GRADIENTS = [frame("distributed/param_and_grad_buffer.py", 1183, "__init__")]
ADAM = [TORCH, frame("optimizer/distrib_optimizer.py", 441, "_build_model_and_main_param_groups")]
EXPERTS = [
    TORCH,
    frame("transformer/moe/experts.py", 300, "forward"),
    frame("pipeline_parallel/schedules.py", 397, "forward_step"),
]


class Allocator:
    """Allocates and frees, and writes the events that PyTorch's allocator would write."""

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, list[Json]]] = {}
        self.events: list[Json] = []
        self.history: list[dict[int, tuple[int, list[Json]]]] = [{}]
        self.next = 1 << 40
        self.reusable: list[int] = []

    def alloc(self, size: int, frames: list[Json]) -> int:
        if self.reusable:
            address = self.reusable.pop()
        else:
            address, self.next = self.next, self.next + (1 << 36)
        self.live[address] = (size, frames)
        self._event("alloc", address, size, frames)
        return address

    def free(self, address: int) -> None:
        size, _ = self.live.pop(address)
        self._event("free_requested", address, size, [])
        self.events.append({"action": "free_completed", "addr": address, "size": size, "frames": [], "stream": 0})
        self.reusable.append(address)

    def _event(self, action: str, address: int, size: int, frames: list[Json]) -> None:
        self.events.append(
            {"action": action, "addr": address, "size": size, "frames": frames, "stream": 0, "time_us": 0}
        )
        self.history.append(dict(self.live))

    def snapshot(self, kept: int | None = None, spare: int = 0) -> Json:
        """The snapshot now; `kept` is how many of the last events the history has."""
        segments = [
            {
                "device": 0, "address": address, "total_size": size + spare, "allocated_size": size, "active_size": size,
                "segment_type": "large", "segment_pool_id": (0, 0), "stream": 0,
                "blocks": [
                    {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames},
                    *([{"address": address + size, "size": spare, "state": "inactive", "frames": []}] if spare else []),
                ],
            }
            for address, (size, frames) in self.live.items()
        ]  # fmt: skip
        events = self.events if kept is None else self.events[len(self.events) - kept :]
        return {
            "segments": segments,
            "device_traces": [events, []],
            "allocator_settings": {},
            "external_annotations": [],
        }


def known() -> Allocator:
    """Weights 64, gradients 128, optimizer 256 and four activations of 32 MiB: 576 MiB at the peak."""
    a = Allocator()
    a.alloc(64 * MIB, WEIGHTS)
    a.alloc(128 * MIB, GRADIENTS)
    a.alloc(256 * MIB, ADAM)
    for _ in range(2):
        for address in [a.alloc(32 * MIB, EXPERTS) for _ in range(4)]:
            a.free(address)
    return a


def file(path: Path, value: Any) -> str:
    path.write_bytes(pickle.dumps(value))
    return str(path)


def read(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    assert main(["memory", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["devices"][0]


def test_the_peak_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = read(capsys, file(tmp_path / "a.pickle", known().snapshot(spare=MIB)))
    assert data["peak_gib"] == 576 / 1024 and data["at_start_gib"] == 0
    kinds = {k["kind"]: k["gib"] * 1024 for k in data["kinds"]}
    assert kinds == {"optimizer": 256, "gradients": 128, "activations": 128, "weights": 64}
    assert data["sources"][0]["source"] == "_build_model_and_main_param_groups@distrib_optimizer.py:441"
    assert {"source": "forward@experts.py:300", "allocations": 4}.items() <= data["sources"][2].items() | data[
        "sources"
    ][1].items()
    assert data["fragmentation"]["share"] == pytest.approx(3 / (448 + 3))


def test_a_full_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was allocated before the first event is known from the blocks; what was freed since has no frames."""
    a = known()
    data = read(capsys, file(tmp_path / "a.pickle", a.snapshot(kept=len(a.events) - 3)))
    assert data["at_start_gib"] == 448 / 1024 and data["peak_gib"] == 576 / 1024
    assert {k["kind"]: k["gib"] * 1024 for k in data["kinds"]}["optimizer"] == 256
    again = read(capsys, file(tmp_path / "b.pickle", a.snapshot(kept=2)))
    assert again["at_start_gib"] == 480 / 1024
    assert {k["kind"]: k["gib"] * 1024 for k in again["kinds"]}["before the history"] == 32


@pytest.mark.parametrize("seed", range(8))
def test_random_histories(seed: int) -> None:
    rng = random.Random(f"{seed} {os.environ.get('MOEDSL_SEED', '')}")
    a = Allocator()
    for _ in range(200):
        if a.live and rng.random() < 0.45:
            a.free(rng.choice([*a.live]))
        else:
            a.alloc(rng.randint(1, 1000) * 512, [frame("x.py", rng.randint(1, 9), "forward")])
    kept = rng.choice([len(a.events), rng.randint(1, len(a.events))])
    (memory,) = snapshot.devices(a.snapshot(kept))
    # One state before each event kept, and the one at the end; a `free_completed` changes nothing.
    states = a.history[-(sum(e["action"] != "free_completed" for e in a.events[len(a.events) - kept :]) + 1) :]
    totals = {sum(size for size, _ in s.values()) for s in states} | {sum(x for x, _ in a.history[-1].values())}
    assert memory.peak == max(totals)
    assert sum(size for size, _ in memory.live) == memory.peak == max(memory.over_time)
    assert {*memory.over_time} <= totals
    if kept == len(a.events):
        best = max(a.history, key=lambda s: sum(size for size, _ in s.values()))
        want = sorted((size, frames[0]["line"]) for size, frames in best.values())
        assert sorted((size, frames[0][1]) for size, frames in memory.live) == want


def test_nothing_of_a_pickle_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flag = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {flag}",)

    for i, value in enumerate((Evil(), {"segments": [Evil()], "device_traces": []})):
        assert main(["memory", file(tmp_path / f"{i}.pickle", value)]) == 1
        said = capsys.readouterr().err
        assert "memory.snapshot" in said and "posix.system" in said
    assert not flag.exists()


RUNS = {
    "global": b"cos\nsystem\n(S'touch ran'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
    "instance": b"(S'touch ran'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'touch ran'\no.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"Pran\n.",
    "state": b"}}S'a'\nK\x01sb.",
    "call of a number": b"K\x01)R.",
}
DAMAGED = {
    "text of 2**64 bytes": b"\x80\x04\x8d" + b"\xff" * 8 + b"a.",
    "bytes of 2**62": b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"a.",
    "frame of 2**62": b"\x80\x04\x95" + (2**62).to_bytes(8, "little") + b"K\x01.",
    "number of 2**31 bytes": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "number of 100,000 digits": b"I" + b"9" * 100_000 + b"\n.",
    "memo of 20 digits": b"K\x01p99999999999999999999\n.",
    "200,000 lists in each other": b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "protocol 99": b"\x80\x63K\x01.",
}


@pytest.mark.parametrize("content", [*RUNS.values(), *DAMAGED.values()], ids=[*RUNS, *DAMAGED])
def test_a_hostile_pickle(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way that a pickle has to call something, and those that exhaust a reader."""
    monkeypatch.chdir(tmp_path)
    Path("a.pickle").write_bytes(content)
    assert main(["memory", "a.pickle"]) == 1
    said = capsys.readouterr().err
    assert "error[memory.snapshot]" in said or "error[read.too_large]" in said, said
    assert [p.name for p in tmp_path.iterdir()] == ["a.pickle"]


def test_a_pickle_that_is_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path / "a.pickle", known().snapshot())
    monkeypatch.setattr(snapshot, "LARGEST", 1 << 30)
    assert main(["memory", path]) == 0
    monkeypatch.setattr(snapshot, "LARGEST", 100)
    capsys.readouterr()
    assert main(["memory", path]) == 1
    assert "it has more than" in capsys.readouterr().err


VALUES = ("a", b"\xff", None, 1.5, float("inf"), float("nan"), -1, 2**200, [], {})
PLACES = ("device", "total_size", "address", "blocks", "size", "state", "frames", "event")


@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place in PLACES for value in rotation.some(f"value of {place}", VALUES, 3)],
    ids=str,
)
def test_a_value_of_any_type(place: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = {"size": 10, "state": "active_allocated", "address": 0}
    segment = {"device": 0, "address": 0, "total_size": 10, "blocks": [block]}
    event = {"action": "alloc", "addr": 0, "size": 10, "frames": []}
    ({"size": block, "state": block, "frames": block}.get(place) or segment)[place] = value
    trace = [{**event, "size": value}] if place == "event" else [event]
    code = main(["memory", file(tmp_path / "a.pickle", {"segments": [segment], "device_traces": [trace]})])
    said = capsys.readouterr().err
    assert code == 0 or (code == 1 and "error[memory." in said), said


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free", "inactive"])
def test_what_waits_to_be_freed_is_in_use(state: str) -> None:
    """PyTorch 2.13 calls it otherwise than before."""
    blocks = [{"size": 10, "state": "active_allocated", "address": 0}, {"size": 30, "state": state, "address": 10}]
    segment = {"device": 0, "address": 0, "total_size": 40, "blocks": blocks}
    (made,) = snapshot.devices({"segments": [segment], "device_traces": []})
    assert made.inactive == (30 if state == "inactive" else 0)


def test_files_that_are_no_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = pickle.dumps(known().snapshot())
    for i, content in enumerate(
        (b"", b"hello", whole[: len(whole) // 2], pickle.dumps([1]), pickle.dumps({"segments": [1]}))
    ):
        path = tmp_path / f"{i}.pickle"
        path.write_bytes(content)
        assert main(["memory", str(path)]) == 1
        said = capsys.readouterr().err
        assert "memory.snapshot" in said and "help: " in said
    assert main(["memory", file(tmp_path / "empty.pickle", {"segments": [], "device_traces": [[]]})]) == 1
    assert "memory.empty" in capsys.readouterr().err
    for path, id in ((tmp_path / "none", "read.missing"), (tmp_path, "read.directory")):
        assert main(["memory", str(path)]) == 1
        assert id in capsys.readouterr().err


def test_next_to_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.moe"
    run.write_text("qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first; pin pp=2 ep=8")
    assert main(["plan", str(run), "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["estimate"]["memory"]["stages"]
    a = Allocator()
    for kind, frames in (("weights", WEIGHTS), ("gradients", GRADIENTS), ("optimizer", ADAM), ("activations", EXPERTS)):
        a.alloc(int(planned[1][f"{kind}_gib"] * GIB), frames)
    a.alloc(int(planned[1]["buffers_gib"] * GIB), [frame("transformer/moe/fused_a2a.py", 60, "get_buffer")])
    snapshot = file(tmp_path / "a.pickle", a.snapshot())
    (data,) = read(capsys, snapshot, "--run", str(run))["plans"]
    assert (data["stage"], data["stage_by"]) == (1, "nearest")
    for row in data["table"]:
        assert row["measured_gib"] == pytest.approx(row["predicted_gib"], abs=1e-6)
    assert main(["memory", snapshot, "--run", str(run)]) == 0
    said = capsys.readouterr().out
    assert "stage 1 of 0 to 1: the one whose total is nearest" in said and "its fullest stage has" in said
    assert "megatron/core/transformer/moe/fused_a2a" in said.partition("by module")[2].partition("by source")[0]


TWO_STAGES = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first; pin pp=2 ep=8 tp=2"


@pytest.mark.parametrize("pp_first", [False, True])
def test_the_stage_of_a_rank(pp_first: bool) -> None:
    """By the strides of Megatron-Core's orders (core parallel_state.py, RankGenerator): pp is the slowest of
    tp-cp-ep-dp-pp, and comes after tp in tp-cp-ep-pp-dp. Here tp is 2 and dp 4."""
    text = TWO_STAGES + (f"; set {snapshot.PP_FIRST} = true" if pp_first else "")
    (plan,) = moedsl.plan(text).plans
    expected = [rank // 2 % 2 if pp_first else rank // 8 for rank in range(16)]
    assert [snapshot.stage_of(rank, None, plan) for rank in range(16)] == [(stage, "name") for stage in expected]
    assert snapshot.stage_of(16, None, plan) is None and snapshot.stage_of(None, None, plan) is None
    assert snapshot.stage_of(0, 1, plan) == (1, "given")


def test_several_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rank is in the name that Bridge gives the file, or SNAPSHOT=STAGE states the stage."""
    run = tmp_path / "run.moe"
    run.write_text(TWO_STAGES)
    small, large = Allocator(), Allocator()
    small.alloc(GIB, WEIGHTS)
    large.alloc(3 * GIB, ADAM)
    first = file(tmp_path / "snapshot_2.pickle", small.snapshot())
    failed = file(tmp_path / "snapshot_oom_rank-9.pickle", large.snapshot())
    mine = file(tmp_path / "mine.pickle", small.snapshot())
    assert main(["memory", first, failed, f"{mine}=1", "--run", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["devices"]
    assert [(d["rank"], d["stage"]) for d in found] == [(2, None), (9, None), (None, 1)]
    assert [(p["stage"], p["stage_by"]) for d in found for p in d["plans"]] == [(0, "name"), (1, "name"), (1, "given")]
    drawn = Measured(memory={"devices": found}).view("main")
    assert drawn and [d["snapshot"][-7:] for d in drawn["memory"]] == ["stage 0", "stage 1", "stage 1"]
    assert main(["memory", failed, f"{mine}=1", "--run", str(run)]) == 0
    said = capsys.readouterr().out
    table = said.partition("by stage\n")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in table] == ["0", "1", "1"] and table[0].endswith("no snapshot")
    assert table[1].endswith("snapshot_oom_rank-9.pickle, rank 9 by the file's name")
    assert table[2].endswith("mine.pickle, as given")
    assert "snapshot_oom_rank-9.pickle: device 0, peak 3.0 GiB" in said  # the fullest
    assert main(["memory", f"{mine}=2", "--run", str(run)]) == 1
    assert "has no stage 2: its stages are 0 to 1" in capsys.readouterr().err


def test_the_names_that_bridge_gives() -> None:
    """What is in a name is the rank only where Bridge writes it."""
    named = {"snapshot_12.pickle": 12, "a/b_oom_rank-3.pickle": 3, "snapshot.pickle": None, "rank12.pickle": None,
             "snapshot_2026-01-02.pickle": None, "x_12": None}  # fmt: skip
    assert {name: snapshot.Given.of(name).rank for name in named} == named


def test_plain_values_of_every_protocol() -> None:
    value = known().snapshot()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert snapshot.load(io.BytesIO(pickle.dumps(value, protocol))) == value
