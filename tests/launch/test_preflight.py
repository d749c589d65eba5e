"""Before a job is submitted: the partition's nodes, paths and mounts; a real Slurm and an API server answer."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.launch import derive, follow, preflight, script
from moedsl.launch.derive import Launch
from moedsl.launch.in_job import head_check
from moedsl.launch.preflight import Node
from moedsl.launch.script import Job
from moedsl.launch.submit import submit
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of
from tests.launch import launches
from tests.launch.kube_api import Api
from tests.launch.launches import Capture, Patch
from tests.launch.slurm_cluster import Slurm
from tests.launch.slurm_launch import MOE, Planned, planned, program, run_text

SEEN = """gb200*|n1|gpu:gb200:4(S:0-1)|idle|nvl72
gb200*|n2|gpu:gb200:4(S:0-1)|mix|nvl72
gb200*|n3|gpu:gb200:4(S:0-1)|drain*|nvl72
h100|n4|gpu:nvidia_h100_80gb_hbm3:8,shard:64|alloc|(null)
mixed|n4|gpu:nvidia_h100_80gb_hbm3:8,shard:64|alloc|(null)
mixed|n5|gpu:8|idle|h100,ib
cpu|n6|(null)|idle|(null)
"""
"""Lines as sinfo of Slurm 22.05 and 24.05 writes them in that format."""


def ids(found: list[Diagnostic]) -> list[str]:
    return [d.id for d in found]


# ---------------------------------------------------------------- what sinfo says


def test_nodes_of_a_partition() -> None:
    assert [n.name for n in preflight.of_sinfo(SEEN, "")] == ["n1", "n2", "n3"]
    assert [n.up for n in preflight.of_sinfo(SEEN, "gb200")] == [True, True, False]
    assert [(n.gpus, n.types) for n in preflight.of_sinfo(SEEN, "h100")] == [(8, frozenset({"h100"}))]
    assert preflight.of_sinfo(SEEN, "mixed")[1] == Node("n5", 8, frozenset({"h100"}), True)
    assert preflight.of_sinfo(SEEN, "cpu") == [Node("n6", None, frozenset(), True)]
    assert len(preflight.of_sinfo(SEEN, "gb200,h100")) == 4


def node(count: int | None = 8, *types: str, up: bool = True) -> Node:
    return Node("n", count, frozenset(types), up)


@pytest.mark.parametrize(
    "known, found",
    [
        ([node(8, "h100")] * 2, []), ([node(8)] * 2, []), ([node(None)] * 2, []),
        ([node(8, "h100"), node(8, "gb200")], ["preflight.nodes"]), ([node(8, "gb200")] * 2, ["preflight.gpu_type"]),
        ([node(4, "h100")] * 4, ["preflight.nodes"]), ([node(8, "h100")], ["preflight.nodes"]),
        ([], ["preflight.nodes"]), ([node(8, "h100"), node(8, "h100", up=False)], ["preflight.nodes_down"]),
    ],
)  # fmt: skip
def test_nodes_against_a_launch(known: list[Node], found: list[str], two_nodes: Planned) -> None:
    """Two nodes of eight GPUs, planned for h100."""
    launch = evolve(two_nodes.launch, nodes=2, gpus_per_node=8)
    assert ids(preflight.judge_nodes(known, launch, "h100", "partition p")) == found


@pytest.mark.parametrize("hardware, word, found", [("a100_80gb", "a100", []), ("gh200_nvl2", "gh200", []),
                                                    ("h100_nvl", "h200", ["preflight.gpu_type"])])  # fmt: skip
def test_a_scheduler_has_a_shorter_name(hardware: str, word: str, found: list[str], two_nodes: Planned) -> None:
    launch = evolve(two_nodes.launch, nodes=2, gpus_per_node=8)
    assert ids(preflight.judge_nodes([node(8, word)] * 2, launch, hardware, "partition p")) == found


@pytest.mark.parametrize("text, words", [("NVIDIA-H100-80GB-HBM3", ["h100"]), ("gb200", ["gb200"]), ("tesla", []),
                                         ("NVIDIA B200", ["b200"]), ("nvidia_a100-sxm4-80gb", ["a100"])])  # fmt: skip
def test_words_that_name_a_gpu(text: str, words: list[str]) -> None:
    assert preflight.type_words(text) == words


@pytest.fixture(scope="module")
def two_nodes() -> Planned:
    return planned(8, pins="tp=2 pp=2 ep=2")


# ---------------------------------------------------------------- a real Slurm


def checked(plan: Plan, launch: Launch) -> Job:
    return Job(plan, launch, program(""))


def asked(p: Planned, cluster: Cluster, *paths: str) -> list[Diagnostic]:
    return preflight.slurm([checked(p.plan, p.launch)], cluster, paths)


def test_a_partition_that_has_the_plans_gpus(login_node: Path, two_nodes: Planned, tmp_path: Path) -> None:
    (tmp_path / "corpus.idx").touch()
    assert asked(two_nodes, two_nodes.cluster, str(tmp_path), str(tmp_path / "corpus")) == []
    assert asked(two_nodes, evolve(two_nodes.cluster, partition="")) == []


def test_what_a_partition_lacks(login_node: Path, two_nodes: Planned) -> None:
    assert ids(asked(two_nodes, evolve(two_nodes.cluster, partition="h100"))) == ["preflight.gpu_type"]
    assert ids(asked(two_nodes, evolve(two_nodes.cluster, partition="nowhere"))) == ["preflight.nodes"]
    many = evolve(two_nodes, launch=evolve(two_nodes.launch, nodes=17))
    (found,) = asked(many, two_nodes.cluster)
    assert found.message == "the job needs 17 nodes with 4 GPUs, and partition gb200 has 16"


def test_a_drained_node(login_node: Path, slurm: Slurm, two_nodes: Planned) -> None:
    """All sixteen nodes are asked for, and one of them is away."""
    many = evolve(two_nodes, launch=evolve(two_nodes.launch, nodes=16))
    slurm.ask("scontrol", "update", "nodename=n16", "state=drain", "reason=test")
    try:
        assert ids(asked(many, two_nodes.cluster)) == ["preflight.nodes_down"]
    finally:
        slurm.ask("scontrol", "update", "nodename=n16", "state=resume")
    assert asked(many, two_nodes.cluster) == []


def test_a_path_that_the_login_node_does_not_see(login_node: Path, two_nodes: Planned, tmp_path: Path) -> None:
    hard = tmp_path / "two words; touch HIT 'x' $HOME"
    (found,) = asked(two_nodes, two_nodes.cluster, str(hard))
    assert found.id == "preflight.path"
    assert str(hard) in found.message
    hard.mkdir()
    assert asked(two_nodes, two_nodes.cluster, str(hard)) == []
    assert not list(tmp_path.rglob("HIT"))


def test_no_slurm_here(two_nodes: Planned, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = asked(two_nodes, two_nodes.cluster)
    assert found.id == "preflight.nodes"
    assert "sinfo says" in found.message


def test_a_run_stops_before_it_is_submitted(
    login_node: Path, slurm: Slurm, tmp_path: Path, capsys: Any, monkeypatch: Patch
) -> None:
    """The partition has other GPUs: nothing is submitted."""
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    file = tmp_path / "run.moe"
    text = run_text(4, pins="tp=2 pp=1 ep=2")
    file.write_text(text.replace("partition gb200", "partition h100"))
    assert main(["run", str(file), "--cluster"]) == 1
    said = capsys.readouterr()
    assert "preflight.gpu_type" in said.err
    assert "the plan is for gb200; the GPUs of partition h100 are h100" in said.err
    assert "note[preflight.no_bridge]" in said.err
    assert slurm.ask("squeue", "-h") == ""
    assert not list(login_node.glob("experiments/*/*"))


# ---------------------------------------------------------------- Bridge


def test_no_bridge_is_a_note(monkeypatch: Patch) -> None:
    monkeypatch.setattr("moedsl.bridge.verify.client.is_installed", lambda: False)
    result = compile_source(Source("run.moe", MOE.format(gpus=8, pins="tp=2 pp=2 ep=2")))
    (found,) = preflight.bridge([*result.plans], result.source, result.library, print)
    assert (found.id, found.severity) == ("preflight.no_bridge", "note")


# ---------------------------------------------------------------- paths and mounts


@pytest.mark.parametrize(
    "stated, path, there",
    [
        (["/lustre:/data"], "/data/corpus", "/lustre/corpus"),
        (["/lustre:/data:ro"], "/data", "/lustre"),
        (["/lustre:/data"], "/database/x", None),
        (["/a:/data", "/b:/data/big"], "/data/big/x", "/b/x"),
        ([], "/data/x", None),
    ],
)
def test_a_path_of_the_container_outside_of_it(stated: list[str], path: str, there: str | None) -> None:
    cluster = Cluster("lab", "slurm", container="image", mounts=tuple(stated))
    assert derive.node_path(path, cluster) == there
    assert ids(derive.unmounted_paths([path], cluster)) == ([] if there else ["preflight.path"])


def test_the_folder_of_an_own_model_must_be_in_a_mount() -> None:
    """The recipe reads its config.json in the container."""
    cluster = Cluster("lab", "slurm", container="image", mounts=("/shared:/shared",))
    plan = plan_of("qwen3_30b_a3b; h100 x 16")
    assert preflight.unmounted([plan, evolve(plan, hf="/shared/mine")], cluster) == []
    (found,) = preflight.unmounted([evolve(plan, hf="/tmp/mine")], cluster)
    assert found.id == "preflight.path" and found.message.startswith("/tmp/mine is in no mount of cluster lab")


def test_without_a_container_a_path_is_the_nodes() -> None:
    assert derive.node_path("/x", Cluster("lab", "slurm")) == "/x"


@pytest.mark.parametrize("executor", ["slurm", "kubeflow"])
def test_a_relative_path_is_not_one_to_mount(executor: str) -> None:
    (found,) = derive.unmounted_paths(["conv"], Cluster("lab", executor, container="image"))
    assert found.help == ("a job runs in another folder: write the absolute path of conv",)


def test_a_claim_holds_its_paths() -> None:
    cluster = Cluster("k", "kubeflow", container="image", pvc="shared", pvc_path="/workspace")
    (found,) = derive.unmounted_paths(["/workspace/data", "/elsewhere"], cluster)
    assert found.id == "preflight.path" and found.message.endswith("its container mounts /workspace")
    assert found.help == ("name a folder of the claim shared, which is mounted at /workspace: /workspace/elsewhere",)


CLAIM = """qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1; data "/data/corpus"
cluster k {{ executor kubeflow; hardware h100; container img; pvc shared; pvc_path "/data" }}
{}
"""


@pytest.mark.parametrize(
    ("said", "id"),
    [
        ("", "launch.checkpoints"), ('set checkpoint.save = "runs/a"', "launch.checkpoints"),
        ('set checkpoint.save = "/ckpt/a"', "preflight.path"), ('set checkpoint.save = "/data/a"', None),
        ('set checkpoint.save = "msc://bucket/a"', None), ("set checkpoint.save = none", None),
    ],
)  # fmt: skip
def test_checkpoints_of_pods_outlive_them(said: str, id: str | None, tmp_path: Path, capsys: Capture) -> None:
    """A dry run says so too; a kept launcher may have its folder from elsewhere, so its path is a warning."""
    file = tmp_path / "run.moe"
    file.write_text(CLAIM.format(said))
    assert main(["run", str(file), "--cluster", "--dryrun"]) == int(id is not None)
    found = capsys.readouterr().err
    code = main(["compile", str(file), "--emit", "launch", "-o", str(tmp_path / "out")])
    kept = capsys.readouterr().err
    assert [line.partition(":")[0] for line in found.splitlines() if "[" in line] == ([f"error[{id}]"] if id else [])
    assert code == int(id == "launch.checkpoints")
    assert (f"warning[{id}]" in kept) == (id == "preflight.path")
    assert "/data/" in found if id else "error" not in kept


def test_mock_data_leaves_no_checkpoints_in_a_pod(tmp_path: Path) -> None:
    file = tmp_path / "run.moe"
    file.write_text(CLAIM.format("").replace('; data "/data/corpus"', ""))
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 0


def test_an_indexed_dataset_is_its_prefix(tmp_path: Path) -> None:
    (tmp_path / "a b.bin").touch()
    cluster = Cluster("lab", "slurm")
    paths = [str(tmp_path / "a b"), str(tmp_path / "none")]
    said = subprocess.run(
        ["bash", "-c", preflight.paths_command(paths, cluster)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "missing 1\n"
    assert len(preflight.path_errors(said.stdout, paths, cluster)) == 1


def test_a_folder_of_checkpoints_takes_files(tmp_path: Path) -> None:
    """It need not be there yet; what is there of its path must be a folder that this account may write into."""
    (tmp_path / "a file").touch()
    cluster = Cluster("lab", "slurm")
    folders = [str(tmp_path / "new $x" / "run"), str(tmp_path / "a file" / "run")]
    command = preflight.paths_command([], cluster, folders)
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert said.stdout == "unwritable 1\n"
    (found,) = preflight.path_errors(said.stdout, [], cluster, folders)
    assert found.id == "preflight.path" and folders[1] in found.message


def test_checkpoints_go_to_a_mount(monkeypatch: Patch) -> None:
    """Elsewhere in a container they would end with the job."""
    of = run_text(8, 'container "image"; mounts ["/data:/d"]')
    texts = {folder: f'{of}set checkpoint.save = "{folder}"\n' for folder in ("/d/run", "/tmp/run")}
    made = {folder: Planned(*launches.launched(text, "here")) for folder, text in texts.items()}
    monkeypatch.setattr(preflight, "bridge", lambda *_: [])
    monkeypatch.setattr(preflight, "slurm", lambda *_: [])
    found = {
        f: preflight.before([checked(p.plan, p.launch)], p.cluster, Source("run.moe", ""), Library(), print)
        for f, p in made.items()
    }
    assert {f: ids(wrong) for f, wrong in found.items()} == {"/d/run": [], "/tmp/run": ["preflight.path"]}


# ---------------------------------------------------------------- Kubernetes


def k8s_node(name: str, product: str, gpus: int, *taints: tuple[str, str, str], **labels: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"nvidia.com/gpu.product": product, **labels}}
    spec = {"taints": [dict(zip(("key", "value", "effect"), taint, strict=True)) for taint in taints]}
    return {"metadata": meta, "spec": spec, "status": {"allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "128"}}}


def h100s(*taints: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [k8s_node(f"n{i}", "NVIDIA-H100-80GB-HBM3", 8, *taints, pool="moe") for i in range(2)]


OF_TEAM = ("team", "ai", "NoSchedule")
OF_THE_TEAM = h100s(OF_TEAM)


@pytest.mark.parametrize(
    "known, facts, found",
    [
        (h100s(), {}, []), (h100s(), {"node_selector": {"pool": "moe"}}, []),
        (h100s(), {"node_selector": {"pool": "none"}}, ["preflight.nodes"]),
        ([k8s_node("n0", "NVIDIA-GB200", 4)] * 2, {}, ["preflight.gpu_type"]),
        (h100s()[:1], {}, ["preflight.nodes"]),
        (h100s(), {"affinity": ("pool in (moe, b)", "zone notin (c)", "pool", "!spot")}, []),
        (h100s(), {"affinity": ("pool in (a, b)",)}, ["preflight.nodes"]),
        (h100s(), {"affinity": ("pool notin (moe)",)}, ["preflight.nodes"]),
        (h100s(), {"affinity": ("spot",)}, ["preflight.nodes"]),
        (h100s(), {"affinity": ("!pool",)}, ["preflight.nodes"]), (OF_THE_TEAM, {}, ["preflight.nodes"]),
        (OF_THE_TEAM, {"queue": "q"}, []), (OF_THE_TEAM, {"tolerations": ("team",)}, []),
        (OF_THE_TEAM, {"tolerations": ("team=ai:NoSchedule",)}, []),
        (OF_THE_TEAM, {"tolerations": ("team=ai:NoExecute",)}, ["preflight.nodes"]),
        (OF_THE_TEAM, {"tolerations": ("team=web",)}, ["preflight.nodes"]),
        (OF_THE_TEAM, {"tolerations": ("teams",)}, ["preflight.nodes"]),
        (h100s(OF_TEAM, ("spot", "", "NoExecute")), {"tolerations": ("team",)}, ["preflight.nodes"]),
        (h100s(("team", "ai", "PreferNoSchedule")), {}, []),
        (h100s(("nvidia.com/gpu", "present", "NoSchedule")), {}, []),
        (h100s(("node.kubernetes.io/not-ready", "", "NoExecute")), {}, ["preflight.nodes_down"]),
    ],
)  # fmt: skip
def test_the_nodes_of_kubernetes(
    known: list[Any], facts: dict[str, Any], found: list[str], two_nodes: Planned, kubernetes: Callable[[Api], None]
) -> None:
    cluster = Cluster("k", "kubeflow", container="image", **facts)
    job = checked(evolve(two_nodes.plan, hardware="h100"), evolve(two_nodes.launch, nodes=2, gpus_per_node=8))
    with Api(nodes=known) as api:
        kubernetes(api)
        assert ids(preflight.kubernetes([job], cluster)) == found


def test_the_taints_that_keep_a_job_away(two_nodes: Planned, kubernetes: Callable[[Api], None]) -> None:
    cluster = Cluster("k", "kubeflow", container="image")
    job = checked(evolve(two_nodes.plan, hardware="h100"), evolve(two_nodes.launch, nodes=2, gpus_per_node=8))
    with Api(nodes=[*h100s(OF_TEAM)[:1], *h100s(("spot", "", "NoExecute"))[1:]]) as api:
        kubernetes(api)
        (wrong,) = preflight.kubernetes([job], cluster)
    assert wrong.message == "the job needs 2 nodes, and cluster k has 0 whose taints it tolerates, of 2"
    assert wrong.help[0] == 'write `tolerations ["spot:NoExecute", "team=ai:NoSchedule"]` into the cluster'


@pytest.mark.parametrize(
    ("held", "lacks"), [({"moedsl": {"HF_TOKEN": "eA=="}}, "WANDB_API_KEY"), ({}, "HF_TOKEN, WANDB_API_KEY"),
                        ({"moedsl": {"HF_TOKEN": "eA==", "WANDB_API_KEY": "eA=="}}, "")],
)  # fmt: skip
def test_the_keys_of_a_secret_are_asked_for(
    held: dict[str, dict[str, str]], lacks: str, two_nodes: Planned, kubernetes: Callable[[Api], None]
) -> None:
    cluster = Cluster("k", "kubeflow", container="image", secrets=("HF_TOKEN", "WANDB_API_KEY"))
    job = checked(evolve(two_nodes.plan, hardware="h100"), evolve(two_nodes.launch, nodes=2, gpus_per_node=8))
    with Api(nodes=h100s(), secrets=held) as api:
        kubernetes(api)
        found = preflight.kubernetes([job], cluster)
    assert [d.message for d in found] == ([f"Secret moedsl in namespace default lacks {lacks}"] if lacks else [])


def test_a_mount_is_the_folder_of_a_data_set() -> None:
    """A data set is named by the prefix of its files, which is no folder."""
    (found,) = derive.unmounted_paths(["/data/corpus_text_document"], Cluster("lab", "slurm", container="image"))
    assert found.help == ('add its folder to the cluster: mounts ["/data:/data"]',)


def test_a_cluster_without_the_definition_of_the_job(two_nodes: Planned, kubernetes: Callable[[Api], None]) -> None:
    job = checked(evolve(two_nodes.plan, hardware="h100"), evolve(two_nodes.launch, nodes=2, gpus_per_node=8))
    with Api(nodes=h100s()) as api:
        kubernetes(api)
        api.defines_trainjobs = False
        assert ids(preflight.kubernetes([job], Cluster("k", "kubeflow", container="x"))) == ["preflight.no_kind"]


def test_an_api_server_that_does_not_answer(two_nodes: Planned, kubernetes: Callable[[Api], None]) -> None:
    with Api() as api:
        kubernetes(api)
    job = checked(two_nodes.plan, two_nodes.launch)
    assert ids(preflight.kubernetes([job], Cluster("k", "kubeflow", container="x"))) == ["preflight.tunnel"]


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: Patch) -> Callable[[Api], None]:
    """Makes a server the current context of this process's kubeconfig."""
    from kubernetes.config import kube_config

    def use(api: Api) -> None:
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(api.kubeconfig(tmp_path)))

    return use


@pytest.mark.parametrize(("gpus", "partition", "wrong"), table_of("launch", "preflight: the partition"))
def test_the_partition_is_compared_with_the_plan(login_node: Path, gpus: int, partition: str, wrong: str) -> None:
    made = planned(gpus)
    cluster = evolve(made.cluster, partition=partition)
    found = preflight.slurm([checked(made.plan, made.launch)], cluster, ())
    assert [d.message for d in found] == [wrong] * bool(wrong)


def test_a_node_without_a_driver_ends_the_job_in_its_first_seconds(login_node: Path, capsys: Capture) -> None:
    made = planned(8)
    payload = script.with_preflight(program("print('trains')"), made.plan, made.launch, made.cluster)
    done = submit([made.task(login_node, payload)], "checked", login_node, print)
    assert done.experiment is not None, done.why_not
    assert follow.report(done.experiment, follow.wait(done.experiment)) == 1
    said = capsys.readouterr().err
    assert "moedsl preflight: CUDA's driver cannot be loaded" in said
    assert f"exit code {head_check.WRONG}" in said
    assert "trains" not in said
