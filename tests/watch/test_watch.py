"""`moedsl watch`: logs that grow, are cut or rotated, end, and restart; what is printed, and the page."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moedsl.cli.commands import results as watch_command
from moedsl.cli.main import main
from moedsl.compiler import load_stdlib
from moedsl.diagnose import log_lines
from moedsl.diagnose.scan import Scan, symptoms
from moedsl.launch.store import Job
from moedsl.runs import watch_logs
from moedsl.runs.watch import view
from moedsl.runs.watch_logs import Paths, Reading, Watched, source
from tests.cli.test_imports import HEAVY, imported
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT

Json = dict[str, Any]
RUN = "qwen3_30b_a3b; gb200 x 8; seq 4k; batch 64; fit first"
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB\n"
BEGIN = datetime(2026, 11, 20, 10)
CLOCK = f"[before the start of training step] datetime: {BEGIN} \n"
NVRX = ("WARNING:megatron.bridge.NVRxStragglerDetection:STRAGGLER DETECTION WARNING: Some GPUs have worse relative "
        "performance. Affected ranks: {StragglerId(rank=3, node='n1'), StragglerId(rank=2, node='n1')}\n")  # fmt: skip
CORE = "[2026-11-20 10:05:00] | MnRtt/Rnk: 2000.00ms/1 | MxRtt/Rnk: 2600.00ms/6 | MnPwr/Rnk: 300.00W/2\n"


def steps(
    first: int, last: int, after_s: float, of: int = 200, seconds: float = 2.0, every: int = 1, **more: str
) -> str:
    """Lines as Bridge prints them, of steps whose first begins so many seconds after `BEGIN`."""
    said = ""
    for n in range(first - 1 + every, last + 1, every):
        at = BEGIN + timedelta(seconds=after_s + (n - first + 1) * seconds)
        loss = more.get("loss", f"{12 - n / 100:.6E}")
        said += (f" [{at:%Y-%m-%d %H:%M:%S}] iteration {n:8d}/{of:8d} | consumed samples: {64 * n:12d} |"
                 f" elapsed time per iteration (ms): {1000 * seconds:.1f} | learning rate: 3.000000E-04 |"
                 f" global batch size:    64 |{f' lm loss: {loss} |' if loss else ''} loss scale: 1.0 | grad norm: 2.000 |"
                 f" number of skipped iterations:   0 | number of nan iterations:   0 |\n")  # fmt: skip
    return said


def saved(step: int) -> str:
    return f"  successfully saved checkpoint from iteration {step:7d} to /ckpt [ t 1/1, p 1/1 ]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "-e", RUN, "-o", "."]) == 0
    return tmp_path


@pytest.fixture
def follow(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Watched]:
    """Open a target once, and read what it has gained at each call."""
    capsys.readouterr()
    opened: dict[str, Paths] = {}

    def more(target: str = "train.log") -> Watched:
        if target not in opened:
            found = source(target, symptoms(load_stdlib()))
            assert isinstance(found, Paths), found
            opened[target] = found
        (run,) = opened[target].more()
        return run

    return more


def append(text: str, path: str = "train.log") -> None:
    with Path(path).open("a") as file:
        file.write(text)


def numbers(attempt: Iterable[log_lines.Step]) -> list[int]:
    return [s.iteration for s in attempt]


def age(seconds: float, path: str = "train.log") -> None:
    """Make a log as old as this."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def once(*words: str, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    assert main(["watch", *words, "--once", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return run


# ---------------------------------------------------------------- reading


