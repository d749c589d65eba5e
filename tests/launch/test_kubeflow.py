"""Kubeflow: the TrainJob byte for byte, values that come through, and a job's life on an API server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli.main import main
from moedsl.launch import dryrun, kubeflow
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_reader import Setting
from tests.launch import kube_launch
from tests.launch.kube_api import Api, expanded
from tests.launch.test_kube_facts import pod_of

HERE = Path(__file__).resolve().parent
ENTRY = "import json, os, sys\nprint(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))\n"


class Manifest(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "yaml"


@pytest.fixture(scope="session")
def launched() -> tuple[Launch, Cluster]:
    """The run on its cluster."""
    return kube_launch.launched()


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
        "os.environ['LOCAL_RANK'] = '0'\n"
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
    trainer, override = body["spec"]["trainer"], pod_of(body)
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
    payload = Payload({"recipe.py": ENTRY}, arguments=tuple(kube_launch.HARD.values()))
    body = yaml.safe_load(kubeflow.text(kubeflow.manifest(with_values(launch, kube_launch.HARD), cluster, payload)))
    said = run_container(body, tmp_path, {"HF_TOKEN": "$(HOME) it's secret"})
    assert {n: said["env"][n] for n in kube_launch.HARD} == kube_launch.HARD
    assert said["argv"] == list(kube_launch.HARD.values())
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


# ---------------------------------------------------------------- what is refused


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
    (tmp_path / "run.moe").write_text(f"{kube_launch.RUN}\nsweep micro_batch in 1, 2\n")
    words = ["run", str(tmp_path / "run.moe"), "--cluster", "--dryrun", "--sequential"]
    assert main(words) == 1
    assert "error[launch.sequential]" in capsys.readouterr().err


def test_a_machine_without_a_kubeconfig_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kubernetes.config import kube_config

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    (tmp_path / "run.moe").write_text(kube_launch.RUN)
    for more in ([], ["--no-preflight"]):
        assert main(["run", str(tmp_path / "run.moe"), "--cluster", *more]) == 1
        said = capsys.readouterr().err
        assert "error[launch.kube_context]" in said and "set KUBECONFIG" in said
