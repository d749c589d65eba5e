"""The life of a TrainJob, from its post to its end, on an API server on loopback that runs its pods as processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.launch import kubeflow, store
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload
from moedsl.rules.check.cluster_facts import Cluster
from tests.helpers import bridge_process, forks
from tests.launch import launches
from tests.launch.kube_api import GROUP, Api, Pod
from tests.launch.launches import Patch, unable
from tests.launch.test_slurm_jobs import PRINTS

HERE = Path(__file__).resolve().parent

RANKS = """
import datetime, json, os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=9))
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, (dist.get_rank(), os.environ["NODE_RANK"] if "NODE_RANK" in os.environ else os.environ["GROUP_RANK"]))
if dist.get_rank() == 0:
    print("RANKS " + json.dumps({"ranks": ranks, "argv": sys.argv[1:], "note": os.environ["NOTE"], "token": os.environ["HF_TOKEN"]}), flush=True)
dist.barrier()
os._exit(0)  # gloo's threads abort where they are taken apart
"""
FAILS = "import os, sys\nsys.exit(7 if os.environ['RANK'] == '3' else 0)\n"
SAYS = "import os\nprint('rank', os.environ['RANK'], 'was here', flush=True)\n"
ONE_FAILS_FIRST = """
import atexit, os, pathlib, sys, time
mark = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "3":
    atexit.register(mark.touch)  # runs when the rank has said when it failed
    open("/data/corpus.idx")
while not mark.exists():
    time.sleep(0.1)
time.sleep(0.01)  # a rank's clock counts milliseconds
sys.exit("the others have gone")
"""
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n"
TOKEN = "it's $(HOME) a secret"
TORCHRUN = """
import os, subprocess, sys
at = next(i for i, word in enumerate(sys.argv) if word.endswith(".py") and i)
count, node = (int(os.environ[f"PET_{name}"]) for name in ("NPROC_PER_NODE", "NODE_RANK"))
ranks = [{"RANK": str(node * count + local), "LOCAL_RANK": str(local)} for local in range(count)]
processes = [subprocess.Popen([sys.executable, *sys.argv[at:]], env=os.environ | rank) for rank in ranks]
sys.exit(max([process.wait() for process in processes]))
"""
"""torchrun without torch, for programs that need no more of it than their ranks."""


class Shell:
    """The launching machine, as kube_driver.py, in a fork of this process: one import of NeMo-Run for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = {
            "NEMORUN_HOME": "home",
            "XDG_STATE_HOME": "state",
            "XDG_CONFIG_HOME": "config",
            "KUBECONFIG": "kubeconfig",
        }
        env = os.environ | {n: str(folder / d) for n, d in places.items()}
        (folder / "run.moe").write_text(launches.KUBE_RUN)
        store.nemo_run()  # imported before the fork
        self.err = (folder / "err").open("w+")
        words, pipe = [str(HERE / "kube_driver.py")], subprocess.PIPE
        self.process = forks.Process(words, env=env, cwd=folder, stdin=pipe, stdout=pipe, stderr=self.err, text=True)

    def ask(self, **asked: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, Path(self.err.name).read_text()[-3000:]
        return json.loads(line)

    @contextmanager
    def doomed(self, **asked: Any) -> Generator[None]:
        """Another process of this machine does it, and is killed at the end."""
        pid = self.ask(apart=True, **asked)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)

    def moedsl(self, *words: str) -> dict[str, Any]:
        return self.ask(words=words)

    def submit(self, program: str, *arguments: str) -> str:
        """The id of an experiment whose ranks run `program`."""
        done = self.ask(submit=program, arguments=arguments)
        assert done["code"] == 0, done
        return done["out"].split()[0]

    def state(self, id: str) -> str:
        done = self.moedsl("jobs", id, "--json")
        assert done["code"] == 0, done
        return json.loads(done["out"])["experiments"][0]["state"]

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        self.err.close()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Shell]]:
    """An API server, and a launching machine whose kubeconfig names it."""
    folder = tmp_path_factory.mktemp("kube")
    with Api(secrets={"tokens": {"HF_TOKEN": TOKEN}}) as server:
        server.kubeconfig(folder)
        (folder / "torch" / "distributed").mkdir(parents=True)
        for package in ("torch", "torch/distributed"):
            (folder / package / "__init__.py").touch()
        (folder / "torch" / "distributed" / "run.py").write_text(TORCHRUN)
        server.image = {"PYTHONPATH": str(folder)}
        shell = Shell(folder)
        try:
            yield server, shell
        finally:
            shell.close()