def test_only_what_a_log_gains_is_read(follow: Callable[..., Watched]) -> None:
    append(CLOCK + steps(1, 5, 0) + " [2026-11-20 10:00:12] iteration        6/     200 | elapsed time per iter")
    run = follow()
    assert run.attempts()[0][-1].iteration == 5
    (log,) = run.logs.values()
    assert isinstance(log.feed, watch_logs.File)
    begun = log.feed.offset
    assert 0 < begun < os.path.getsize("train.log")  # the line without its end is read when it has one
    append("ation (ms): 2000.0 | global batch size:    64 | lm loss: 1.1E+01 |\n" + steps(7, 9, 12))
    (attempt,) = follow().attempts()
    assert numbers(attempt) == [*range(1, 10)]
    assert log.feed.offset == os.path.getsize("train.log")
    assert not list(log.feed.blocks(False))


def test_a_line_without_an_end_counts_after_a_minute(follow: Callable[..., Watched]) -> None:
    append(steps(1, 5, 0) + OOM.rstrip("\n"))
    assert not follow().logs["train.log"].scan.found
    age(100)
    assert follow().logs["train.log"].scan.found


def test_a_file_that_is_cut_or_replaced_is_read_from_its_start(follow: Callable[..., Watched]) -> None:
    append(steps(1, 20, 0))
    assert len(follow().attempts()) == 1
    Path("train.log").write_text(steps(11, 12, 100))
    assert [numbers(a) for a in follow().attempts()] == [[*range(1, 21)], [11, 12]]
    Path("train.log").rename("train.log.1")
    assert len(follow().attempts()) == 2  # no file for a moment
    append(steps(13, 30, 104))
    assert [a[-1].iteration for a in follow().attempts()] == [20, 30]


def test_of_a_huge_log_the_end_is_read(follow: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_logs, "LAST", 2000)
    append(steps(1, 200, 0, of=300))
    (attempt,) = follow().attempts()
    assert 190 < attempt[0].iteration < 200 and attempt[-1].iteration == 200
    monkeypatch.setattr(watch_logs, "LAST", 10)
    append(steps(201, 230, 400, of=300))
    assert follow().attempts()[0][-1].iteration == 230  # later calls read all that is new


def test_a_line_in_two_logs_counts_once(follow: Callable[..., Watched]) -> None:
    append(steps(1, 20, 0), "a.log")
    append(steps(1, 10, 0), "b.log")
    assert [numbers(a) for a in follow(".").attempts()] == [[*range(1, 21)]]
    append(steps(11, 30, 100), "c.log")
    assert [a[-1].iteration for a in follow(".").attempts()] == [20, 30]


@pytest.mark.bridge
def test_the_lines_are_those_of_nvidias_code() -> None:
    """The words in the installed files, and lines as those write them."""
    for package, file, words in (
        ("bridge", "training/checkpointing.py", "  successfully saved checkpoint from iteration {"),
        ("bridge", "training/checkpointing.py", "  successfully saved local checkpoint from iteration {step:7d}"),
        ("bridge", "training/nvrx_straggler.py", "Affected ranks: {rel_stragglers}"),
        ("bridge", "training/nvrx_straggler.py", "Affected ranks: {indiv_stragglers}"),
        ("training", "utils/log_utils.py", "[{string}] datetime: {time_str} "),
        ("core", "utils.py", "MnRtt/Rnk: {o_dt.min_elapsed} | "),
        ("core", "utils.py", "MxRtt/Rnk: {o_dt.max_elapsed} | "),
        ("core", "utils.py", "{self._value:.2f}{self._unit}/{self._rank}"),
    ):
        (folder,) = find_spec(f"megatron.{package}").submodule_search_locations  # type: ignore[union-attr, misc]
        assert words in (Path(folder) / file).read_text(), file
    assert log_lines.read_line(saved(20)) == log_lines.Saved(20)
    assert log_lines.read_line("  successfully saved local checkpoint from iteration      20") == log_lines.Saved(20)
    assert log_lines.read_line(CLOCK) == log_lines.Clock("2026-11-20 10:00:00")
    assert log_lines.read_line(NVRX) == log_lines.Slow({3: "n1", 2: "n1"}, None)
    assert log_lines.read_line(CORE) == log_lines.Slow({6: None}, 1.3)


