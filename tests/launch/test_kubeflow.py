"""Kubeflow: the TrainJob byte for byte, values that come through, and a job's life on an API server on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from kube_api import GROUP, Api, Pod, expanded
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli import main
from moedsl.compiler import compile_source
from moedsl.launch import cluster as clusters
from moedsl.launch import dryrun, kubeflow
from moedsl.launch.derive import derive
from moedsl.launch.facts import Cluster
from moedsl.launch.launch import Launch, Setting
from moedsl.launch.script import Payload
from moedsl.source import Source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUN = """
cluster k8s {
  executor kubeflow
  hardware h100
  container "nvcr.io/nvidia/nemo:26.06"
  namespace "training"
  queue "moe"
  pvc "shared-data"
  mounts ["/raid/cache:/cache:ro"]
  shm "64Gi"
  secrets [HF_TOKEN]
  secret "tokens"
  service_account "trainer"
  node_selector { gpu "H100" }
  env { NOTE "two words" }
}
qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; fit first
"""
ENTRY = "import json, os, sys\nprint(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))\n"
HARD = {
    "BLANKS": " two  words ",
    "QUOTES": """it's "quoted" \\ and `ticked`""",
    "DOLLARS": "$HOME ${HOME} $(HOME) $$ $$(HOME) $$$ $((1+1)) $",
    "MACROS": "${head_node_ip_var} $num_nodes_var $$node_rank_var",
    "COMMANDS": "a && b; c | d > e & f # g ! ~ * ? [x] {a,b}",
    "LINES": "one\ntwo\r\n\tthree\n",
    "EMPTY": "",
    "LETTERS": "naïve 日本語 🚀",
    "PATH_OF_NEMO_RUN": "/nemo_run/code",
}