def pods(api: Api) -> list[Pod]:
    """Of the job that was posted last."""
    return api.pods[api.posted[-1]["metadata"]["name"]]


def wait_for(done: Callable[[], bool], lives: Api | None = None) -> None:
    """Waits, as long as a pod of that server's last job lives; else the test's own time limit ends a wait in vain."""
    while not done():
        over = lives is not None and all(p.code is not None for p in pods(lives))
        assert not over or done(), [p.log.read_text() for p in pods(lives)] if lives else ""
        time.sleep(0.2)


Machines = tuple[Api, Shell]


@pytest.fixture
def torchrun(machines: Machines, tmp_path: Path) -> Iterator[None]:
    """The real one; it and its ranks are forks of a process that has imported torch."""
    api, _ = machines
    bridge_process.python(tmp_path, "torch", "python3")
    kept, api.image = api.image, {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    yield
    api.image = kept


@pytest.fixture
def kubectl() -> None:
    """NeMo-Run and moedsl read pods' logs with it."""
    if not shutil.which("kubectl"):
        unable("kubectl is not installed: no log of a pod can be read")


def test_two_pods_of_two_ranks_meet(machines: Machines, kubectl: None, torchrun: None) -> None:
    """Posted as the dry run says; torchrun finds the four ranks; values and the secret arrive; the logs are read."""
    api, shell = machines
    values = list(launches.HARD.values())
    id = shell.submit(RANKS, *values)
    wait_for(lambda: all(p.code is not None for p in pods(api)))
    (line,) = [text for text in shell.moedsl("logs", id)["out"].splitlines() if "RANKS " in text]
    said = json.loads(line.partition("RANKS ")[2])
    assert [r for r, _ in said["ranks"]] == [0, 1, 2, 3]
    assert len({node for _, node in said["ranks"]}) == 2
    assert said["argv"] == values
    assert (said["note"], said["token"]) == ("two words", TOKEN)
    assert shell.state(id) == "SUCCEEDED"
    assert TOKEN not in json.dumps(api.posted)
    assert not [path for path in api.unknown if "trainjobs" in path]
    check_posted(api.posted[-1], *launches.kube_launched(), Payload({"recipe.py": RANKS}, arguments=tuple(values)))


def check_posted(posted: dict[str, Any], launch: Launch, cluster: Cluster, payload: Payload) -> None:
    """What was posted is what the dry run prints, but for the six digits of the name."""
    printed = kubeflow.manifest(evolve(launch, nodes=2, gpus_per_node=2, ranks_per_node=2), cluster, payload)
    name, drawn = printed["metadata"]["name"], posted["metadata"]["name"]
    assert name == drawn[:-6] + kubeflow.DIGITS
    assert json.loads(json.dumps(posted).replace(drawn, name)) == printed


def test_a_job_that_fails(machines: Machines, kubectl: None, torchrun: None) -> None:
    api, shell = machines
    id = shell.submit(FAILS)
    wait_for(lambda: any(p.code for p in pods(api)))
    assert shell.state(id) == "FAILED"
    assert "exitcode  : 7" in shell.moedsl("logs", id)["out"]


def test_the_first_rank_that_fails_and_its_cause(machines: Machines, kubectl: None, tmp_path: Path) -> None:
    """All four end with an error, in two pods; the clock of each rank says which was first."""
    _, shell = machines
    id = shell.submit(ONE_FAILS_FIRST, str(tmp_path / "rank 3 fails"))
    done = shell.ask(wait=id)
    assert done["code"] == 1, done
    assert re.search(r"first to fail: rank 3 on \S+ at \S+: FileNotFoundError: .*/data/corpus\.idx", done["err"])
    assert "(std.input_failures.data_missing)" in done["err"] and f"moedsl diagnose {id}" in done["err"]
    (log,) = json.loads(shell.moedsl("diagnose", id, "--json")["out"])["logs"]
    assert log["first_failure"]["rank"] == 3
    assert [s["id"] for s in log["symptoms"]] == ["std.input_failures.data_missing"]


def test_a_job_that_is_cancelled(machines: Machines) -> None:
    """Running, then deleted: NeMo-Run alone would call it pending for ever."""
    api, shell = machines
    id = shell.submit(WAITS)
    wait_for(lambda: any(b"waiting" in p.log.read_bytes() for p in pods(api)), api)
    assert shell.state(id) == "RUNNING"
    cancelled = shell.moedsl("cancel", id)
    assert cancelled["code"] == 0, cancelled
    assert api.deleted[-1] == api.posted[-1]["metadata"]["name"]
    assert all(p.code is not None for p in pods(api))
    assert shell.state(id) == "CANCELLED"


def test_a_job_that_the_server_refuses(machines: Machines) -> None:
    api, shell = machines
    api.refuse = 'admission webhook "validator.trainjob" denied the request: runtime not found'
    done = shell.ask(submit=WAITS, arguments=[])
    api.refuse = None
    assert done["code"] == 1
    assert "error[launch.refused]: not submitted: admission webhook" in done["err"]
    assert "runtime not found" in done["err"]
    assert "HTTP" not in done["err"]


def test_a_refusal_of_one_job_cancels_the_others(machines: Machines) -> None:
    api, shell = machines
    api.refuse = "exceeded quota: gpus"
    api.room.release()
    before = len(api.posted)
    done = shell.ask(submit=WAITS, arguments=[], count=2)
    api.refuse = None
    assert done["code"] == 1 and "exceeded quota" in done["err"]
    assert len(api.posted) == before + 1
    assert api.deleted[-1] == api.posted[-1]["metadata"]["name"]
    states = json.loads(shell.moedsl("jobs", done["out"].split()[0], "--json")["out"])["experiments"][0]["jobs"]
    assert sorted(job["state"] for job in states) == ["CANCELLED", "NOT SUBMITTED"]


def test_a_log_is_followed_from_pods_that_wait_to_the_jobs_end(machines: Machines, kubectl: None) -> None:
    """The pods start one after the other; kubectl alone ends at once where one of them has not."""
    api, shell = machines
    api.hold = "ImagePullBackOff"
    id = shell.submit(SAYS)
    first, second = pods(api)
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(shell.moedsl, "logs", id, "-f")
        asked = len(api.asked)
        wait_for(lambda: sum("/pods" in path for path in api.asked[asked:]) > 1)
        first.start()
        asked = len(api.asked)
        wait_for(lambda: sum("/pods" in path for path in api.asked[asked:]) > 1)
        assert not followed.done()
        second.start()
        done = followed.result()
    assert done["code"] == 0, done
    assert "waiting for 2 of 2 pods: ImagePullBackOff: as the test wants" in done["err"]
    assert "waiting for 1 of 2 pods: ImagePullBackOff" in done["err"]
    assert sorted(re.findall(r"rank \d was here", done["out"])) == [f"rank {rank} was here" for rank in range(4)]
    assert shell.state(id) == "SUCCEEDED"


def test_following_ends_with_a_job_that_never_started(machines: Machines, kubectl: None) -> None:
    api, shell = machines
    api.hold = "ContainerCreating"
    id = shell.submit(WAITS)
    name, asked = api.posted[-1]["metadata"]["name"], len(api.asked)
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(shell.moedsl, "logs", id, "-f")
        wait_for(lambda: sum("/pods" in path for path in api.asked[asked:]) > 1)
        api.delete(f"{GROUP}/namespaces/training/trainjobs/{name}")
        done = followed.result()
    api.hold = ""
    assert done["code"] == 1
    assert "CANCELLED" in done["err"]


def test_a_job_is_found_whose_launcher_was_killed_before_it_heard_of_it(machines: Machines) -> None:
    """The API server has taken the TrainJob and not answered yet."""
    api, shell = machines
    api.answers.clear()
    before = len(api.posted)
    with shell.doomed(submit=WAITS, arguments=[]):
        wait_for(lambda: len(api.posted) > before)
    api.answers.set()
    experiment, *_ = json.loads(shell.moedsl("jobs", "--json")["out"])["experiments"]
    (job,) = experiment["jobs"]
    assert (job["state"], job["number"]) == ("RUNNING", experiment["id"] + f"___{job['name']}___" + pods(api)[0].job)
    assert shell.moedsl("cancel", experiment["id"])["code"] == 0
    assert api.deleted[-1] == pods(api)[0].job
    assert shell.state(experiment["id"]) == "CANCELLED"


TUNED = launches.KUBE_RUN.replace("fit first", "throughput first")
WAY = ("tune", "tuned.moe", "--cluster", "--no-preflight", "--stop", "0", "--json", "--budget", "2")


def programs(before: str = "") -> dict[str, str]:
    """What ranks of each dispatcher run: a log of 30 steps, after `before`."""
    times = {"alltoall": 2600.0, "deepep": 2400.0, "hybridep": 2300.0}
    return {dispatcher: before + PRINTS.format(steps=30, ms=ms) for dispatcher, ms in times.items()}


def test_tune_goes_on_after_its_launcher_was_killed(machines: Machines, kubectl: None) -> None:
    """Killed while its first job runs: the same command waits for that job, and submits the second."""
    api, shell = machines
    (shell.folder / "tuned.moe").write_text(TUNED)
    go, before = shell.folder / "go", len(api.posted)
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.1)\n"
    with shell.doomed(words=WAY, programs=programs(waits)):
        wait_for(lambda: (shell.folder / "tuned_tune" / "journal.json").exists() and len(api.posted) > before)
    go.touch()
    done = shell.ask(words=WAY, programs=programs())
    assert done["code"] == 0, done
    data = json.loads(done["out"])
    assert [t["row"]["status"] for t in data["tries"]] == ["ok", "ok"]
    assert data["tries"][0]["row"]["step_time_s"]["median"] == pytest.approx(2.3, rel=0.01)
    assert data["stop"] == "the budget of 2 jobs is spent"
    assert len(api.posted) == before + 2


