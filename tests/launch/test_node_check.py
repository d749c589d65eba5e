"""The check of a job's nodes: what is judged, and the whole of it over processes that stand for nodes.

On a real Slurm, a node with a bad GPU is named, and left out by the next submission.
"""

import ast
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.cli.commands import launch as run_command
from moedsl.cli.main import main
from moedsl.launch import script
from moedsl.launch.in_job import node_check
from tests.helpers import bridge_process
from tests.helpers.tables import table_of
from tests.launch import shaped_network
from tests.launch.launches import Capture, Patch, unable
from tests.launch.shaped_network import Node
from tests.launch.slurm_launch import run_text

Json = dict[str, Any]
NAMES = ["n1", "n2", "n3", "n4"]
EXPECTED = {"gpus": 2, "network": 50e9, "nvlink": 450e9, "folder": "/ckpt"}


def report(i: int, **more: Any) -> Json:
    """What a good node of four says."""
    gpus = [{"name": f"GPU {n}", "driver": "580.65.06", "clock": "1980", "links": 18} for n in range(2)]
    pairs = {str(p): [45e9, 45e9] for p in node_check.partners(i, 4)}
    return {"node": NAMES[i], "problems": [], "gpus": gpus, "write": 2e9, "time": 1000.0, "joined": True, "backend": "nccl",
            "copies": [390e9, 390e9], "pairs": pairs, "ring": 40e9, **more}  # fmt: skip


def gpus_with(field: str, value: object) -> list[Json]:
    return [*report(0)["gpus"][:1], {**report(0)["gpus"][1], field: value}]


@pytest.mark.parametrize(("wrong", "text"), [
    ({}, None),
    ({"problems": ["GPU 1 has 4 uncorrected ECC errors"]}, "GPU 1 has 4 uncorrected ECC errors"),
    ({"gpus": gpus_with("driver", "570.1")}, "the driver of GPU 1 is 570.1, of most GPUs 580.65.06"),
    ({"gpus": gpus_with("clock", "1200")}, "the highest clock of GPU 1 is 1200, of most GPUs 1980"),
    ({"gpus": gpus_with("links", 12)}, "the number of NVLinks of GPU 1 is 12, of most GPUs 18"),
    ({"time": 1042.5}, "its clock is +42.5 s from that of most nodes"),
    ({"time": 998.9}, None),
    ({"pairs": {"0": [45e9, 10e9], "1": [45e9, 9e9]}},
     "it exchanges 10 GB/s with its neighbours through GPU 1, most nodes 45 GB/s"),
    ({"pairs": {"0": [10e9, 44e9], "1": [40e9, 9e9]}}, None),
    ({"copies": [390e9, 25e9]}, "GPU 1 copies 25 GB/s to GPU 0, most GPUs 390 GB/s"),
])  # fmt: skip
def test_a_node_that_differs_is_bad(wrong: Json, text: str | None) -> None:
    reports = {i: report(i, **(wrong if i == 2 else {})) for i in range(4)}
    assert list(node_check.judge(reports, NAMES, EXPECTED)) == [f"node n3 is bad: {text}"] * (text is not None)


def test_a_slow_network_is_bad_on_every_node() -> None:
    reports = {i: report(i, pairs={"0": [20e9]}) for i in range(4)}
    found = list(node_check.judge(reports, NAMES, EXPECTED))
    assert [line.split()[1] for line in found] == NAMES
    assert "it exchanges 20 GB/s with its neighbours, and its network has 50 GB/s" in found[0]
    on_cpus = {i: report(i, pairs={"0": [1e9 + i]}, copies=[], backend="gloo") for i in range(4)}
    assert not list(node_check.judge(on_cpus, NAMES, EXPECTED))


def test_slow_nvlink_is_bad_on_every_node() -> None:
    found = list(node_check.judge({0: report(0, copies=[100e9, 120e9])}, NAMES[:1], EXPECTED))
    assert found == [f"node n1 is bad: GPU {gpu} copies {rate} GB/s to GPU {1 - gpu}, and NVLink has 450 GB/s"
                     for gpu, rate in enumerate((100, 120))]  # fmt: skip


