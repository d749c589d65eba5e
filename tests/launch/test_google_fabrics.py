"""A pod on Google Cloud has what Google's own tool gives a JobSet, and the variables that SkyPilot publishes.

The judges are xpk and SkyPilot themselves (tests/data/extract_google_fabrics.py ran xpk's decorators).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.paths import ROOT
from tests.launch.launches import cluster, launch, plan, slurm
from tests.launch.test_kube_facts import FACTS, made, pod_of

THEIRS = json.loads((ROOT / "tests/data/google_fabrics.json").read_text(encoding="utf-8"))
FABRICS = {"gib": "gke", "tcpx": "tcpx", "tcpxo": "tcpxo"}
Json = dict[str, Any]


def ours(fabric: str) -> Json:
    return pod_of(made(FACTS[FABRICS[fabric]], 16)[0])


def mounts(pod: Json, container: Json) -> dict[str, str]:
    """What a container sees at each path: a folder of the node, memory, or a folder that the containers share."""
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    return {m["mountPath"]: _source(volumes[m["name"]]) for m in container["volumeMounts"]}


def _source(volume: Json) -> str:
    """The ranks and the daemon of TCPX share a folder: xpk takes one of the node, SkyPilot an empty one."""
    if volume.get("emptyDir", {}).get("medium"):
        return "memory"
    return "shared" if "emptyDir" in volume or volume["hostPath"]["path"] == "/run/tcpx" else volume["hostPath"]["path"]


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_ranks_see_what_xpk_mounts(fabric: str) -> None:
    """But for the folder of the daemon's sockets: no TrainJob has a field for the daemon, so the runtime states both."""
    pod, theirs = ours(fabric), THEIRS["pods"][fabric]
    wanted = mounts(theirs, theirs["spec"]["containers"][0])
    assert mounts(pod, pod["spec"]["containers"][0]) == {at: what for at, what in wanted.items() if what != "shared"}


@pytest.mark.parametrize("fabric", FABRICS)
def test_annotations_are_those_of_xpk(fabric: str) -> None:
    """But for the networks, whose names are the cluster's own, and for the devices of the daemon."""
    pod, theirs = ours(fabric)["metadata"]["annotations"], THEIRS["pods"][fabric]["metadata"]["annotations"]
    networks = "networking.gke.io/interfaces"
    wanted = {n: text for n, text in theirs.items() if not n.startswith("devices.gke.io")}
    assert pod | {networks: ""} == wanted | {networks: ""}
    assert json.loads(pod[networks])[0] == json.loads(theirs[networks])[0]


def test_a_mount_of_the_cluster_wins() -> None:
    """The API server takes no two mounts at one path."""
    pod = pod_of(made(f'{FACTS["gke"]}; mounts ["/opt/gib:/usr/local/gib"]', 16)[0])
    seen = mounts(pod, pod["spec"]["containers"][0])
    assert len(seen) == len(pod["spec"]["containers"][0]["volumeMounts"]) and seen["/usr/local/gib"] == "/opt/gib"


def variables(environment: Any) -> dict[str, str]:
    return {s.name: s.text for s in environment}


def test_tcpx_has_the_published_variables() -> None:
    """All of them but the number of GPUs, which a pod with whole nodes does not need, on machines and in pods.

    SkyPilot's list for pods also has the folder of the plugin on machines, which xpk leaves out.
    """
    job = launch(plan("h100", 16, {"ep": 8}), slurm("h100", "container image; fabric tcpx"))
    assert THEIRS["machines"].items() <= variables(job.environment).items()
    mine = exported("tcpx")
    published = {n: text for n, text in THEIRS["variables"]["tcpx"].items() if n != "CUDA_VISIBLE_DEVICES"}
    assert published.pop("LD_LIBRARY_PATH").split(":")[0] == mine["LD_LIBRARY_PATH"]
    assert published.items() <= mine.items()


def test_tcpxo_in_pods_names_the_interfaces() -> None:
    """Of the tuner and of LL128 Google's newer charts say nothing."""
    known = ("LD_LIBRARY_PATH", "NCCL_FASTRAK_", "NCCL_SOCKET_IFNAME", "NCCL_CROSS_NIC", "NCCL_ALGO")
    published = {n: text for n, text in THEIRS["variables"]["tcpxo"].items() if n.startswith(known)}
    assert len(published) == 7 and published.items() <= exported("tcpxo").items()


def exported(fabric: str) -> dict[str, str]:
    """The variables of the ranks in pods."""
    return variables(launch(plan("h100", 16, {"ep": 8}), cluster(FACTS[fabric])).environment)