def test_tune_counts_no_job_whose_pods_are_gone(machines: Machines, kubectl: None) -> None:
    api, shell = machines
    (shell.folder / "tuned.moe").write_text(TUNED)
    api.forgets = True
    done = shell.ask(words=(*WAY, "-o", "gone"), programs=programs())
    api.forgets = False
    assert done["code"] == 1
    (said,) = json.loads(done["out"])["diagnostics"]
    assert said["id"] == "tune.no_log" and "its pods are gone" in said["message"]
    (t,) = json.loads((shell.folder / "gone" / "journal.json").read_text())["tries"]
    assert t["row"] is None and t["id"]
    (place,) = re.findall(r"save the log as (\S+)", " ".join(said["help"]))
    Path(place).write_text(pods(api)[0].log.read_text())
    done = shell.ask(words=(*WAY, "-o", "gone"), programs=programs())
    assert done["code"] == 0, done
    assert [t["row"]["status"] for t in json.loads(done["out"])["tries"]] == ["ok", "ok"]


def test_logs_of_pods_need_kubectl(machines: Machines) -> None:
    """Refused before anything is submitted; a job that runs goes on."""
    api, shell = machines
    (shell.folder / "tuned.moe").write_text(TUNED)
    id, before = shell.submit(WAITS), len(api.posted)
    for words in (WAY, ("results", id)):
        done = shell.ask(words=words, programs={}, path="")
        assert done["code"] == 1 and "launch.no_kubectl" in done["out"] + done["err"], done
    assert len(api.posted) == before
    assert shell.moedsl("cancel", id)["code"] == 0


