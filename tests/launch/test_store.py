"""What is kept of experiments, where no scheduler has to be asked; and a Ctrl-C while one is asked ends the wait."""

import errno
import io
import os
import pwd
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import invoke
import pytest

from moedsl.bridge.verify import environments
from moedsl.cli.main import main
from moedsl.launch import executors, kubeflow, store, submit
from moedsl.launch.follow import reraising_interrupt
from moedsl.launch.nemo import whole_files
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_rules import user_file
from moedsl.support import resources
from tests.helpers.alone import alone
from tests.launch import slurm_launch
from tests.launch.launches import Capture, Patch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / "nemo"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "nemo"


def kept(home: Path, id: str) -> None:
    (home / "experiments" / id.rpartition("_")[0] / id).mkdir(parents=True)


def test_an_unknown_id_is_met_with_the_nearest(home: Path, capsys: Capture) -> None:
    kept(home, "qwen3_30b_0")
    for words in (["jobs", "qwen3_30b_1"], ["logs", "qwen3_30b_1"], ["cancel", "qwen3_30b_1"]):
        assert main(words) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert re.search(r"no experiment qwen3_30b_1 .*help: did you mean qwen3_30b_0\?", said.err, re.S)


def test_what_was_ended_before_it_was_written_is_said(home: Path, capsys: Capture) -> None:
    kept(home, "qwen3_30b_0")
    assert main(["jobs", "qwen3_30b_0"]) == 1
    assert "was killed before _CONFIG was written" in capsys.readouterr().err
    assert main(["jobs"]) == 0


@pytest.mark.parametrize("text", ["", "{", "eJy", "bm90IHpsaWI="])
def test_a_file_that_is_not_whole_is_said(home: Path, capsys: Capture, text: str) -> None:
    """Of one experiment: the others are listed."""
    kept(home, "run_0")
    (home / "experiments" / "run" / "run_0" / "_CONFIG").write_text(text)
    assert main(["jobs"]) == 0
    assert "NeMo-Run's files of run_0 cannot be read: " in capsys.readouterr().err


def test_an_experiment_whose_kubeconfig_is_missing_is_said(home: Path, capsys: Capture, monkeypatch: Patch) -> None:
    """Of Kubernetes: NeMo-Run reads the kubeconfig when it reads the experiment. The others are listed."""
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    of_nemo = store.nemo_run()
    with kubeflow.offline():
        made = of_nemo.Experiment("run", id="run_0", base_dir=str(home), executor=of_nemo.KubeflowExecutor())
        made._save_experiment()
    other = of_nemo.Experiment("run", id="run_1", base_dir=str(home))
    other._save_experiment()
    other._save_jobs()
    assert main(["jobs"]) == 0
    said = capsys.readouterr()
    assert re.match("run_1 .*\n$", said.out)
    assert "the kubeconfig of run_0 cannot be read: " in said.err
    assert main(["logs", "run_0"]) == 1
    assert "the kubeconfig of run_0 cannot be read: " in capsys.readouterr().err


def test_results_of_what_never_ran_are_not_empty(home: Path, capsys: Capture) -> None:
    made = store.nemo_run().Experiment("run", id="run_0", base_dir=str(home))
    made._save_experiment()
    made._save_jobs()
    assert main(["results", "run_0"]) == 1
    assert "run_0 has no log: none of its jobs has started" in capsys.readouterr().err
    (home / "experiments" / "run" / "run_0" / "_CONFIG").write_text("")
    assert main(["results", "run_0"]) == 1
    assert "NeMo-Run's files of run_0 cannot be read" in capsys.readouterr().err


def test_what_is_kept_of_an_experiment_is_written_whole(home: Path, monkeypatch: Patch) -> None:
    """NeMo-Run opens a file and then thinks of what to write; one that is ended in between leaves no empty file."""

    def ended() -> None:
        raise KeyboardInterrupt

    made = store.nemo_run().Experiment("run", id="run_0", base_dir=str(home))
    with whole_files():
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(made, "to_config", ended)
            made._save_experiment()
        assert list((home / "experiments" / "run" / "run_0").iterdir()) == []
        made._save_experiment(exist_ok=True)
    assert sorted(path.name for path in (home / "experiments" / "run" / "run_0").iterdir()) == ["_CONFIG", "_VERSION"]


