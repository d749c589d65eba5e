"""What the steps of a run say, the exit code that CI reads, and the numbers of an out-of-memory message."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.compiler import load_stdlib
from moedsl.diagnose import memory, scan
from tests.helpers import rotation
from tests.helpers.diagnose_cases import HEALTHY

KNOWN = scan.symptoms(load_stdlib())
NOISE = (
    *HEALTHY,
    "Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No such file or directory",
    "/opt/venv/lib/python3.12/site-packages/x.py:20: UserWarning: Apex is not installed. Falling back to Torch Norm",
    "[rank0]:[W1128 10:00:00.1 ProcessGroupNCCL.cpp:4718] using GPU 0 as device used by this process is currently unknown.",
    "could not find arguments in the checkpoint ...",
    "  error_on_missing ............................... False",
    "  exit_on_missing_checkpoint: false",
    "n2:2331:2512 [0] graph/search.cc:1135 NCCL WARN Could not find a path for pattern 1, falling back to simple order",
    "ERROR:wandb:network error, retrying in 2 s",
    "[E1128 10:00:02.1 socket.cpp:1] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 110).",
    'Traceback (most recent call last):\n  File "/opt/wandb/sdk.py", line 9, in send\nTimeoutError: retried',
    "> compiling dataset index builder ... Error-free",
)  # fmt: skip
END = (
    "[rank0]:[W1128 10:30:00.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called",
    "  successfully saved checkpoint from iteration     100 to /ckpt",
)


def step(n: int, *, norm: str = "1.2", seconds: float = 10.36, loss: str = "2.1E+00", skipped: int = 0) -> str:
    return (
        f" [2026-08-04 10:00:01] iteration {n:8}/     100 | consumed samples: {n * 128} | elapsed time per iteration "
        f"(ms): {seconds * 1000:.1f} | learning rate: 1.0E-04 | global batch size: 128 | lm loss: {loss} | "
        f"loss scale: 1.0 | grad norm: {norm} | number of skipped iterations: {skipped:3} | number of nan iterations:   0 |"
    )


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def call(lines: Sequence[str], *words: str) -> tuple[int, str]:
        (tmp_path / "run.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        code = main(["diagnose", str(tmp_path / "run.log"), *words])
        return code, capsys.readouterr().out

    return call


def test_no_alarm_of_fifty_healthy_logs() -> None:
    """Warnings, survived errors and retried connections before the last steps, and what ends a good run."""
    for seed in range(50):
        draw = rotation.dice(f"healthy {seed}")
        lines = [line for n in range(1, draw.randint(3, 40)) for line in (*draw.sample(NOISE, 2), step(n))]
        report = scan.diagnose("log", ["\n".join([*lines, *END[: draw.randint(0, 2)]]).encode()], KNOWN)
        assert report.is_healthy, (seed, report)


@pytest.mark.parametrize(
    ("lines", "symptom"),
    [
        ([step(1), step(2, norm="nan")], "nan_iterations"),
        ([step(1), step(2, norm="inf")], "nan_iterations"),
        ([step(1), step(2).replace(" lm loss: 2.1E+00 |", ""), step(3)], "nan_iterations"),
        ([step(8, norm="31042.1"), step(9, norm="98110.4"), step(10, norm="224119.7")], "gradient_norm"),
        ([step(1), step(2, skipped=1), step(3)], "skipped"),
        ([*map(step, range(1, 20)), *(step(n, seconds=14.1) for n in range(20, 40))], "slower"),
    ],
)
def test_findings_of_the_steps(diagnose: Any, lines: list[str], symptom: str) -> None:
    code, out = diagnose(lines, "--json")
    (found,) = json.loads(out)["symptoms"]
    assert (code, found["id"].rpartition(".")[2]) == (1, symptom)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([step(1), step(2)], 0),
        ([step(99), step(100), "Error: something harmless at exit"], 0),
        ([step(1), "ValueError: no tokens"], 1),
        (["hello"], 1),
        ([""], 1),
        (["RuntimeError: CUDA error: out of memory", step(1), step(2)], 0),
        ([step(40, norm="nan"), step(21), step(22)], 0),
        ([step(40), step(41), step(21, norm="2"), step(22)], 0),
    ],
)
def test_exit_codes(diagnose: Any, lines: list[str], code: int) -> None:
    """0 is a run that goes on or ended well, and nothing else."""
    assert diagnose(lines)[0] == code


OOM = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.27 GiB. GPU 2 has a total capacity of 79.11"
    " GiB of which 2.10 GiB is free. Including non-PyTorch memory, this process has 76.99 GiB memory in use. Of the"
    " allocated memory 74.52 GiB is allocated by PyTorch, with 3.20 GiB allocated in private pools (e.g., CUDA Graphs),"
    " and 1.30 GiB is reserved by PyTorch but unallocated."
)


def test_the_numbers_of_an_out_of_memory_message() -> None:
    found = memory.read([OOM])
    assert found is not None
    assert (found.tried, found.total, found.free, found.allocated) == (5.27, 79.11, 2.10, 74.52)
    assert (found.graphs, found.unused, round(found.missing, 2)) == (3.20, 1.30, 3.17)
    assert found.outside == pytest.approx(76.99 - 74.52 - 1.30)
    assert memory.read(["RuntimeError: CUDA error: out of memory"]) is None


def test_memory_is_compared_with_the_plan_and_every_edit_saves_enough(diagnose: Any, tmp_path: Path) -> None:
    text = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first\npin offload=none recompute=none\n"
    (tmp_path / "run.moe").write_text(text)
    _, out = diagnose([step(1), OOM], "--run", str(tmp_path / "run.moe"), "--json")
    (found,) = json.loads(out)["symptoms"]
    rows = {p["name"]: p for p in found["memory"]["against_plan"]}
    assert rows["tensors"]["measured"] == 74.52 and rows["tensors"]["above"] == pytest.approx(
        max(74.52 - rows["tensors"]["upper"], 0)
    )
    (attempt,) = found["runs"]
    offered = [attempt["compiled"], *attempt.get("others", [])]
    saved = [c["before"]["peak_gib"] - c["after"]["peak_gib"] for c in offered if c]
    times = [c["after"]["step_time_s"] for c in offered if c]
    assert saved and min(saved) >= 3.17 and times == sorted(times)