KUBECTL = """#!/bin/bash
echo "$@" >> {folder}/asked
echo '[pod/a/node] 2026-11-20T10:00:01.5Z {first}'
[ "$(wc -l < {folder}/asked)" = 1 ] || echo '[pod/a/node] 2026-11-20T10:00:03.5Z {second}'
"""


def test_pods_are_asked_for_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text(
        KUBECTL.format(folder=tmp_path, first=steps(1, 1, 0).strip(), second=steps(2, 2, 2).strip())
    )
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    pods = watch_logs.pods("kubeflow://nemo_run/e___t___job", SimpleNamespace(namespace="default", num_nodes=1))
    log = Reading(Scan(()), feed=pods)
    log.more(whole=False)
    log.more(whole=False)
    assert [numbers(a) for a in log.attempts] == [[1, 2]]
    assert "--since-time=2026-11-20T10:00:01.5Z" in (tmp_path / "asked").read_text().splitlines()[1]


TWO_PODS = """#!/bin/bash
echo "$@" >> {folder}/asked
since=$(grep -o 'since-time=[^ ]*' <<< "$*" | cut -d= -f2)
print() {{ [[ "$1" < "$since" ]] || echo "[pod/$2/node] $1 $2 says $3"; }}
[ "$(wc -l < {folder}/asked)" = 1 ] || print 2026-11-20T10:00:01Z b first  # its node answers late
print 2026-11-20T10:00:02Z a first
[ "$(wc -l < {folder}/asked)" -lt 3 ] || print 2026-11-20T10:00:03Z a last
"""


def test_a_pod_whose_lines_arrive_late_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are older than those of another pod, which have been read."""
    (tmp_path / "kubectl").write_text(TWO_PODS.format(folder=tmp_path))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    pods = watch_logs.pods("kubeflow://nemo_run/e___t___job", SimpleNamespace(namespace="default", num_nodes=2))
    said = [b"".join(pods.blocks(False)).decode().splitlines() for _ in range(3)]
    assert said == [["[pod/a/node] a says first"], ["[pod/b/node] b says first"], ["[pod/a/node] a says last"]]
    assert "--since-time=2026-11-20T10:00:01Z" in (tmp_path / "asked").read_text().splitlines()[2]


# ---------------------------------------------------------------- what is known of a run


def test_speed_stands_next_to_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(CLOCK + steps(1, 50, 10))
    run = once("train.log", capsys=capsys)
    assert (run["name"], run["state"], run["iteration"], run["of"]) == ("main", "training", 50, 200)
    plan = json.loads(Path("plan.json").read_text())
    assert run["useful_tokens_per_s_per_gpu"] == pytest.approx(64 * 4096 / 2.0 / 8)
    assert run["useful_tokens_per_s"] == pytest.approx(64 * 4096 / 2.0)
    assert run["predicted"]["step_time_s"] == plan["estimate"]["step_time_s"]
    assert run["predicted"]["goodput"] == plan["checkpoints"]["goodput"]["trains"]
    assert run["left_s"] == pytest.approx(150 * 2.0)
    assert run["loss"] == {"now": 11.5, "at": 50, "before": 11.99, "before_at": 1}
    assert main(["watch", "train.log"]) == 0  # no terminal: once
    said = capsys.readouterr().out
    assert "50 of 200 (25.0%)" in said and "planned" in said and "5 min left" in said


def test_a_log_without_a_plan_has_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(steps(1, 5, 0))
    run = once(str(path), capsys=capsys)
    assert run["predicted"] is None and run["useful_tokens_per_s"] is None
    assert main(["watch", str(path)]) == 0
    assert "planned" not in capsys.readouterr().out


def test_goodput_is_the_share_of_steps_that_are_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10 s of start, 50 steps, 100 s to the restart, which trains the last 10 again; 20 s in a save."""
    append(CLOCK + steps(1, 40, 10) + saved(40) + steps(41, 50, 110) + steps(41, 60, 230))
    run = once("train.log", capsys=capsys)
    assert (run["attempts"], run["saves"]) == (2, [40])
    g = run["goodput"]
    assert g["elapsed_s"] == 10 + 80 + 20 + 20 + 100 + 40
    assert g["trains"] * g["elapsed_s"] == pytest.approx(40 * 2 + 20 * 2)
    assert g["repeats"] * g["elapsed_s"] == pytest.approx(10 * 2)
    assert g["returns"] * g["elapsed_s"] == pytest.approx(10 + 100)
    assert g["stops"] * g["elapsed_s"] == pytest.approx(20)
    assert main(["watch", "train.log"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "44.4% of 4.5 min" in said and "2 starts, 1 save, the last of step 40" in said


def test_lines_of_ten_steps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 100, 0, every=10))
    run = once("train.log", capsys=capsys)
    assert run["goodput"]["trains"] == pytest.approx(1.0)
    assert run["left_s"] == pytest.approx(200)