class Manifest(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "yaml"


@pytest.fixture(scope="session")
def launched() -> tuple[Launch, Cluster]:
    """The run above on its cluster."""
    result = compile_source(Source("run.moe", RUN))
    assert not result.failed, result.diagnostics
    cluster, found = clusters.read(result.library.clusters["k8s"], result.library)
    assert cluster is not None, found
    launch, found = derive(result.plans[0], cluster, result.library)
    assert launch is not None, found
    return launch, cluster


def with_values(launch: Launch, values: dict[str, str]) -> Launch:
    return evolve(launch, environment=tuple(Setting(n, v, "cluster", None, None) for n, v in values.items()))


def run_container(body: dict[str, Any], folder: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """What the ranks print, run as the kubelet does, with a `torch.distributed.run` that only starts the program.

    It fills in torchrun's macros as torch does (torch 2.13 distributed/elastic/utils/api.py:54).
    """
    stand_in = folder / "torch" / "distributed"
    stand_in.mkdir(parents=True, exist_ok=True)
    for package in (stand_in, stand_in.parent):
        (package / "__init__.py").touch()
    (stand_in / "run.py").write_text(
        "import os, string, sys\n"
        "at = next(i for i, a in enumerate(sys.argv) if a.endswith('.py') and i)\n"
        "arguments = [string.Template(a).safe_substitute(local_rank=0) for a in sys.argv[at + 1:]]\n"
        "os.execv(sys.executable, [sys.executable, sys.argv[at], *arguments])\n"
    )
    trainer = body["spec"]["trainer"]
    variables = {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "head", "PET_MASTER_PORT": "29400", **secrets}
    words = [expanded(w, variables) for w in trainer["command"]]
    base = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(words, env=base | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- the manifest


def test_a_manifest_byte_for_byte(launched: tuple[Launch, Cluster], snapshot: SnapshotAssertion) -> None:
    sent = dryrun.dryrun(*launched, Payload({"recipe.py": ENTRY}))
    assert sent == dryrun.dryrun(*launched, Payload({"recipe.py": ENTRY}))
    assert sent.files["trainjob.yaml"] == snapshot(extension_class=Manifest)


def test_a_manifest_needs_no_kubeconfig(launched: tuple[Launch, Cluster], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert kubeflow.manifest(*launched, Payload({"recipe.py": ENTRY}))["kind"] == "TrainJob"


def test_what_a_cluster_states_is_in_the_manifest(launched: tuple[Launch, Cluster]) -> None:
    body = yaml.safe_load(kubeflow.text(kubeflow.manifest(*launched, Payload({"recipe.py": ENTRY}))))
    trainer, (override,) = body["spec"]["trainer"], body["spec"]["podTemplateOverrides"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    assert trainer["env"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "HF_TOKEN"}}}
    ]
    assert body["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "moe"}
    assert body["metadata"]["namespace"] == "training"
    (container,) = override["spec"]["containers"]
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {"/cache", "/workspace", "/dev/shm"}
    assert mounts["/cache"]["readOnly"] is True
    assert {v["name"] for v in override["spec"]["volumes"]} == {m["name"] for m in mounts.values()}
    assert override["spec"]["nodeSelector"] == {"gpu": "H100"}


def test_a_script_that_is_too_long_is_refused(launched: tuple[Launch, Cluster]) -> None:
    assert kubeflow.refusal(*launched, Payload({"recipe.py": ENTRY})) is None
    refused = kubeflow.refusal(*launched, Payload({"recipe.py": "#" * kubeflow.LIMIT}))
    assert refused is not None and refused.id == "launch.too_long"


# ---------------------------------------------------------------- values survive


def test_values_reach_the_rank(launched: tuple[Launch, Cluster], tmp_path: Path) -> None:
    launch, cluster = launched
    payload = Payload({"recipe.py": ENTRY}, arguments=tuple(HARD.values()))
    body = yaml.safe_load(kubeflow.text(kubeflow.manifest(with_values(launch, HARD), cluster, payload)))
    said = run_container(body, tmp_path, {"HF_TOKEN": "$(HOME) it's secret"})
    assert {n: said["env"][n] for n in HARD} == HARD
    assert said["argv"] == list(HARD.values())
    assert said["env"]["HF_TOKEN"] == "$(HOME) it's secret"


def test_nothing_of_a_value_is_run(launched: tuple[Launch, Cluster], tmp_path: Path) -> None:
    launch, cluster = launched
    marker = tmp_path / "ran"
    bad = {
        "A": f"$(touch {marker})",
        "B": f"`touch {marker}`",
        "C": f"'; touch {marker}; '",
        "D": f"\n touch {marker}\n",
    }
    payload = Payload({"recipe.py": ENTRY}, arguments=tuple(bad.values()))
    said = run_container(kubeflow.manifest(with_values(launch, bad), cluster, payload), tmp_path, {"HF_TOKEN": "x"})
    assert {n: said["env"][n] for n in bad} == bad
    assert not marker.exists()


@given(st.text(alphabet=st.sampled_from("$(){}aH \\'\"\n"), max_size=40))
def test_the_kubelet_gives_back_what_was_written(text: str) -> None:
    assert expanded(kubeflow.for_kubelet(text), {"H": "x", "a": "y", "": "z"}) == text


@given(st.text(alphabet=st.sampled_from("$(){}a_ \n"), max_size=40))
def test_nemo_run_gives_back_what_was_written(text: str) -> None:
    """NeMo-Run fills its macros into each argument."""
    from nemo_run.core.execution.base import ExecutorMacros

    macros = ExecutorMacros(
        head_node_ip_var="A", nproc_per_node_var="B", num_nodes_var="C", node_rank_var="D", het_group_host_var="E"
    )
    whole = text + "${head_node_ip_var} $node_rank_var"
    assert macros.substitute(kubeflow.for_template(whole)) == whole


# ---------------------------------------------------------------- a job's life

RANKS = """
import datetime, json, os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=9))
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, (dist.get_rank(), os.environ["NODE_RANK"] if "NODE_RANK" in os.environ else os.environ["GROUP_RANK"]))
if dist.get_rank() == 0:
    print("RANKS " + json.dumps({"ranks": ranks, "argv": sys.argv[2:], "note": os.environ["NOTE"], "token": os.environ["HF_TOKEN"]}), flush=True)
dist.barrier()
os._exit(7 if sys.argv[1] == "fail" and dist.get_rank() == 3 else 0)  # gloo's threads abort where they are taken apart
"""
SAYS = "import os\nprint('rank', os.environ['RANK'], 'was here', flush=True)\n"
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n"
TOKEN = "it's $(HOME) a secret"


class Shell:
    """The launching machine, as kube_driver.py: one import of NeMo-Run for all tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = {
            "NEMORUN_HOME": "home",
            "XDG_STATE_HOME": "state",
            "XDG_CONFIG_HOME": "config",
            "KUBECONFIG": "kubeconfig",
        }
        env = {**os.environ, **{n: str(folder / d) for n, d in places.items()}, "PYTHONPATH": str(ROOT)}
        (folder / "run.moe").write_text(RUN)
        self.err = (folder / "err").open("w+")
        words = [sys.executable, "-W", "ignore", str(HERE / "kube_driver.py")]
        self.process = subprocess.Popen(
            words, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, Path(self.err.name).read_text()[-3000:]
        return json.loads(line)

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
        shell = Shell(folder)
        try:
            yield server, shell
        finally:
            shell.close()


def pods(api: Api) -> list[Pod]:
    """Of the job that was posted last."""
    return api.pods[api.posted[-1]["metadata"]["name"]]


def wait_for(done: Callable[[], bool]) -> None:
    """Waits; the test's own time limit ends a wait in vain."""
    while not done():
        time.sleep(0.2)


Machines = tuple[Api, Shell]


@pytest.fixture
def kubectl() -> None:
    """NeMo-Run and moedsl read pods' logs with it."""
    if shutil.which("kubectl"):
        return
    missing = "kubectl is not installed: no log of a pod can be read"
    if os.environ.get("CI") or os.environ.get("MOEDSL_REQUIRE_ALL"):
        pytest.fail(missing)
    pytest.skip(missing)


def test_two_pods_of_two_ranks_meet(machines: Machines, launched: tuple[Launch, Cluster], kubectl: None) -> None:
    """Posted as the dry run says; torchrun finds the four ranks; values and the secret arrive; the logs are read."""
    api, shell = machines
    values = list(HARD.values())
    id = shell.submit(RANKS, "fine", *values)
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
    check_posted(api.posted[-1], *launched, Payload({"recipe.py": RANKS}, arguments=("fine", *values)))


def check_posted(posted: dict[str, Any], launch: Launch, cluster: Cluster, payload: Payload) -> None:
    """What was posted is what the dry run prints, but for the six digits of the name."""
    printed = kubeflow.manifest(evolve(launch, nodes=2, gpus_per_node=2, ranks_per_node=2), cluster, payload)
    assert printed["metadata"].pop("name") == posted["metadata"]["name"][:-6] + kubeflow.DIGITS
    del posted["metadata"]["name"]
    assert posted == printed


def test_a_job_that_fails(machines: Machines, kubectl: None) -> None:
    api, shell = machines
    id = shell.submit(RANKS, "fail")
    wait_for(lambda: any(p.code for p in pods(api)))
    assert shell.state(id) == "FAILED"
    assert "exitcode  : 7" in shell.moedsl("logs", id)["out"]


def test_a_job_that_is_cancelled(machines: Machines) -> None:
    """Running, then deleted: NeMo-Run alone would call it pending for ever."""
    api, shell = machines
    id = shell.submit(WAITS)
    wait_for(lambda: any(b"waiting" in p.log.read_bytes() for p in pods(api)))
    assert shell.state(id) == "RUNNING"
    cancelled = shell.moedsl("cancel", id)
    assert cancelled["code"] == 0, cancelled
    assert api.deleted == [api.posted[-1]["metadata"]["name"]]
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
    assert "waits for 2 of 2 pods: ImagePullBackOff: as the test wants" in done["err"]
    assert "waits for 1 of 2 pods: ImagePullBackOff" in done["err"]
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
    before, doomed = len(api.posted), Shell(shell.folder)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(doomed.ask, submit=WAITS, arguments=[])
        wait_for(lambda: len(api.posted) > before)
        doomed.process.kill()
    api.answers.set()
    experiment, *_ = json.loads(shell.moedsl("jobs", "--json")["out"])["experiments"]
    (job,) = experiment["jobs"]
    assert (job["state"], job["number"]) == ("RUNNING", experiment["id"] + f"___{job['name']}___" + pods(api)[0].job)
    assert shell.moedsl("cancel", experiment["id"])["code"] == 0
    assert api.deleted[-1] == pods(api)[0].job
    assert shell.state(experiment["id"]) == "CANCELLED"


def test_another_context_is_refused(tmp_path: Path, monkeypatch: Any, launched: tuple[Launch, Cluster]) -> None:
    """NeMo-Run takes the current context; a job must not go to another cluster than the one that is named."""
    from kubernetes.config import kube_config

    with Api() as api:
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(api.kubeconfig(tmp_path)))
        _, cluster = launched
        assert kubeflow.context_refusal(cluster) is None
        assert kubeflow.context_refusal(evolve(cluster, context="test")) is None
        refused = kubeflow.context_refusal(evolve(cluster, context="production"))
    assert refused is not None
    assert "use-context production" in refused.help[0]


def test_jobs_that_cannot_wait_for_each_other_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.moe").write_text(f"{RUN}\nsweep micro_batch in 1, 2\n")
    words = ["run", str(tmp_path / "run.moe"), "--cluster", "--dryrun", "--sequential"]
    assert main(words) == 1
    assert "error[launch.sequential]" in capsys.readouterr().err


def test_a_machine_without_a_kubeconfig_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kubernetes.config import kube_config

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    (tmp_path / "run.moe").write_text(RUN)
    for more in ([], ["--no-preflight"]):
        assert main(["run", str(tmp_path / "run.moe"), "--cluster", *more]) == 1
        said = capsys.readouterr().err
        assert "error[launch.kube_context]" in said and "set KUBECONFIG" in said