def test_homes_of_clusters_are_found_again(home: Path, tmp_path: Path) -> None:
    kept(home, "mine_0")
    kept(tmp_path / "shared", "far_0")
    assert set(store.known()) == {"mine_0"}
    with pytest.MonkeyPatch.context() as submitting:
        submitting.setenv("NEMORUN_HOME", str(tmp_path / "shared"))  # as NeMo-Run has it when it submits there
        store.remember_home(tmp_path / "shared")
        store.remember_home(tmp_path / "shared")
    assert (tmp_path / "state" / "moedsl" / "homes").read_text() == f"{tmp_path}/shared\n"
    assert store.known() == {"mine_0": home, "far_0": tmp_path / "shared"}
    assert store.known_homes() == [home, tmp_path / "shared"]
    (tmp_path / "shared").rename(tmp_path / "moved")
    assert store.known_homes() == [home], "what is gone is not looked through, and no sentence names it"


def test_an_experiment_that_goes_while_others_are_listed(home: Path, monkeypatch: Patch) -> None:
    """As that of a launch which the scheduler refuses."""
    kept(home, "run_0")
    kept(home, "run_1")

    def known() -> Iterator[Path]:
        yield home
        (home / "experiments" / "run" / "run_0").rmdir()

    monkeypatch.setattr(store, "known_homes", known)
    assert "run_1" in store.known()


def test_ids_with_a_mark_and_without_are_found(home: Path, capsys: Capture) -> None:
    kept(home, "qwen3_30b_0")
    kept(home / "clusters" / "lab", "qwen3_30b_0-k7f3qx")
    store.remember_home(home / "clusters" / "lab")
    assert set(store.known()) == {"qwen3_30b_0", "qwen3_30b_0-k7f3qx"}
    assert main(["jobs", "qwen3_30b_0-k7f3qy"]) == 1
    assert "did you mean qwen3_30b_0-k7f3qx?" in capsys.readouterr().err


def test_a_mark_is_drawn_once_by_processes_that_ask_together(home: Path) -> None:
    together = threading.Barrier(8)

    def ask(_: int) -> str:
        together.wait()
        return store.home_mark(home)

    with ThreadPoolExecutor(8) as pool:
        marks = set(pool.map(ask, range(8)))
    assert len(marks) == 1 and re.fullmatch(f"[{store.MARK_LETTERS}]{{{store.MARK_LENGTH}}}", marks.pop())
    assert [path.name for path in home.iterdir()] == [store.MARK_FILE]


def test_clusters_behind_ssh_have_lists_of_their_own(home: Path) -> None:
    """Both may give a job the same number."""
    first, second = (Cluster(name, "slurm", tunnel="ssh", host=name, job_dir="/runs") for name in ("lab", "cloud"))
    assert len({executors.home(first), executors.home(second), home}) == 3


@pytest.mark.parametrize(("name", "refused"), [("plain-1.2", False), ("two words", True), ("a;b", True), ("$x", True)])
def test_a_home_that_a_shell_would_read_is_refused(name: str, refused: bool) -> None:
    assert (store.home_refusal(Path("/data") / name) is not None) == refused


def test_launches_at_once_get_ids_of_their_own(home: Path) -> None:
    """As many threads as launches take an id at the same moment, and make NeMo-Run's folder while they hold it."""
    together = threading.Barrier(8)

    def launch(_: int) -> str:
        together.wait()
        with submit._reserved("run", home) as id:
            (home / "experiments" / "run" / id).mkdir()
            return id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(launch, range(8)))
    assert sorted(ids) == [f"run_{number}" for number in range(8)]
    assert sorted(path.name for path in (home / "experiments" / "run").iterdir()) == sorted(ids)


