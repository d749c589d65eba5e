"""Traces that PyTorch's own profiler writes of two processes with gloo, compared with what it sums itself."""

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.runs.profile import kineto
from tests.helpers import bridge_process

pytestmark = pytest.mark.bridge
PROGRAM = """
import json, os, sys
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
experts = dist.new_group([0, 1], group_desc="EXPERT_MODEL_PARALLEL_GROUP")
layers = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128))
adam = torch.optim.AdamW(layers.parameters())

def written(p):
    p.export_chrome_trace(f"{folder}/rank_{rank}.json.gz")
    sums = {e.key: [e.self_cpu_time_total, e.count] for e in p.key_averages()}
    with open(f"{folder}/sums_{rank}.json", "w") as f:
        json.dump(sums, f)

with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3),
             on_trace_ready=written) as p:
    for _ in range(5):
        x = layers(torch.randn(256, 128))
        q = x.view(1, 2, 256, 64)
        x = x + torch.nn.functional.scaled_dot_product_attention(q, q, q).reshape(256, 128)
        routed = torch.empty_like(x)
        dist.all_to_all_single(routed, x.detach().contiguous(), group=experts)
        x.sum().backward()
        for w in layers.parameters():
            dist.all_reduce(w.grad)
        (dist.isend if rank == 0 else dist.irecv)(routed, 1 - rank).wait()
        adam.step()
        adam.zero_grad()
        p.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that train three steps under the profiler."""
    out = tmp_path_factory.mktemp("gloo")
    program = out / "train.py"
    program.write_text(PROGRAM)
    with ThreadPoolExecutor() as both:
        ranks = [*both.map(lambda rank: bridge_process.run(str(program), rank, str(out)), ("0", "1"))]
    assert [r.returncode for r in ranks] == [0, 0], [r.stderr for r in ranks]
    return out


@pytest.mark.parametrize("rank", [0, 1])
def test_time_is_what_pytorch_sums(folder: Path, rank: int) -> None:
    """The profiler's table has the time of each operator outside those that it calls."""
    import gzip

    with gzip.open(folder / f"rank_{rank}.json.gz", "rt") as stream:
        (trace,) = kineto.read("x", stream, lambda text: text.startswith("ProfilerStep"), lambda: None)
    mine: dict[str, float] = defaultdict(float)
    for text, start, end in zip(trace.text.tolist(), trace.start.tolist(), trace.end.tolist(), strict=True):
        mine[trace.texts[text][0]] += (end - start) / 1000
    sums: dict[str, list[float]] = json.loads((folder / f"sums_{rank}.json").read_text())
    theirs = {n: us for n, (us, _) in sums.items() if n in mine and us > 200}
    assert len(theirs) > 4
    assert {n: mine[n] for n in theirs} == pytest.approx(theirs, rel=0.01)


def test_the_report_of_both_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *(str(folder / f"rank_{r}.json.gz") for r in (0, 1)), "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(r["rank"], r["part"]) for r in data["ranks"]] == [(0, 0), (1, 0)]
    assert data["on_cpu"] and data["steps"]["n"] == 3 and data["steps"]["found_by"] == "range"
    found = {c["class"]: c["launches"] for c in data["classes"]}
    assert {"gemm", "attention_forward", "attention_backward", "activation", "optimizer", "all_reduce"} <= {*found}
    assert {"alltoall", "pipeline"} <= {*found}
    assert data["unknown"]["share"] < 0.05
    walls = sum(w["s"] for w in data["walls"].values())
    assert walls == pytest.approx(data["step_s"], rel=1e-6)


@pytest.mark.usefixtures("shared")
def test_a_rehearsal_of_two_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron's own training loop with gloo: four ranks, TP 2 x PP 2 with experts on four."""
    program = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first; pin tp=2 pp=2 ep=4"
    (tmp_path / "traces").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "traces" / "rank_0.json.gz").symlink_to(tmp_path / "mine")
    assert main(["rehearse", "-e", program, "--ranks", "4", "--cpu", "--profile", str(tmp_path / "traces")]) == 0
    assert (tmp_path / "mine").read_text() == "mine"
    capsys.readouterr()
    traces = [str(tmp_path / "traces" / f"rank_{rank}.json.gz") for rank in range(4)]
    assert main(["profile", *traces, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(r["rank"], r["part"]) for r in data["ranks"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert data["steps"]["n"] == 2
    assert all(part["unknown"]["share"] < 0.05 for part in data["parts"])
    found = {c["class"] for c in data["classes"]}
    assert {"alltoall", "pipeline", "all_gather", "reduce_scatter", "gemm", "router", "norm", "optimizer"} <= found
