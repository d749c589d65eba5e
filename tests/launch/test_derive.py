"""What follows from a plan and a cluster, against the table of the field's launches, NVIDIA's launchers and counting."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from moedsl.compiler import compile_source
from moedsl.facts.operators import segment
from moedsl.launch import executors
from moedsl.launch.derive import derive, job_name, seconds, to_json
from moedsl.launch.script import Payload, script
from moedsl.rules.check import cluster_rules
from moedsl.rules.rule import Rule
from moedsl.support.source import Source
from tests.helpers.plans import changed
from tests.helpers.tables import table_of
from tests.launch.launches import STEP, cluster, ids, launch, library, plan, slurm
from tests.launch.test_rules import KNOWN

TABLE = json.loads(Path(__file__).with_name("data").joinpath("recipe_variables.json").read_text())
"""What NVIDIA's performance recipes set where NCCL registers buffers or activations are offloaded."""


def test_the_rules_are_right() -> None:
    book, found = cluster_rules.read(library())
    assert not found and len(book.rules) > 20
    assert all(r.because and (r.cites or r.kind == "let") for r in book.rules)


@pytest.mark.bridge
def test_cited_lines_of_bridge_exist() -> None:
    root = Path(attrs.__file__).parents[1] / "megatron/bridge"
    cites = [c for r in cluster_rules.read(library())[0].rules for c in r.cites]
    lines = [m for c in cites if (m := re.fullmatch(r"bridge ([\w/]+\.py):(\d+)", c))]
    assert len(lines) >= 2
    assert all((root / m[1]).read_text(encoding="utf-8").splitlines()[int(m[2]) - 1].strip() for m in lines)


# ---------------------------------------------------------------- nodes and ranks


