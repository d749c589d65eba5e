"""A run submitted from elsewhere: through SSH to a login node of a real Slurm, whose nodes see another folder."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fabric import Connection

from moedsl.cli.commands import launch as run_command
from moedsl.cli.commands import tune as tune_command
from moedsl.cli.main import main
from moedsl.launch import follow, nemo, preflight, script, store
from tests.helpers.tables import table_of
from tests.launch import ssh_server
from tests.launch.launches import Capture, Patch, unable
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import MOE
from tests.launch.test_slurm_jobs import PRINTS

CLUSTER = table_of("launch", "cluster behind ssh")
SAYS = """
import os
os.write(1, f"rank {os.environ['RANK']} in {os.environ['SLURM_JOB_ACCOUNT']}\\n".encode())
"""


SAVES = """
if os.environ["RANK"] == "7":
    os.write(1, b"  successfully saved checkpoint from iteration       4 to /ckpt [ t 1/1, p 1/1 ]\\n")
"""


@pytest.fixture
def laptop(slurm: Slurm, tmp_path: Path, monkeypatch: Patch) -> Iterator[ssh_server.Server]:
    """A machine that knows nothing of Slurm, and an SSH server on one that does."""
    if reason := ssh_server.why_not():
        unable(reason)
    with ssh_server.started(tmp_path / "ssh", slurm.environment) as server:
        monkeypatch.delenv("SLURM_CONF", raising=False)
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        monkeypatch.setenv("PATH", f"{server.programs}:{os.environ['PATH']}")
        monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / "laptop"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield server


def run_file(
    laptop: ssh_server.Server, folder: Path, gpus: int = 4, pins: str = "tp=2 pp=1 ep=2", **facts: object
) -> Path:
    """A run of `folder` whose jobs go through that server to `folder`/far, where `facts` do not say otherwise."""
    stated = {"python": sys.executable, "user": laptop.user, "port": laptop.port, "identity": laptop.identity}
    path = folder / "run.moe"
    path.write_text(MOE.format(gpus=gpus, pins=pins) + CLUSTER.format(**stated | {"job_dir": folder / "far"} | facts))
    return path


def test_a_run_through_ssh(laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    far, path = tmp_path / "far", run_file(laptop, tmp_path, 8, "tp=2 pp=2 ep=2")
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: SAYS + SAVES)
    assert main(["run", str(path), "--cluster", "far", "--no-preflight"]) == 0, capsys.readouterr().err
    id = capsys.readouterr().out.strip()
    assert main(["logs", id]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rank")]
    assert sorted(lines) == sorted([f"rank {rank} in acct" for rank in range(8)])
    title = id.rpartition("_")[0]
    assert len(list((far / title / id / title).glob("log*"))) == 1
    assert list((tmp_path / "laptop" / "clusters" / "far" / "experiments" / title / id / title).glob("log*")) == []
    assert main(["jobs", id]) == 0
    assert "SUCCEEDED" in capsys.readouterr().out
    assert main(["watch", id, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["state"], run["iteration"], run["saves"]) == ("finished", None, [4])
    assert main(["results", id]) == 1, "its program printed no iteration"
    (fetched,) = (tmp_path / "laptop").rglob("log-fetched.out")
    assert "rank 7 in acct" in fetched.read_text()


def test_a_run_opens_one_connection(
    laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """For the preflight, the files, the submission and the wait: a password is asked for once."""
    path = run_file(laptop, tmp_path)
    monkeypatch.setattr(preflight, "bridge", lambda *_: [])
    monkeypatch.setattr(script, "with_preflight", lambda payload, *_: payload)  # the nodes have no driver
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: SAYS)
    assert main(["run", str(path), "--cluster"]) == 0, capsys.readouterr().err
    assert (tmp_path / "ssh" / "log").read_text().count("Accepted publickey") == 1


def test_a_folder_that_takes_no_files_is_said(laptop: ssh_server.Server, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    path = run_file(laptop, tmp_path, job_dir=tmp_path / "file/far")
    assert main(["run", str(path), "--no-preflight", "--cluster"]) == 1
    said = capsys.readouterr().err
    assert "error[launch.refused]" in said and "Not a directory" in said
    assert main(["jobs"]) == 0
    assert "no experiments" in capsys.readouterr().out


def test_a_login_node_that_refuses_before_all_is_sent_says_why(laptop: ssh_server.Server, tmp_path: Path) -> None:
    """Its command ends while the archive is still on its way."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "large").write_bytes(os.urandom(30_000_000))
    (tmp_path / "file").touch()
    with Connection("127.0.0.1", laptop.user, laptop.port, connect_kwargs={"key_filename": str(laptop.identity)}) as on:
        on.open()
        with pytest.raises(OSError, match=r"is not writable: .*Not a directory"):
            nemo.copy_folder(on, str(tmp_path / "scripts"), str(tmp_path / "file/far"))