def test_a_run_that_is_complete(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 30, 0, of=30))
    age(9000)
    run = once("train.log", capsys=capsys)
    assert (run["state"], run["left_s"], run["alarms"]) == ("finished", None, [])


def test_alarms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 20, 0, seconds=60.0) + steps(21, 22, 1200, loss="") + OOM)
    age(9000)
    run = once("train.log", capsys=capsys)
    assert [alarm["id"] for alarm in run["alarms"]] == [
        "silent", "slow", "std.number_failures.nan_iterations", "std.memory_failures.out_of_memory",
    ]  # fmt: skip
    assert "iteration 21" in run["alarms"][2]["text"]
    assert run["state"] == "silent"
    assert main(["watch", "train.log"]) == 0
    said = capsys.readouterr().out
    assert "ALARM      silent" in said and "pin micro_batch=1" in said


def test_an_alarm_of_an_earlier_start_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 20, 0) + OOM, "one.log")
    age(900, "one.log")
    append(steps(11, 30, 900), "two.log")
    run = once(".", capsys=capsys)
    assert [(a["id"], a["earlier"]) for a in run["alarms"]] == [("std.memory_failures.out_of_memory", True)]
    assert main(["watch", "."]) == 0
    said = capsys.readouterr().out
    assert "earlier    std.memory_failures.out_of_memory" in said and "ALARM" not in said