def test_copies_are_as_fast_as_another_clock_says() -> None:
    """Between two places in memory; PyTorch's own timer measures the same copy. The machine may be busy."""
    from torch.utils.benchmark import Timer

    size = 32 << 20
    setup = "import torch; a, b = torch.zeros(n // 4), torch.zeros(n // 4); a.copy_(b)"
    timer = Timer("a.copy_(b)", setup, globals={"n": size})
    seconds = min(timer.timeit(1).mean for _ in range(5))  # the quickest, as there
    rates = node_check.copies(["cpu", "cpu"], size, lambda: None)
    assert len(rates) == 2 and node_check.copies(["cpu"], size, lambda: None) == []
    assert all(0.1 < rate * seconds / size < 10 for rate in rates)


def test_a_node_without_an_answer_is_bad() -> None:
    parts = ("copies", "pairs", "ring", "backend")
    reports = {i: {k: v for k, v in report(i).items() if k not in parts} for i in (0, 1, 3)}
    assert list(node_check.judge(reports, NAMES, EXPECTED)) == ["node n3 is bad: it did not answer within 60 s"]


def test_a_network_that_hangs_names_those_who_wait() -> None:
    hung = [{k: v for k, v in report(i).items() if k not in ("pairs", "ring")} for i in range(4)]
    far = [{k: v for k, v in report(i).items() if k != "ring"} for i in range(4)]
    reports = {0: far[0], 1: far[1], 2: hung[2], 3: hung[3]}
    assert [line.partition(":")[0] for line in node_check.judge(reports, NAMES, EXPECTED)] == [
        "node n3 is bad", "node n4 is bad"
    ]  # fmt: skip
    assert list(node_check.judge(dict(enumerate(hung)), NAMES, EXPECTED)) == [
        "the network test ended on no node within 120 s"
    ]
    halfway = {**far[1], "pairs": {"0": [45e9, 45e9], "2": [45e9]}}  # a network of the second GPUs that hangs
    assert [line.partition(" with ")[0] for line in node_check.judge({**dict(enumerate(far)), 1: halfway}, NAMES, EXPECTED)] == [
        "node n2 is bad: its network test"
    ]  # fmt: skip
    hung[1]["joined"] = False  # its GPU never starts, and the others wait for it
    assert list(node_check.judge(dict(enumerate(hung)), NAMES, EXPECTED)) == [
        "node n2 is bad: it did not join the network test"
    ]


@given(st.integers(1, 70))
def test_neighbours_measure_each_other_at_the_same_time(world: int) -> None:
    """Each waits for the partner that is first in its own list: all are served."""
    left = {i: node_check.partners(i, world) for i in range(world)}
    assert all(i in left[p] for i in left for p in left[i])
    assert all(left.values()) or world == 1
    while any(left.values()):
        meet = [i for i in left if left[i] and left[left[i][0]][:1] == [i]]
        assert meet, left
        for i in meet:
            left[i] = left[i][1:]


@pytest.mark.parametrize(("text", "names"), [
    ("n1", ["n1"]), ("n[1-3,08],m4", ["n1", "n2", "n3", "n08", "m4"]), ("gpu-a[009-011]", ["gpu-a009", "gpu-a010", "gpu-a011"]),
    ("a,b[2,5]", ["a", "b2", "b5"]),
])  # fmt: skip
def test_a_list_of_nodes(text: str, names: Sequence[str]) -> None:
    assert node_check.nodes(text) == names


@pytest.fixture
def library(nvml: Path, monkeypatch: Patch) -> None:
    """The stand-in for the driver's library, which NVIDIA's pynvml loads."""
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml / "libnvidia-ml.so.1")))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


GOOD = "1980|0|4|0|0|18"


@pytest.mark.parametrize(("second", "text"), table_of("launch", "node check: a bad GPU", none="-"))
def test_a_bad_gpu(library: None, tmp_path: Path, monkeypatch: Patch, second: str | None, text: str) -> None:
    monkeypatch.setenv("STANDIN_NVML", ";".join([GOOD, *([second] if second else [])]))
    problems = node_check.own({"gpus": 2, "folder": str(tmp_path / "not" / "there")})["problems"]
    assert problems[:1] == [text] * bool(text)