@pytest.mark.parametrize(
    ("hardware", "per_node"), [("h100", 8), ("h200", 8), ("b200", 8), ("b300", 8), ("gb200", 4), ("gb300", 4)]
)
@pytest.mark.parametrize("gpus", [1, 8, 64])
def test_nodes_and_ranks(hardware: str, per_node: int, gpus: int) -> None:
    made = launch(plan(hardware, gpus, {"ep": 1}), slurm(hardware))
    used = min(gpus, per_node)
    assert (made.nodes, made.ranks_per_node, made.gpus_per_node) == (max(1, gpus // per_node), used, used)
    assert made.tasks_per_node == used and made.numa_binding and made.world == gpus


def test_torchrun_starts_the_ranks_of_a_node() -> None:
    made = launch(plan("h100", 16, {"ep": 8}), slurm("h100", "launcher torchrun"))
    assert (made.tasks_per_node, made.ranks_per_node, made.world) == (1, 8, 16)


def test_a_cluster_may_have_other_nodes() -> None:
    assert launch(plan("h100", 16, {"ep": 8}), slurm("h100", "gpus_per_node 4")).nodes == 4


@pytest.mark.parametrize(("made", "facts", "id"), table_of("launch", "derive: a cluster that does not fit"))
def test_a_cluster_that_does_not_fit(made: tuple[str, int], facts: str, id: str) -> None:
    assert ids(plan(*made, {"ep": 1}), cluster(f"executor slurm; {facts}")) == [("error", id)]


def test_a_refusal_says_the_values_and_the_way_out() -> None:
    _, (d,) = derive(plan("h100", 16, {"ep": 1}), slurm("gb200"), library())
    assert d.values == {"cluster.hardware": "gb200", "hardware": "h100"}
    assert d.because and d.cites and d.help and "h100" in d.message and "gb200" in d.message


# ---------------------------------------------------------------- segments


def holds(nodes: int, per_node: int, group: int, size: int, most: int) -> bool:
    """Whether segments of `size` nodes divide the job, fit into a domain and split no group, rank by rank."""
    if nodes % size or size > most:
        return False
    place = [rank // per_node // size for rank in range(nodes * per_node)]
    groups = [place[i : i + group] for i in range(0, len(place), group)]
    return all(len(set(g)) == 1 for g in groups)


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.integers(1, 64), st.integers(1, 20))
def test_a_segment_is_the_largest_that_splits_no_group(nodes: int, per_node: int, group: int, most: int) -> None:
    if nodes * per_node % group == 0:
        best = max((s for s in range(1, nodes + 1) if holds(nodes, per_node, group, s, most)), default=0)
        assert segment(nodes, per_node, group, most) == best


@pytest.mark.parametrize(("gpus", "ep", "expected"), table_of("launch", "derive: segments of NVL72"))  # fmt: skip
def test_segments_of_nvl72(gpus: int, ep: int, expected: int) -> None:
    made = launch(plan("gb200", gpus, {"ep": ep}), slurm("gb200"))
    assert made.segment == expected
    assert expected * 4 % ep == 0


def test_no_segment_keeps_the_groups_on_nvlink() -> None:
    """A group of 96 has 24 nodes, and a domain 18."""
    wide = plan("gb200", 288, {"ep": 96, "pp": 3})
    assert ids(wide, slurm("gb200")) == [("warning", "std.segment.expert_groups_hold")]
    assert launch(wide, slurm("gb200")).segment == 18
    hybrid = plan("gb200", 288, {"ep": 96, "pp": 3}, dispatcher="hybridep")
    assert ("error", "std.segment.hybridep_holds") in ids(hybrid, slurm("gb200"))


@pytest.mark.parametrize(("hardware", "more"), [("h100", ""), ("b200", ""), ("gb200", "topology off")])
def test_no_segment_without_domains_of_several_nodes(hardware: str, more: str) -> None:
    made = launch(plan(hardware, 64, {"ep": 8}), slurm(hardware, more))
    assert made.segment == 0 and "segment" not in executors.slurm_arguments(made, slurm(hardware, more))


# ---------------------------------------------------------------- the scheduler's arguments


def test_arguments_of_srun_and_sbatch() -> None:
    on = slurm("h100", 'container "nvcr.io/nvidia/nemo:26.02"; secrets [HF_TOKEN]')
    said = executors.slurm_arguments(launch(plan("h100", 16, {"ep": 8}), on), on)
    assert said["srun_args"] == ["--mpi=pmix", "--no-container-mount-home", "--container-writable"]
    assert (said["exclusive"], said["mem"], said["gpus_per_node"]) == (True, "0", 8)
    assert said["container_env"] == ["HF_TOKEN"] and "signal" not in said


def test_what_the_cluster_states_replaces_an_argument() -> None:
    on = slurm("h100", 'srun_args ["--mpi=none", "--cpu-bind=verbose"]; request gres; sbatch { comment "x y" }')
    made = launch(plan("h100", 16, {"ep": 8}), on)
    said = executors.slurm_arguments(made, on)
    assert said["srun_args"] == ["--mpi=none", "--cpu-bind=verbose"]
    assert [(s.name, s.text) for s in made.srun] == [("mpi", "none"), ("cpu-bind", "verbose")]
    assert said["gres"] == "gpu:8" and "gpus_per_node" not in said
    assert said["additional_parameters"] == {"comment": "x y"}


def test_ft_launcher_starts_the_ranks_of_a_node_and_has_spare_ones() -> None:
    given, on = plan("h100", 16, {"ep": 8}), slurm("h100", "spare_nodes 1; nodes 3")
    made = launch(changed(given, set={"ft.enable_ft_package": True, "checkpoint.save": "/shared/run"}), on)
    assert (made.nodes, made.allocated, made.world, made.tasks_per_node, made.starts_ranks) == (2, 3, 16, 1, False)
    said = executors.slurm_arguments(made, on)
    assert (said["nodes"], said["ntasks_per_node"]) == (3, 1)
    assert said["additional_parameters"] == {"no-kill": True}
    assert said["srun_args"][-3:] == ["--kill-on-bad-exit=0", "--wait=0", "--no-kill"]
    assert "sleep 30; done" in said["setup_lines"] and said["setup_lines"].count("srun --overlap --no-kill") == 1
    assert ids(given, slurm("h100", "spare_nodes 1; nodes 2")) == [
        ("error", "std.launch.enough_nodes"),
        ("error", "std.spare_nodes.under_ft_launcher"),
    ]


@pytest.mark.parametrize(
    ("facts", "retries", "setup"), [("", None, None), ("retries 3", 3, None), ("requeue off", None, 0)]
)
def test_a_job_that_starts_again(facts: str, retries: int | None, setup: int | None) -> None:
    on = slurm("h100", facts)
    said = executors.slurm_arguments(launch(plan("h100", 16, {"ep": 8}), on), on)
    turned_off = None if setup is None else f'scontrol update jobid="$SLURM_JOB_ID" requeue={setup}'
    assert (said.get("retries"), said.get("setup_lines")) == (retries, turned_off)


@pytest.mark.parametrize(
    ("time", "limit"),
    [("90", 5400), ("5:30", 330), ("04:00:00", 14400), ("2-00:00:00", 172800), ("1-6", 108000), ("1-6:30", 109800)],
)
def test_a_limit_is_read_as_slurm_reads_it(time: str, limit: int) -> None:
    assert seconds(time) == limit


def test_a_signal_where_the_run_handles_it() -> None:
    made = changed(plan("h100", 16, {"ep": 8}), set={"train.exit_signal_handler": True})
    assert executors.slurm_arguments(launch(made, slurm("h100")), slurm("h100"))["signal"] == "TERM@62"


def test_no_account_still_has_a_prefix() -> None:
    """NeMo-Run 0.11.1 splits the account for one (core/execution/slurm.py:826)."""
    assert executors.job_name_prefix(cluster("executor slurm; hardware h100")) == "moedsl."
    assert executors.job_name_prefix(slurm("h100", 'job_name_prefix "me."')) == "me."
    assert executors.job_name_prefix(slurm("h100")) == "acct-acct."


def test_every_argument_is_one_of_nemo_runs() -> None:
    import dataclasses

    import nemo_run

    on = slurm("gb200", 'container "x"; mounts ["/a:/b"]; secrets [S]; qos q; sbatch { comment "x" }')
    made = launch(changed(plan("gb200", 64, {"ep": 8}), set={"train.exit_signal_handler": True}), on)
    known = {f.name for f in dataclasses.fields(nemo_run.SlurmExecutor)}
    assert set(executors.slurm_arguments(made, on)) <= known
    built = executors.executor(made, on, Path("/shared/runs"))
    assert isinstance(built, nemo_run.SlurmExecutor) and built.segment == 16


# ---------------------------------------------------------------- environment


def test_each_variable_has_its_source() -> None:
    on = slurm("h100", "env { TORCH_NCCL_HIGH_PRIORITY 0; MINE x }")
    made = launch(plan("h100", 16, {"ep": 8}), on)
    of = {s.name: s for s in made.environment}
    assert (of["TORCH_NCCL_HIGH_PRIORITY"].text, of["TORCH_NCCL_HIGH_PRIORITY"].origin) == ("0", "cluster")
    assert of["PYTORCH_CUDA_ALLOC_CONF"].origin == "plan" and of["MINE"].origin == "cluster"
    assert of["TOKENIZERS_PARALLELISM"].rule == "std.process.TOKENIZERS_PARALLELISM"
    assert [s.name for s in made.environment] == sorted(of)
    assert of["HF_HUB_OFFLINE"].text == "0" and "TRANSFORMERS_OFFLINE" not in of
    off = launch(plan("h100", 16, {"ep": 8}), slurm("h100", "offline on"))
    assert off.variables["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("group", TABLE, ids=lambda g: "-".join(k for k, v in g["fields"].items() if v) or "neither")
def test_variables_of_recipes_that_register_buffers_or_offload(group: dict[str, Any]) -> None:
    """A variable that a recipe leaves out is empty here, since the recipe's own default must not win."""
    fields = {"ddp.nccl_ub": "nccl_ub", "model.fine_grained_activation_offloading": "offload"}
    stated = {path: True for path, word in fields.items() if group["fields"][word]}
    planned = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "NCCL_GRAPH_REGISTER": 0, "NCCL_NVLS_ENABLE": 0}
    made = launch(changed(plan("h100", 16, {"ep": 8}), set=stated, env=planned), slurm("h100")).variables
    assert {n: made.get(n, "") for n in group["env"]} == group["env"]
    assert group["recipes"] >= 10


def test_the_plans_environment_is_exported_with_its_rules() -> None:
    text = "qwen3_235b_a22b; gb200 x 64; seq 4k; throughput first; pin tp=1 pp=4 vpp=4 ep=16 cp=1 dispatcher=hybridep"
    result = compile_source(Source("run.moe", text))
    assert not result.failed, result.diagnostics
    (made,) = result.plans
    derived = launch(made, slurm("gb200"))
    of = {s.name: s for s in derived.environment if s.origin == "plan"}
    assert {n: s.value for n, s in of.items()} == made.env and len(of) > 8
    assert all(s.rule and s.because and s.cites for s in of.values())
    assert derived.variables["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] == "16"


def test_a_runs_own_rules_win() -> None:
    text = """rules mine of launch {
      derive srun.mpi = "none" because "ours" cite docs "ours"
      env NCCL_DEBUG = "INFO" when cluster.partition == "batch" because "ours" cite docs "ours"
      require small: nodes < 4 because "ours" cite docs "ours"
    }
    qwen3_30b_a3b; h100 x 16; seq 4k"""
    own = compile_source(Source("run.moe", text), stop_after="check").library
    made, found = derive(plan("h100", 16, {"ep": 8}), slurm("h100"), own)
    assert made is not None and not found
    assert next(s for s in made.srun if s.name == "mpi").rule == "run.mine.srun.mpi"
    assert made.variables["NCCL_DEBUG"] == "INFO"
    assert [d.id for d in derive(plan("h100", 64, {"ep": 8}), slurm("h100"), own)[1]] == ["run.mine.small"]


@pytest.mark.parametrize(("member", "id"), table_of("launch", "derive: a mistake in a rule"))
def test_a_mistake_in_a_rule_of_launches(member: str, id: str) -> None:
    text = f"rules mine of launch {{ {member} }}\nqwen3_30b_a3b; h100 x 16; seq 4k"
    own = compile_source(Source("run.moe", text), stop_after="check").library
    made, found = derive(plan("h100", 16, {"ep": 8}), slurm("h100"), own)
    assert made is None and id in [d.id for d in found]


def test_json_has_the_contracts_keys() -> None:
    made = to_json(launch(plan("h100", 16, {"ep": 8}), slurm("h100")))
    sizes = {"nodes", "gpus_per_node", "tasks_per_node", "ranks_per_node", "numa_binding", "cores_per_rank", "segment"}
    sizes |= {"spare_nodes", "network", "nvlink"}
    lists = {"environment", "ft_launcher", "srun", "sbatch", "pods", "settings"}
    assert set(made) == sizes | lists | {"name", "cluster", "executor", "secrets", "chain"}
    keys = {"name", "value", "origin", "rule", "because", "cite"}
    assert all(set(s) == keys for key in lists for s in made[key])
    assert json.loads(json.dumps(made)) == made


def test_a_job_is_named_as_its_recipe_and_its_run() -> None:
    made = changed(plan("h100", 16, {"ep": 8}), name="main.micro_batch_2")
    assert job_name(made) == "qwen3_235b_a22b_pretrain_16gpu_h100_bf16.main.micro_batch_2"


BLOCKS = ("std.fabric.", "std.verbs.", "std.efa.", "std.gib.", "std.tcpxo.")
ON_SLURM = 'executor slurm; hardware {}; job_dir "/runs"'
ON_PODS = "executor kubeflow; hardware {}; container image"


def of_fabric(hardware: str, facts: str) -> dict[str, str]:
    """The variables that the rules of fabrics give a job of 16 GPUs."""
    made = launch(plan(hardware, 16, {"ep": 8}), cluster(f"{facts.format(hardware)}"))
    return {s.name: s.text for s in made.environment if s.rule and s.rule.startswith(BLOCKS)}


@pytest.mark.parametrize(("hardware", "facts", "expected"), table_of("launch", "fabrics"))  # fmt: skip
def test_a_job_gets_what_nvidias_launcher_sets(hardware: str, facts: str, expected: dict[str, str]) -> None:
    """Bare Slurm, EKS and GKE; Kubernetes jobs get no variable of Slurm's (executors.py, csp_plugins.py)."""
    assert of_fabric(hardware, facts) == expected


@pytest.mark.parametrize("fabric", ["infiniband", "roce", "efa", "gib", "tcpx", "tcpxo"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
def test_a_flex_dispatcher_between_nodes_needs_rdma(fabric: str, dispatcher: str) -> None:
    """NCCL's plugins reach what NCCL sends; within a node nothing does."""
    known = {("tcpx", "deepep"), ("tcpx", "hybridep"), ("tcpxo", "deepep"), ("tcpxo", "hybridep"), ("efa", "hybridep")}
    known.add(("roce", "alltoall"))  # Spectrum-X's plugin of NCCL
    made = {ep: plan("h100", 16, {"ep": ep}, dispatcher=dispatcher) for ep in (8, 16)}
    on = slurm("h100", f"container image; fabric {fabric}")
    assert ids(made[8], on) == []
    found = derive(made[16], on, library())[1]
    assert [d.severity for d in found] == (["warning"] if (fabric, dispatcher) in known else [])
    assert all("pin dispatcher=alltoall" in help for d in found for help in d.help)


def test_a_stated_variable_wins_and_says_what_it_replaces() -> None:
    made = launch(plan("gb200", 16, {"ep": 8}), slurm("gb200", "env { NCCL_NET_GDR_LEVEL SYS }"))
    (said,) = (s for s in made.environment if s.name == "NCCL_NET_GDR_LEVEL")
    assert (said.text, said.origin) == ("SYS", "cluster")
    assert said.because == "stated by cluster lab; std.fabric.NCCL_NET_GDR_LEVEL gives PHB"


def test_a_rule_of_a_fabric_names_its_source() -> None:
    rules: list[Rule] = [r for n, r in KNOWN.items() if n.startswith((*BLOCKS, "std.collisions."))]
    assert len(rules) > 20 and all(r.because and r.cites for r in rules)


READS_SCRIPT = 'import os\nprint(os.environ["OF_SITE"], os.environ["NCCL_NET"], flush=True)\n'


def run_script(env_script: Path) -> subprocess.CompletedProcess[str]:
    on = evolve(slurm("h200", f'fabric gib; numa off; env_script "{env_script}"'), python=sys.executable)
    text = script(launch(plan("h200", 16, {"ep": 8}), on), on, Payload({"p.py": READS_SCRIPT}, "p.py"))
    base = {**STEP, "PATH": "/usr/bin:/bin", "TMPDIR": str(env_script.parent)}
    return subprocess.run(["bash", "-c", text], env=base, capture_output=True, text=True, check=False)


def test_a_script_of_the_image_is_read_before_the_jobs_variables(tmp_path: Path) -> None:
    """Google's `set_nccl_env.sh` may name unset variables and may end with a false test; neither ends the job."""
    (tmp_path / "env.sh").write_text('export OF_SITE="yes$NOT_SET" NCCL_NET=Socket\n[ -n "$NOT_SET" ]\n')
    done = run_script(tmp_path / "env.sh")
    assert (done.returncode, done.stdout) == (0, "yes gIB\n"), done.stderr


def test_a_job_without_its_script_ends_at_once(tmp_path: Path) -> None:
    done = run_script(tmp_path / "none.sh")
    assert done.returncode == 79 and "none.sh cannot be read" in done.stderr and not done.stdout