def test_stragglers_by_node(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 3, 0) + NVRX + CORE + steps(4, 5, 6) + CORE + CORE.replace("2600", "2010"))
    nodes = once("train.log", capsys=capsys)["stragglers"]
    assert [(n["node"], n["ranks"], n["in_reports"], n["reports"], n["at_iteration"]) for n in nodes] == [
        ("node 1", [6], 2, 4, 5), ("n1", [2, 3], 1, 4, 3)
    ]  # fmt: skip
    assert main(["watch", "train.log"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "straggler node 1, rank 6, in 2 of 4 reports, the last after step 5: 1.30 times" in said


def job(state: str, number: int = 7) -> Job:
    return Job("e_0", f"main.{number}", f"slurm_tunnel://nemo_run/{number}", state, state, "")


@pytest.mark.parametrize(("states", "state"), [
    (["RUNNING"], "training"), (["FAILED", "RUNNING", "PENDING"], "training"), (["FAILED", "PENDING"], "waiting"),
    (["SUCCEEDED", "FAILED"], "ended"),
])  # fmt: skip
def test_the_state_follows_from_the_jobs(states: list[str], state: str, follow: Callable[..., Watched]) -> None:
    append(steps(1, 5, 0) + "ValueError: no such thing\n")
    run = follow()
    run.jobs = [job(s, n) for n, s in enumerate(states)]
    assert view(run)["state"] == state
    assert [a["id"] for a in view(run)["alarms"]] == ["unknown_error"] * (state == "ended")
    assert run.is_over == (state == "ended")


def test_the_silence_of_a_job_that_runs_counts(follow: Callable[..., Watched]) -> None:
    append(steps(1, 50, 0))
    follow()  # the clock runs from here on
    age(100)
    run = follow()
    assert view(run)["goodput"]["trains"] == pytest.approx(1.0)
    run.jobs = [job("RUNNING")]
    assert view(run)["goodput"]["trains"] == pytest.approx(0.5, abs=0.01)


# ---------------------------------------------------------------- the command


@pytest.fixture
def writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody who trains: a line every twentieth of a second, the last one when `watch` has looked twice."""
    looks = threading.Semaphore(0)

    def looked(seconds: float) -> None:
        looks.release()
        time.sleep(seconds)

    def write() -> None:
        for n in range(1, 31):
            if n == 30:
                looks.acquire(timeout=60)
                looks.acquire(timeout=60)
            append(steps(n, n, 2.0 * n, of=30))
            time.sleep(0.05)

    monkeypatch.setattr(watch_command, "time", SimpleNamespace(time=time.time, sleep=looked))
    append(CLOCK)
    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


@pytest.mark.usefixtures("writer")
def test_it_goes_on_until_the_run_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "train.log", "--every", "0.2", "--json"]) == 0
    said = [json.loads(text)["runs"][0] for text in capsys.readouterr().out.splitlines()]
    steps_seen = [run["iteration"] or 0 for run in said]
    assert len(said) > 2 and steps_seen == sorted(steps_seen)
    assert (said[-1]["state"], said[-1]["iteration"]) == ("finished", 30)


def test_a_terminal_shows_the_newest_text(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    append(steps(1, 30, 0, of=30))
    monkeypatch.setattr(watch_command.terminal, "room_of", lambda stream: 80)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["watch", "train.log"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("\x1b[H\x1b[J") and "finished" in said and max(map(len, said.splitlines())) <= 80


def test_the_page_loads_itself_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(steps(1, 30, 0) + OOM + "<script>alert(1)</script>\n")
    Path("mine.html").write_text("mine")
    assert main(["watch", "train.log", "--page", "mine.html"]) == 1
    assert "was not written by `moedsl watch`" in capsys.readouterr().err
    for _ in range(2):  # its own page is replaced
        assert main(["watch", "train.log", "--page", "run.html"]) == 0
    page = Path("run.html").read_text()
    assert '<meta http-equiv="refresh" content="15">' in page and page.count("<polyline") == 2
    assert "out_of_memory" in page and "<script" not in page


def test_an_old_log_says_nothing_new(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.log").write_text("")
    run = once("empty.log", capsys=capsys)
    assert (run["state"], run["iteration"], run["goodput"]) == ("waiting", None, None)
    assert main(["watch", "empty.log"]) == 0
    assert "no iteration line yet" in capsys.readouterr().out


def test_it_is_light(folder: Path) -> None:
    append(steps(1, 30, 0))
    assert imported("watch", "train.log", "--once") & HEAVY == set()


@pytest.mark.bridge
def test_bridges_own_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = [{"seconds": 2.0, "loss": 12 - i / 10, "grad_norm": 2.0} for i in range(20)]
    jobs = json.dumps([{"steps": each, "of": 40, "global_batch": 64, "peak": 73_240_000_000, "throughput": True}])
    made = bridge_process.run(str(ROOT / "tests/oracles/bridge_log.py"), text=jobs)
    assert made.returncode == 0, made.stderr[-2000:]
    append(json.loads(made.stdout)[0])
    run = once("train.log", capsys=capsys)
    assert (run["iteration"], run["of"], run["tflops_per_gpu"]) == (20, 40, 240.0)
    assert run["peak_gib"] == pytest.approx(73_240_000_000 / 2**30)
    assert run["step_time_s"]["median"] == pytest.approx(2.0, abs=1e-3)