@pytest.mark.parametrize("left", ["{}", "", '{"cut'])
def test_a_job_that_is_not_on_nemo_runs_list_is_put_back(machines: Machines, left: str) -> None:
    """Two launches at once write it back one over the other; a launcher that is killed may leave a part of it."""
    api, shell = machines
    id = shell.submit(WAITS)
    wait_for(lambda: shell.state(id) == "RUNNING", api)
    (list_,) = shell.folder.rglob(".kubeflow_jobs.json")
    list_.write_text(left)
    assert shell.state(id) == "RUNNING"
    list_.write_text(left)
    assert shell.moedsl("cancel", id)["code"] == 0
    assert api.deleted[-1] == pods(api)[0].job


def test_launches_at_once_are_all_on_nemo_runs_list(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each reads it, adds a job and writes it back."""
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path))  # taken back afterwards
    store.use_home(tmp_path)
    listed, executor = kubeflow.scheduler(), store.nemo_run().LocalExecutor()

    def launch(first: int) -> None:
        for number in range(first, first + 8):
            listed._save_job_dir(f"run_{number}", "Created", executor, "name")
        os._exit(0)  # no fixture of the process that this one is a copy of ends here

    launches = [get_context("fork").Process(target=launch, args=(100 * n,)) for n in range(4)]
    for process in launches:
        process.start()
    for process in launches:
        process.join()
    assert len(listed._get_job_dirs()) == 8 * len(launches)