@alone
def test_a_signal_waits_for_the_submission() -> None:
    def work() -> None:
        for number in submit.SIGNALS:
            signal.raise_signal(number)  # blocked on the thread that submits
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.append(True)

    done: list[bool] = []
    with submit.deferred_signals() as signals:
        assert submit.run_without_signals(work) is None
    assert (signals, done) == ([signal.SIGINT], [True])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@alone
def test_a_signal_that_is_ignored_stays_so(monkeypatch: Patch) -> None:
    """As under nohup; and a terminal that went takes no message."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("sys.stderr", Gone())
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with submit.deferred_signals() as signals:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signals == [signal.SIGTERM]


def test_the_newest_experiments_are_listed(home: Path, capsys: Capture) -> None:
    """The number is read, and the folders, which hold nothing here, are looked at."""
    for number in range(3):
        kept(home, f"run_{number}")
    assert main(["jobs", "--last", "2"]) == 0
    assert capsys.readouterr().err.count("is incomplete: its launcher was killed before") == 2
    for wrong in ("0", "-1", "x", "1.5"):
        with pytest.raises(SystemExit):
            main(["jobs", "--last", wrong])
        assert "whole number" in capsys.readouterr().err


def a_task(home: Path) -> submit.Task:
    made = slurm_launch.planned(4, pins="tp=2 pp=1 ep=2")
    return made.task(home, slurm_launch.program("pass"), "only")


def test_a_folder_that_takes_no_file_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = submit.submit([a_task(home)], "run", tmp_path / "file" / "runs", print)
    assert done.why_not is not None and done.why_not.id == "launch.home"
    assert f"{tmp_path}/file/runs is not writable: Not a directory" in done.why_not.message
    assert store.known_homes() == [tmp_path / "file" / "runs"], "this process's own; no other process looks there"
    assert not (tmp_path / "state").exists()


def test_a_full_disk_leaves_nothing(home: Path, monkeypatch: Patch) -> None:
    """NeMo-Run has made the experiment's folder and finds no room for its files."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.nemo_run().Experiment, "_save_jobs", full)
    done = submit.submit([a_task(home)], "run", home, print)
    assert done.why_not is not None
    assert done.why_not.message == f"not submitted: {home} is not writable: No space left on device"
    assert list((home / "experiments" / "run").iterdir()) == []


INTERRUPTS = "sleep 0.5; kill -INT $PPID; sleep 0.5; echo asked"


@alone
def test_invoke_alone_keeps_it_to_itself() -> None:
    """Why `reraising_interrupt` is there: without it the question goes on as if nothing had been typed."""
    assert "asked" in invoke.Context().run(INTERRUPTS, hide=True, warn=True, in_stream=False).stdout


@pytest.mark.parametrize("command", [INTERRUPTS, f"{INTERRUPTS}; exit 3"], ids=["ends well", "fails"])
@pytest.mark.parametrize("warn", [True, False])
@alone
def test_a_question_that_is_interrupted_is_an_interruption(command: str, warn: bool) -> None:
    with pytest.raises(KeyboardInterrupt), reraising_interrupt():
        invoke.Context().run(command, hide=True, warn=warn, in_stream=False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_not_interrupted_is_as_it_was() -> None:
    with reraising_interrupt():
        assert invoke.Context().run("echo asked", hide=True, in_stream=False).stdout == "asked\n"
    with pytest.raises(invoke.exceptions.UnexpectedExit), reraising_interrupt():
        invoke.Context().run("exit 3", hide=True, in_stream=False)


@alone
def test_an_interruption_that_nobody_keeps_passes() -> None:
    with pytest.raises(KeyboardInterrupt), reraising_interrupt():
        os.kill(os.getpid(), signal.SIGINT)


def test_a_relative_home_is_ignored(monkeypatch: Patch) -> None:
    """Nothing is read or written below the working directory because of a variable; the XDG rules ignore such paths."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, "here")
    for name in ("HF_HOME", "HF_HUB_CACHE", "NEMORUN_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    cluster = Cluster("here", "local")
    used = (
        resources.cache_folder(),
        user_file(),
        environments.user_cache(),
        executors.home(cluster),
        store._homes_file(),
    )
    assert all(path.is_relative_to(home) for path in used), used