def test_a_driver_that_fails(library: None, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("STANDIN_NVML_INIT", "9")
    assert node_check.own({"gpus": 2, "folder": str(tmp_path)})["problems"] == ["its driver fails: Driver Not Loaded"]


def test_what_is_compared_between_gpus(library: None, monkeypatch: Patch) -> None:
    monkeypatch.setenv("STANDIN_NVML", "2062|0|0|0|0|12;1980|0|0|0|0|18")
    assert list(node_check.gpus([])) == [
        {"name": "GPU 0", "driver": "580.65.06", "clock": 2062, "links": 12},
        {"name": "GPU 1", "driver": "580.65.06", "clock": 1980, "links": 18},
    ]


def test_an_image_without_pynvml_says_so(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    assert list(node_check.gpus([])) == []
    assert "the health of the GPUs of n7 is not checked: this image has no nvidia-ml-py" in capsys.readouterr().err


def test_a_file_system_that_hangs_is_not_waited_for() -> None:
    assert node_check.within(0.2, lambda: time.sleep(60) or 0.0) == "no answer within 0 s"


def test_an_old_python_reads_it() -> None:
    """The python3 of an image may be 3.8."""
    ast.parse(Path(node_check.__file__).read_text(encoding="ascii"), feature_version=(3, 8))


# ---------------------------------------------------------------- over processes


@pytest.fixture
def nodes(tmp_path: Path) -> Callable[..., tuple[list[int], str]]:
    """Run the check on processes of this machine, with shorter limits; the exit codes, and all that they print. They are
    forks of a process that has imported torch."""
    bridge_process.run("-c", "pass")  # it has started
    source = Path(node_check.__file__).read_text()
    for name, value in (("SECONDS = 120.0", "60.0"), ("JUDGED_S = 15.0", "5.0"), ("REPEATS = 5", "2")):
        assert name in source
        source = source.replace(name, f"{name.partition(' ')[0]} = {value}")
    (tmp_path / "check.py").write_text(source)
    expected = {"gpus": 0, "network": 50e9, "nvlink": 0, "folder": str(tmp_path)}
    (tmp_path / "check.json").write_text(json.dumps(expected))

    def run(names: str, present: Sequence[int], on: Sequence[Node] = (), **more: str) -> tuple[list[int], str]:
        own = {"SLURM_JOB_NODELIST": names, "SLURM_JOB_ID": str(os.getpid()), "MASTER_ADDR": "127.0.0.1", **more}
        words = ["-c", _RUN.format(folder=str(tmp_path)), str(tmp_path / "check.json")]
        each, logs = [], [tmp_path / f"node{i}.log" for i in present]
        for i, log in zip(present, logs, strict=True):
            network = {"NETWORK": on[i].namespace} if on else {}
            of_node = {**os.environ, **own, **network, "SLURM_NODEID": str(i), "SLURMD_NODENAME": f"n{i + 1}"}
            with log.open("wb") as err:
                each.append(bridge_process.Process(words, err, of_node))
        codes = [process.wait() for process in each]
        return codes, "".join(log.read_text() for log in logs)

    return run


_RUN = """
import os, sys, time
if "NETWORK" in os.environ:
    os.setns(os.open(os.environ["NETWORK"], os.O_RDONLY), os.CLONE_NEWNET)
sys.path.insert(0, {folder!r})
import check
check.devices = lambda count: ["cpu"] * int(os.environ.get("PLACES", "1"))
measured = check.copies  # in memory: nothing is known of its speed where other programs run
check.copies = lambda *given: [4e9 for rate in measured(*given) if rate > 0]
check.BYTES["gloo"] = int(os.environ.get("SENT", "512")) << 10
if os.environ.get("LATE") == os.environ["SLURMD_NODENAME"]:
    now = time.time
    time.time = lambda: now() + 30
code = check.main(sys.argv[1])
sys.stderr.flush()
os._exit(code)
"""
SHAPED = {"MASTER_ADDR": "10.0.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
FAST, SLOW = 100, 5
"""Megabits a second of a network of known speed."""


@pytest.fixture
def network() -> None:
    if reason := shaped_network.why_not():
        unable(reason)


def measured(pattern: str, said: str) -> float:
    """Megabits a second of a line that the check prints."""
    found = re.search(pattern + r" ([0-9.e+-]+) GB/s", said)
    assert found, said
    return 8000 * float(found[1])


def test_good_nodes_on_a_network_of_known_speed(network: None, nodes: Callable[..., tuple[list[int], str]]) -> None:
    """A sum over all nodes moves 2 (n - 1) / n of its bytes through each, as the counter of the network's card says.
    Between two nodes, gloo sends one way at a time, so that each gets half. Each node has two places for tensors.
    """
    with shaped_network.shaped([f"{FAST}mbit"] * 3) as on:
        codes, said = nodes("n[1-3]", [0, 1, 2], on, **SHAPED, SENT="4096", PLACES="2")
        sent = shaped_network.sent_bytes(on[0])
    assert codes == [0, 0, 0] and "moedsl: nodes are good: 3 in" in said and "is bad" not in said, said
    assert 0.4 * FAST < 2 * measured(r"slowest pair n\d and n\d with", said) < 1.05 * FAST, said
    assert 0.2 * FAST < measured("all_reduce", said) < 1.05 * FAST, said
    assert sent == pytest.approx(3 * (4 << 20) * (2 + 4 / 3), rel=0.08)  # twice to its neighbour, and in the sum
    assert measured("slowest copy between GPUs", said) == 32_000


def test_a_clock_that_is_wrong_and_a_slow_node(network: None, nodes: Callable[..., tuple[list[int], str]]) -> None:
    with shaped_network.shaped([f"{rate}mbit" for rate in (FAST, FAST, FAST, SLOW)]) as on:
        codes, said = nodes("n[1-4]", [0, 1, 2, 3], on, **SHAPED, LATE="n2")
    assert codes == [79] * 4 and said.count("is bad") == 2, said
    off = re.search(r"node n2 is bad: its clock is \+([\d.]+) s", said)
    assert off and abs(float(off[1]) - 30) < 1, said  # a busy machine answers late
    assert 0.4 * SLOW < 2 * measured("node n4 is bad: it exchanges", said) < 2 * SLOW, (
        said
    )  # with two bursts of 32 kB; of what a node sends last, a part may still be in its buffers
    assert 0.4 * FAST < 2 * measured("neighbours, most nodes", said) < 1.3 * FAST, said


def test_a_node_that_never_comes_costs_bounded_time(nodes: Callable[..., tuple[list[int], str]]) -> None:
    began = time.monotonic()
    codes, said = nodes("n[1-3]", [0, 1])
    assert codes == [79, 79] and "node n3 is bad: it did not answer within 30 s" in said, said
    assert time.monotonic() - began < 60 + 5


def test_one_node_measures_no_network(nodes: Callable[..., tuple[list[int], str]]) -> None:
    codes, said = nodes("n1", [0])
    assert codes == [0] and "all_reduce" not in said, said


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: Patch, login_node: Path, nvml: Path) -> Path:
    """A run of eight ranks on two nodes; its program prints where it runs. The third GPU of n2 has ECC errors."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml), prepend=":")
    monkeypatch.setenv("STANDIN_NVML", ";".join(["2062|0|0|0|0|18"] * 4))
    monkeypatch.setenv("STANDIN_NVML_n2", ";".join(f"2062|{errors}|0|0|0|18" for errors in (0, 0, 4, 0)))
    monkeypatch.setattr(script, "preflight_expectations", lambda plan, launch: {})
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: "import os\nprint('trains on', os.uname().nodename)")
    (tmp_path / "run.moe").write_text(run_text(8))
    return tmp_path / "run.moe"


def test_a_bad_node_is_named_and_left_out(run_file: Path, capsys: Capture) -> None:
    code = main(["run", str(run_file), "--cluster", "--exclude-bad"])
    said = capsys.readouterr()
    assert "moedsl preflight: node n2 is bad: GPU 2 has 4 uncorrected ECC errors" in said.err, said.err
    assert "n2: excluded from now on" in said.err
    assert code == 0, said.err
    bad, good = said.out.split()
    assert main(["diagnose", bad]) == 1
    assert "std.preflight_failures.preflight_node" in capsys.readouterr().out
    assert main(["logs", good]) == 0
    log = capsys.readouterr().out
    assert log.count("trains on") == 8
    assert "moedsl: nodes are good: 2 in" in log and "all_reduce" in log and "slowest pair n" in log


def test_without_the_word_the_job_ends(run_file: Path, capsys: Capture) -> None:
    run_file.write_text(run_text(8, "node_check on; launcher torchrun"))
    assert main(["run", str(run_file), "--cluster"]) == 1
    said = capsys.readouterr()
    assert "node n2 is bad" in said.err and len(said.out.split()) == 1


def test_the_word_needs_somebody_who_waits(run_file: Path, capsys: Capture) -> None:
    assert main(["run", str(run_file), "--cluster", "--exclude-bad", "--detach"]) == 1
    assert "error[launch.exclude_bad]" in capsys.readouterr().err
