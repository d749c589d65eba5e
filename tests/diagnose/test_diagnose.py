"""`moedsl diagnose` from the outside: logs of every kind, edits compiled on run files, JSON and exit codes."""

import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.diagnose import edit, scan
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.diagnose_cases import SEEN
from tests.helpers.paths import ROOT, example_path
from tests.helpers.tables import table_of

VPP = (
    "AssertionError: If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when"
    " pipeline_model_parallel_size > 1"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"
BLOCK = 1 << 20
STEP = "iteration 100/ 1000 | elapsed time per iteration (ms): 31310.1 | number of nan iterations: 0 |"
ALL = scan.symptoms(load_stdlib())


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["diagnose", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def log(folder: Path, *lines: str | bytes) -> str:
    path = folder / "run.log"
    path.write_bytes(b"\n".join(s if isinstance(s, bytes) else s.encode() for s in lines) + b"\n")
    return str(path)


def moe(folder: Path, text: str) -> str:
    """A run file in the folder of a test, where the test runs: by one name, so that a text is compiled once."""
    path = folder / "run.moe"
    path.write_text(text, encoding="utf-8")
    return path.name


def failed(rank: int, second: float, error: str) -> str:
    """The line that a rank of moedsl's jobs writes (launch/in_job/rank.py)."""
    return f"moedsl: rank {rank} on n{rank // 4} failed at 2026-11-23T12:00:{second:06.3f}+00:00: {error}"


def test_the_first_of_sixty_four_ranks_that_fail(run: Any, tmp_path: Path) -> None:
    """By their clocks: the output of several nodes arrives in any order."""
    lines = [failed(rank, 9 + rank / 100, "DistBackendError: NCCL communicator was aborted") for rank in range(64)]
    lines[37] = failed(37, 8.999, "ValueError: no tokens in /data/x")
    path = log(tmp_path, *lines[::-1], *["slurmstepd: error: *** STEP 1.1 CANCELLED ***", "Terminated"] * 20)
    _, out, _ = run(path, "--json")
    said = {
        "rank": 37,
        "node": "n9",
        "time": "2026-11-23T12:00:08.999+00:00",
        "error": "ValueError: no tokens in /data/x",
    }
    assert json.loads(out)["first_failure"] == said
    assert "\nfirst to fail: rank 37 on n9 at 2026-11-23T12:00:08.999+00:00: ValueError: no tokens" in run(path)[1]


def test_a_symptom_in_a_ranks_own_line_has_its_rank(run: Any, tmp_path: Path) -> None:
    code, out, _ = run(log(tmp_path, failed(5, 1, OOM)), "--json")
    (symptom,) = json.loads(out)["symptoms"]
    assert (symptom["ranks"], symptom["text"], code) == ([5], OOM, 1)


TORCHRUN = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
recipe.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-23_12:25:44
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 8579)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 8579
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_12:25:44
  host      : n1
  rank      : 5 (local_rank: 5)
  exitcode  : {code} (pid: 8580){more}
  error_file: {file}
  traceback : {traceback}
============================================================
"""


@pytest.mark.parametrize(
    ("code", "more", "file", "traceback", "error"),
    table_of("diagnose", "torchruns root cause"),
)  # fmt: skip
def test_torchruns_root_cause(
    code: str, more: str, file: str, traceback: str, error: str, run: Any, tmp_path: Path
) -> None:
    text = TORCHRUN.format(code=code, more=more, file=file, traceback=traceback)
    _, out, _ = run(log(tmp_path, text), "--json")
    first = json.loads(out)["first_failure"]
    assert (first["rank"], first["node"], first["error"]) == (5, "n1", error)


def test_a_failure_of_no_known_cause_is_not_fine(run: Any, tmp_path: Path) -> None:
    code, out, _ = run(log(tmp_path, failed(5, 1, "killed by SIGKILL")))
    assert code == 1
    assert "Its cause is not known." in out


def test_a_symptom_with_its_line_and_its_ranks(run: Any, tmp_path: Path) -> None:
    path = log(tmp_path, STEP, *(f"[rank{i}]: {OOM}" for i in (0, 1, 2, 5, 5)), STEP)
    code, out, _ = run(path)
    assert code == 0  # it went on
    assert f"{path}:2  torch.OutOfMemoryError" in out
    assert "on 5 lines, ranks 0-2, 5" in out
    assert all(word in out for word in ("std.memory_failures.out_of_memory", "cause", "confirm", "fix", "source"))


@pytest.mark.parametrize("prefix", ["[rank3]:[rank3]: ", "[default3]:", "3: ", "\x1b[31m[rank3]: \x1b[0m"])
def test_prefixes_and_colours(run: Any, tmp_path: Path, prefix: str) -> None:
    _, out, _ = run(log(tmp_path, prefix + VPP.replace("A2A", "\x1b[1mA2A\x1b[0m")), "--json")
    (found,) = json.loads(out)["symptoms"]
    assert found["ranks"] == [3]
    assert "\x1b" not in found["text"]
    assert found["text"].endswith("pipeline_model_parallel_size > 1")


def test_symptoms_come_in_the_order_of_the_log(run: Any, tmp_path: Path) -> None:
    watchdog = "[E ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"
    _, out, _ = run(log(tmp_path, OOM, watchdog), "--json")
    assert [s["id"].rsplit(".", 1)[1] for s in json.loads(out)["symptoms"]] == ["out_of_memory", "collective_timeout"]


def test_a_line_of_text_and_standard_input(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "overlap_without_vpp" in run(VPP)[1]
    stdin = io.TextIOWrapper(io.BytesIO(f"{STEP}\n{VPP}\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert "<stdin>:2" in run("-")[1]


def test_nothing_known_shows_the_last_error(run: Any, tmp_path: Path) -> None:
    noise = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    path = log(tmp_path, "Traceback (most recent call last):", "ZeroDivisionError: division by zero", STEP, noise)
    Path(path).write_bytes(Path(path).read_bytes().rstrip())  # the launcher's line has no end yet
    code, out, _ = run(path)
    assert code == 1
    assert "no known symptoms" in out and f"{path}:2" in out and "ZeroDivisionError: division by zero" in out
    assert "What to try" in out


def test_a_healthy_log(run: Any, tmp_path: Path) -> None:
    code, out, _ = run(log(tmp_path, STEP, STEP.replace("100/", "101/")))
    assert code == 0 and "training goes on without findings, at iteration 101 of 1,000" in out


@pytest.mark.parametrize(
    ("content", "id"), [(bytes(range(256)) * 40, "read.log"), (gzip.compress(VPP.encode() * 100), "read.log")]
)
def test_what_is_no_log(run: Any, tmp_path: Path, content: bytes, id: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    code, _, err = run(str(path))
    assert code == 1 and id in err


def test_missing_files_and_folders(run: Any, tmp_path: Path) -> None:
    assert "read.missing" in run(str(tmp_path / "none.log"))[2]
    assert "read.directory" in run(str(tmp_path))[2]
    assert "read.missing" in run(VPP, "--run", str(tmp_path / "none.moe"))[2]
    assert json.loads(run(str(tmp_path / "none.log"), "--json")[1])["diagnostics"][0]["id"] == "read.missing"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe broken \xc3\x28\n", b"a" * 3_000_000, b"\r\r\n"])
def test_strange_logs_are_read(run: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert run(str(path))[0] in (0, 1)


def test_a_word_across_two_blocks_is_found() -> None:
    text = (STEP + "\n") * 50 + OOM + "\n" + (STEP + "\n") * 50
    for size in (7, 64, 1000, 1 << 20):
        report = scan.diagnose("log", scan.blocks(io.BytesIO(text.encode()), size), ALL)
        assert [(s.line, s.rule.name) for s in report.sightings] == [(51, "out_of_memory")]
        assert report.lines == 101


def test_a_huge_log_is_not_held_in_memory() -> None:
    """Twelve blocks of 0.3 MB go through; the most that is held is a few of them."""
    block = ((STEP + "\n") * 3_000).encode()

    report, peak = peak_of(*[block] * 11, (OOM + "\n").encode())
    assert [s.rule.name for s in report.sightings] == ["out_of_memory"]
    assert peak < 8 * len(block)


def peak_of(*blocks: bytes) -> tuple[scan.Report, int]:
    """The report on a log that is read in these blocks, and the most bytes that were held."""
    left = iter(blocks)

    class Stream(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return next(left, b"")

    tracemalloc.start()
    report = scan.diagnose("log", scan.blocks(Stream()), ALL)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return report, peak


UNITS = [b"a", b"\x1b]", b"\x1b[", b"Error ChildFailedError ", b"NCCL error in: "]


@pytest.mark.parametrize("unit", rotation.some("long lines", UNITS, 1))
def test_one_line_of_any_length(unit: bytes) -> None:
    """It is read in parts, each of them once, however it is filled, and counts as one line."""
    report, peak = peak_of(*[unit * (BLOCK // len(unit))] * 10)
    assert report.lines == 1 and {(s.line, s.count) for s in report.sightings} <= {(1, 1)}
    assert peak < 8 * BLOCK


def test_lines_are_numbered_as_editors_do() -> None:
    """A long line is one, and so is a progress bar's, whose states carriage returns separate."""
    bar = (b"step 5 of 100000 \r" * 100_000 + OOM.strip().encode() + b"\r") * 2
    trace = b'\rTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    text = b"first\n" + bar + trace + b"last\n"
    assert len(bar) > scan.LONGEST
    for size in (1 << 14, BLOCK):
        report = scan.diagnose("log", scan.blocks(io.BytesIO(text), size), ALL)
        assert report.lines == text.count(b"\n") == 5
        (error,) = (e for e in report.errors if e.kind == "ValueError")
        assert (error.first_line, error.line) == (2, 4) and report.tail[-1].line == 5
        assert {(s.line, s.last_line, s.count) for s in report.sightings} == {(2, 2, 1)}


def test_a_log_of_a_launcher_s_errors_is_read_once() -> None:
    report, _ = peak_of(*[b"x ChildFailedError y\n" * (BLOCK // 21)] * 8)
    assert report.last_error is None and report.lines == 8 * (BLOCK // 21)


def test_a_symptom_that_a_backtracking_engine_never_ends(run: Any, tmp_path: Path) -> None:
    rules = 'rules ours { symptom as: "(a+)+$" confirm "x" fix "y" because "a test" cite ours "here" }\n'
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; seq 4k\n" + rules)
    assert "no known symptoms" in run(log(tmp_path, "a" * 3_000_000 + "!"), "--run", file)[1]
    assert "run.ours.as" in run(log(tmp_path, "a" * 3_000_000), "--run", file)[1]


def test_a_named_pipe_is_refused_and_a_pipe_of_the_shell_is_read(run: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, _, err = run(str(tmp_path / "pipe"))
    assert code == 1 and "read.special" in err and "| moedsl diagnose -" in err
    reading, writing = os.pipe()
    os.write(writing, VPP.encode())
    os.close(writing)
    assert "overlap_without_vpp" in run(f"/dev/fd/{reading}")[1]
    os.close(reading)


# ---------------------------------------------------------------- edits


def compiled(out: str) -> Any:
    (found,) = json.loads(out)["symptoms"]
    return found["runs"][0]["compiled"]


def test_an_edit_is_compiled_on_the_run_file(run: Any, tmp_path: Path) -> None:
    """The plan was made without VPP (a recipe turned overlap on): the edit changes that and nothing else.

    That it compiles is no proof of a cure."""
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first\npin pp=2 vpp=1 ep=8\n")
    data, text = (run(VPP, "--run", file, *json_)[1] for json_ in (["--json"], []))
    made = compiled(data)
    assert made["edit"] == "pin vpp=2" and made["all_else_as_before"]
    assert made["changes"] == {"vpp": {"before": 1, "after": 2}}
    assert "compiles main: `pin vpp=2`, all else as before: vpp 1 -> 2" in text
    assert not any("proof" in out or "prove" in out for out in (data, text))


def test_an_edit_for_a_file_that_does_not_compile(run: Any, tmp_path: Path) -> None:
    text = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first\npin pp=2 vpp=1 ep=8 ep_overlap=on\n"
    made = compiled(run(VPP, "--run", moe(tmp_path, text), "--json")[1])
    assert made["before"] is None and made["layout"]["vpp"] == 2


def test_edits_that_do_not_help_say_why(run: Any, tmp_path: Path) -> None:
    """The file refuses the first edit, so the second is taken and the first's refusal is told."""
    text = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first\npin pp=2 vpp=1 ep=8\nrequire vpp != 2\n"
    _, out, _ = run(VPP, "--run", moe(tmp_path, text), "--json")
    (attempt,) = json.loads(out)["symptoms"][0]["runs"]
    assert attempt["compiled"]["edit"] == "pin vpp=3"
    assert list(attempt["failures"]) == ["pin vpp=2"] and "`vpp != 2`" in attempt["failures"]["pin vpp=2"]


def test_no_number_format_is_a_cure_of_a_run_in_bf16(run: Any, tmp_path: Path) -> None:
    nan, fp8 = (
        "learning rate: 2.0E-04 | number of nan iterations:   1 |",
        "Device compute capability 10.0 or higher required for MXFP8",
    )
    text = "qwen3_30b_a3b; b200 x 16; seq 4k; batch 1024"
    assert compiled(run(nan, "--run", moe(tmp_path, text), "--json")[1])["edit"] == "set optimizer.lr = 0.0001"
    assert "precision != bf16: the log is of another run" in run(fp8, "--run", moe(tmp_path, text))[1].replace(
        "\n           ", " "
    )
    file = moe(tmp_path, f"{text}; precision mxfp8")
    assert compiled(run(nan, "--run", file, "--json")[1])["edit"] == "precision bf16"
    assert compiled(run(fp8, "--run", file, "--json")[1]) is not None


@pytest.mark.parametrize(("when", "is_of"), [("capability >= 9.0", True), ("has_vision or experts < 2", False)])
def test_the_condition_of_a_symptom_reads_every_name(run: Any, tmp_path: Path, when: str, is_of: bool) -> None:
    rules = (
        f'rules ours when {when} {{ symptom s: "some words" fix "`pin micro_batch=2`" because "a" cite ours "b" }}\n'
    )
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024\n" + rules)
    assert (compiled(run("some words", "--run", file, "--json")[1]) is not None) == is_of


@pytest.mark.parametrize(("name", "details"), table_of("diagnose", "what a message names is in the answer"))
def test_what_a_message_names_is_in_the_answer(run: Any, name: str, details: dict[str, str]) -> None:
    (found,) = json.loads(run(SEEN[name], "--json")[1])["symptoms"]
    assert found["id"].endswith(f".{name}") and found["details"] == details
    assert all(f"{key.replace('_', ' ')} {value}" in run(SEEN[name])[1] for key, value in details.items())


def test_no_edit_helps(run: Any, tmp_path: Path) -> None:
    text = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first\npin pp=2 vpp=1 ep=8\nrequire pp == 2 and vpp == 1\n"
    code, out, _ = run(VPP, "--run", moe(tmp_path, text))
    assert code == 1 and "none     main: `pin vpp=2`: " in out


def test_memory_goes_down_where_memory_was_short(run: Any, tmp_path: Path) -> None:
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first\npin cuda_graph=none\n")
    made = compiled(run(OOM, "--run", file, "--json")[1])
    assert made["after"]["peak_gib"] < made["before"]["peak_gib"]


@pytest.mark.parametrize("name", rotation.some("no more memory", ["offload_activations", "vlm_gb200_3d"], 1))
def test_no_edit_of_a_lack_of_memory_needs_more(run: Any, name: str) -> None:
    """Another recomputation may hold more, or go with another layout: then it is no way out, and that is said."""
    _, out, _ = run(OOM, "--run", str(example_path(name)), "--json")
    (attempt,) = json.loads(out)["symptoms"][0]["runs"]
    made = attempt["compiled"]
    assert made is None or made["after"]["peak_gib"] < made["before"]["peak_gib"]
    assert made is not None or any("not below" in why for why in attempt["failures"].values())


@pytest.mark.parametrize("name", ["host_oom", "shm_full", "worker_killed"])
def test_a_lack_of_the_hosts_memory_asks_for_no_smaller_peak_of_the_gpu(run: Any, tmp_path: Path, name: str) -> None:
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; fit first\n")
    (attempt,) = json.loads(run(SEEN[name], "--run", file, "--json")[1])["symptoms"][0]["runs"]
    assert attempt["compiled"]["edit"] == "set dataset.num_workers = 1"


def test_the_ways_out_of_a_lost_job_compile(run: Any, tmp_path: Path) -> None:
    text = 'qwen3_30b_a3b; h100 x 16; fit first; data "/d"; set checkpoint.save = "/c"\n'
    for name in ("time_limit", "preempted"):
        (attempt,) = json.loads(run(SEEN[name], "--run", moe(tmp_path, text), "--json")[1])["symptoms"][0]["runs"]
        assert attempt["compiled"]["edit"] == "resilience preemption"


def test_a_symptom_of_ones_own_may_be_a_lack_of_memory(run: Any, tmp_path: Path) -> None:
    """By its name; a symptom of another name takes the edit whatever its peak."""
    text = (
        "qwen3_30b_a3b; gb200 x 16; seq 4k; batch 1024; fit first; pin micro_batch=1 pp=1 tp=1 cp=1 ep=8 recompute=none"
    )
    rule = 'rules site {{ symptom {}: "cgroup killed" fix "`pin micro_batch=2`" because "x" cite seed "y" }}\n'
    for name, compiles in (("host_memory", False), ("killed", True)):
        found = run("cgroup killed it", "--run", moe(tmp_path, text + "\n" + rule.format(name)), "--json")[1]
        assert (compiled(found) is not None) == compiles, found


@pytest.mark.parametrize(("gpu", "total", "says"), table_of("diagnose", "a log of another gpu is remarked", none="-"))
def test_a_log_of_another_gpu_is_remarked(run: Any, tmp_path: Path, gpu: str, total: str, says: str | None) -> None:
    """The totals are those that PyTorch prints of an H100 and a B200."""
    line = OOM.replace("79.1 GiB", f"{total} GiB of which 1.2 GiB is free")
    file = moe(tmp_path, f"qwen3_30b_a3b; {gpu}; seq 4k; batch 1024")
    (found,) = json.loads(run(line, "--run", file, "--json")[1])["symptoms"]
    assert says is None if "remark" not in found else says is not None and says in found["remark"]
    assert ("remark" in run(line, "--run", file)[1]) == (says is not None)


def ids(out: str) -> list[str]:
    return [s["id"].rpartition(".")[2] for s in json.loads(out)["symptoms"]]


NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, "


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([NCCL + "unhandled cuda error, NCCL version 2.27.3", "ncclUnhandledCudaError: Call to CUDA function failed.",
          "Last error:", "Cuda failure 2 'out of memory'"], ["nccl_cuda", "nccl_memory"]),
        ([NCCL + "unhandled cuda error", "Cuda failure 700 'an illegal memory access was encountered'"],
         ["nccl_cuda", "illegal_access"]),
        ([NCCL + "remote process exited or there was a network error, NCCL version 2.27.3"], ["nccl_error"]),
        ([NCCL + "internal error - please report this issue to the NCCL developers"], ["nccl_error"]),
        (["iteration 5/ 100 | lm loss: 2.1E+00 | number of nan iterations:   1 |"], ["nan_iterations"]),
        (["iteration 5/ 100 | lm loss: nan | number of nan iterations:  12 |"], ["nan_iterations"]),
    ],
)  # fmt: skip
def test_what_a_run_prints_is_told_apart(run: Any, tmp_path: Path, lines: list[str], found: list[str]) -> None:
    code, out, _ = run(log(tmp_path, STEP, *lines), "--json")
    assert code == 1 and ids(out) == found


def test_commentary_of_a_plan_is_no_change(run: Any, tmp_path: Path) -> None:
    """From 32k on a plan's batch is compared with 4K, which follows from the rest."""
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 64; seq 64k; throughput first\n")
    changed = compiled(run(OOM, "--run", file, "--json")[1])["changes"]
    assert changed and not [k for k, v in changed.items() if isinstance(v["before"], dict)]


def test_every_run_of_a_file_is_compiled(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All together once, and then each with its edit alone."""
    asked: list[str | None] = []

    def compiling(source: Source, run: str | None = None) -> Result:
        asked.append(run)
        return compile_source(source, run=run)

    monkeypatch.setattr(edit, "compile_source", compiling)
    _, out, _ = run("disable full recomputation when enabling overlap_moe_expert_parallel_comm", "--run",
                    str(ROOT / "examples/several_runs.moe"), "--json")  # fmt: skip
    assert [r["run"] for r in json.loads(out)["symptoms"][0]["runs"]] == ["bring_up", "scale_out", "tuned"]
    assert asked[0] is None and {*asked[1:]} == {"fixed"}


@pytest.mark.parametrize(
    "several", rotation.some("several", ["sweep micro_batch in 2, 1", "isolate micro_batch in 2, 1"], 1)
)
def test_a_run_of_several_plans_takes_an_edit(run: Any, tmp_path: Path, several: str) -> None:
    file = moe(tmp_path, f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; {several}")
    made = compiled(run("learning rate: 2.0E-04 | number of nan iterations:   1 |", "--run", file, "--json")[1])
    assert made is not None and made["edit"] == "set optimizer.lr = 0.0001"


def test_a_long_line_is_cut_around_what_matched(run: Any, tmp_path: Path) -> None:
    times = " | ".join(f"timer {i} (ms): 8123.4" for i in range(40))
    line = f"iteration 38/ 100 | {times} | number of nan iterations:   1 | {times}"
    (found,) = json.loads(run(log(tmp_path, f"[rank3]: {line}"), "--json")[1])["symptoms"]
    assert found["text"].startswith("iteration 38/ 100 | timer 0 (ms)") and len(found["text"]) <= scan.SHOWN + 5
    assert " ... number of nan iterations:   1 | timer 0" in found["text"]


@pytest.mark.parametrize(
    "given, shown, edit", table_of("diagnose", "a smaller learning rate is below the present one", none="-")
)
def test_a_smaller_learning_rate_is_below_the_present_one(
    run: Any, tmp_path: Path, given: str, shown: str | None, edit: str | None
) -> None:
    """That of the run file, else the last that the log shows; without either there is no edit."""
    file = moe(tmp_path, f"qwen3_30b_a3b; b200 x 16; seq 4k; batch 1024; {given}")
    rate = f"learning rate: {shown} | " if shown else ""
    lines = [f"iteration {i}/ 100 | {rate}number of nan iterations:   0 |" for i in (1, 2)]
    nan = "AssertionError: Rank 3: found NaN in local grad norm for bucket #0"
    made = compiled(run(log(tmp_path, *lines, nan), "--run", file, "--json")[1])
    assert (made and made["edit"]) == edit


def test_a_run_file_may_declare_symptoms(run: Any, tmp_path: Path) -> None:
    rules = (
        'rules ours { symptom quota: "Disk quota exceeded" confirm "quota -s" fix "`pin micro_batch=1`"\n'
        ' because "a test" cite ours "here" }\n'
    )
    file = moe(tmp_path, "qwen3_30b_a3b; h100 x 16; seq 4k\n" + rules)
    code, out, _ = run("OSError: [Errno 122] Disk quota exceeded", "--run", file)
    assert code == 1 and "run.ours.quota" in out


def test_a_wrong_pattern_is_a_mistake_of_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rules = 'rules ours { symptom quota: "(unclosed" confirm "x" fix "y" because "a test" cite ours "here" }\n'
    assert main(["check", moe(tmp_path, "qwen3_30b_a3b; h100 x 16\n" + rules)]) == 1
    assert "check.pattern" in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["error (?=in rank)", r"(\\w+) \\1", "(?<!no )error", "a{2000}"])
def test_a_pattern_that_needs_backtracking_has_a_way_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pattern: str
) -> None:
    rules = f'rules ours {{ symptom quota: "{pattern}" confirm "x" fix "y" because "a test" cite ours "here" }}\n'
    assert main(["check", moe(tmp_path, "qwen3_30b_a3b; h100 x 16\n" + rules)]) == 1
    err = capsys.readouterr().err
    assert "check.pattern" in err and "RE2 has no lookahead" in err


def test_a_pattern_that_cannot_be_searched_is_not_dropped(run: Any, tmp_path: Path) -> None:
    rules = 'rules ours { symptom quota: "(unclosed" confirm "x" fix "y" because "a test" cite ours "here" }\n'
    code, out, err = run(OOM, "--run", moe(tmp_path, "qwen3_30b_a3b; h100 x 16\n" + rules), "--json")
    assert code == 1 and "check.pattern" in err and '"(unclosed"' in err
    assert [d["id"] for d in json.loads(out)["diagnostics"]] == ["check.pattern"]


def blocks_of(text: str, size: int) -> Iterator[bytes]:
    return scan.blocks(io.BytesIO(text.encode()), size)


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_blocks_end_with_lines_and_lose_nothing(size: int) -> None:
    text = "one\ntwo\n\nthree without an end"
    parts = list(blocks_of(text, size))
    assert b"".join(parts) == text.encode()
    assert all(p.endswith(b"\n") for p in parts[:-1])


@pytest.mark.parametrize("between", [b"x" * 100_000 + b" ", b"\r 37%|####  |", b" word" * 9000])
def test_an_error_inside_one_long_line_is_found(between: bytes, tmp_path: Path, run: Any) -> None:
    many = between * (9_000_000 // len(between))
    path = log(tmp_path, many + OOM.encode() + many)
    code, out, _ = run(path)
    assert code == 1 and "std.memory_failures.out_of_memory" in out