def test_two_laptops_that_share_a_folder_do_not_meet(
    laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """Both submit their first experiment of one title into one `job_dir`; each asks about its own."""
    path = run_file(laptop, tmp_path)

    def moedsl(home: str, *words: str) -> str:
        monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / home))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home / "state"))
        monkeypatch.setattr(run_command, "recipe_text", lambda plan: f"print('this is {home}')")
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    laptops = ("first", "second")
    made = [moedsl(home, "run", str(path), "--cluster", "--no-preflight").strip() for home in laptops]
    assert [id.rpartition("-")[0] for id in made] == [made[0].rpartition("-")[0]] * 2
    assert made[0] != made[1]
    for home, id in zip(laptops, made, strict=True):
        assert moedsl(home, "logs", id).count(f"this is {home}") == 4
        assert moedsl(home, "jobs").split()[:2] == [id, "SUCCEEDED"]


def test_a_login_node_that_does_not_answer_is_said(laptop: ssh_server.Server, tmp_path: Path, capsys: Capture) -> None:
    path = run_file(laptop, tmp_path, port=1)
    assert main(["run", str(path), "--no-preflight", "--cluster"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "error[launch.refused]" in said.err and "port 1" in said.err
    assert list((tmp_path / "laptop").rglob("experiments")) == []


def test_a_login_node_that_went_away_is_said(
    laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """And not taken for a bug; the list of experiments goes on behind it."""
    path = run_file(laptop, tmp_path)
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: SAYS)
    assert main(["run", str(path), "--cluster", "--no-preflight"]) == 0, capsys.readouterr().err
    id = capsys.readouterr().out.strip()
    laptop.stop()
    sessions, known = [*nemo._sessions.values()], Connection.is_connected.fget
    late = property(lambda one: any(one is s for s in sessions) or known(one))  # that they ended is not noticed at once
    monkeypatch.setattr(Connection, "is_connected", late)
    for asked in ("jobs", f"jobs {id}", f"logs {id}", f"logs {id} -f", f"cancel {id}", f"results {id}", f"watch {id}"):
        words = asked.split()
        code = main(words)
        said = capsys.readouterr()
        assert "error[launch.no_connection]" in said.err and f"{laptop.user}@127.0.0.1" in said.err, (words, said)
        assert code == int(words != ["jobs"]), words


def test_following_ends_where_ssh_does(
    laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    path, go = run_file(laptop, tmp_path), tmp_path / "go"
    ends = f"while not pathlib.Path({str(go)!r}).exists():\n time.sleep(0.1)\n"
    waits = f"import pathlib, time\nprint('waits', flush=True)\n{ends}"
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: waits)
    assert main(["run", str(path), "--cluster", "--no-preflight", "--detach"]) == 0, capsys.readouterr().err
    id = capsys.readouterr().out.strip()

    def stop_when_followed(lines: Iterable[str], *rest: Any) -> None:
        print_lines(written := [*lines], *rest)
        if "waits" in "".join(written):
            laptop.stop()

    print_lines = follow.print_lines
    monkeypatch.setattr(follow, "print_lines", stop_when_followed)
    assert main(["logs", id, "-f"]) == 1
    assert "error[launch.no_connection]" in capsys.readouterr().err
    go.touch()


def test_tune_through_ssh(laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Two jobs; the login node goes away once the third has ended, before its log is fetched. At first it does not come
    back; then it does while the same command waits."""
    path = run_file(laptop, tmp_path)
    monkeypatch.setattr(run_command, "recipe_text", lambda plan: PRINTS.format(steps=30, ms=2600.0))
    words = ["tune", str(path), "--cluster", "--no-preflight", "-o", str(tmp_path / "way"), "--stop", "0", "--json"]
    assert main([*words, "--budget", "2"]) == 0, capsys.readouterr().err
    assert [t["row"]["status"] for t in json.loads(capsys.readouterr().out)["tries"]] == ["ok", "ok"]

    def then_gone(*given: Any) -> list[store.Job]:
        jobs = wait(*given)
        laptop.stop()
        monkeypatch.setattr(follow, "wait", wait)
        return jobs

    wait = follow.wait
    monkeypatch.setattr(follow, "wait", then_gone)
    monkeypatch.setattr(nemo, "PAUSES_S", (0.0, 0.0))
    assert main([*words, "--budget", "3"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["diagnostics"][0]["id"] == "launch.no_connection"
    assert said.err.count("trying again in") == 2
    *_, last = json.loads((tmp_path / "way" / "journal.json").read_text())["tries"]
    assert last["id"] and last["row"] is None

    laptop.start()
    monkeypatch.setattr(follow, "wait", then_gone)
    monkeypatch.setattr(tune_command, "time", SimpleNamespace(sleep=lambda _: laptop.start()))
    assert main([*words, "--budget", "3"]) == 0, capsys.readouterr().err
    assert [t["row"]["status"] for t in json.loads(capsys.readouterr().out)["tries"]] == ["ok"] * 3


def test_a_login_node_that_lets_nobody_in_is_said(
    laptop: ssh_server.Server, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """The key is of somebody else, and the server takes no password."""
    path = run_file(laptop, tmp_path, identity=tmp_path / "ssh" / "host")
    monkeypatch.setattr(preflight, "bridge", lambda *_: [])
    for more in ([], ["--no-preflight"]):
        assert main(["run", str(path), "--cluster", *more]) == 1
        said = capsys.readouterr().err
        assert "no connection to 127.0.0.1" in said and "it accepts neither a key nor a password" in said
        assert "ssh-add" in said
