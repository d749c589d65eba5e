"""Declarations of clusters: what they may state, what is refused, and which one `--cluster` means."""

import json
import math
import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.cli.main import main
from moedsl.compiler import load_stdlib
from moedsl.rules import launch_variables
from moedsl.rules.check import cluster_facts, cluster_reader, cluster_rules
from moedsl.support import secrets
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.launch.launches import Capture, Patch, cluster, read

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; pin tp=1 pp=1 ep=8 cp=1 etp=1\n"
SLURM = "executor slurm; hardware h100"


def ids(text: str) -> list[str]:
    made, found = read(text)
    assert (made is None) == bool(found)
    return [d.id for d in found]


def test_every_fact_is_read() -> None:
    made = cluster(
        """executor slurm; default on; hardware gb200; gpus_per_node 4; nodes 64; topology off; numa off
        nodes_per_rack 16; rails 4; network 50 GB/s; node_network 200 GB/s; oversubscription 2; nvlink_domain 36
        host_speed 0.9; node_memory 1 TB
        rank_logs on; chain on; retries 2; requeue off; spare_nodes 1
        account proj_x; partition "batch-long"; qos normal; time "2-00:00:00"; job_name_prefix "x-y."; request gres
        launcher torchrun; container "nvcr.io/nvidia/nemo:26.02"; mounts ["/lustre:/lustre", "/data:/data:ro"]
        python "/opt/venv/bin/python"; env { NCCL_DEBUG INFO; B_2 "a b"; THREE 3 }; secrets [HF_TOKEN, WANDB_API_KEY]
        fabric roce; hca [mlx5_0, "mlx5_3:1"]; gid_index 3; env_script "/opt/site/nccl.sh"
        offline on; node_check on; tunnel ssh host "login.example.org" user alice port 2222 identity "~/.ssh/id_ed25519"
        job_dir "/lustre/alice"; weights_dir "/lustre/weights"; megatron_lm "/lustre/Megatron-LM"
        srun_args ["--cpu-bind=none"]; sbatch { reservation "big one"; kill_on_invalid_dep yes }
        storage_write 2 TB/s; gpu_mtbf_days 1500; most_lost_minutes 30; local_disk "/raid/ckpt" """
    )
    assert made.default and made.topology == "off" and not made.numa and made.offline
    assert (made.nodes, made.gpus_per_node, made.port) == (64, 4, 2222)
    assert made.env == {"NCCL_DEBUG": "INFO", "B_2": "a b", "THREE": "3"}
    assert made.secrets == ("HF_TOKEN", "WANDB_API_KEY")
    assert made.mounts == ("/lustre:/lustre", "/data:/data:ro")
    assert made.sbatch == {"reservation": "big one", "kill-on-invalid-dep": "yes"}
    assert (made.site.storage_write, made.site.gpu_mtbf, made.site.most_lost) == (2e12, 1500 * 86400, 1800)
    stated = {n for n in cluster_facts.kinds() if getattr(made, n) != getattr(cluster_facts.Cluster("x", "slurm"), n)}
    of_slurm = {n for n, k in cluster_facts.kinds().items() if "slurm" in k.of} - {"executor"}
    assert stated == of_slurm


@pytest.mark.parametrize(("text", "id"), table_of("launch", "cluster: mistakes"))  # fmt: skip
def test_a_mistake_is_a_diagnostic(text: str, id: str) -> None:
    assert ids(text) == [id]


KUBE = "executor kubeflow; hardware h100; container img"


@pytest.mark.parametrize(("wrong", "right"), table_of("launch", "a name or a quantity that kubernetes refuses"))  # fmt: skip
def test_a_name_or_a_quantity_that_kubernetes_refuses(wrong: str, right: str) -> None:
    """The API server would refuse the job, after the run was compiled and its name written down."""
    assert ids(f"{KUBE}; {wrong}") == ["check.cluster"]
    assert ids(f"{KUBE}; {right}") == []


@pytest.mark.parametrize("option", cluster_reader.DERIVED_SBATCH)
def test_a_parameter_of_sbatch_that_is_derived_has_a_way_out(option: str) -> None:
    _, (found,) = read(f'{SLURM}; sbatch {{ {option.replace("-", "_")} "x" }}')
    assert found.message.startswith(f"`{option}` of sbatch")
    assert found.help == (cluster_reader.DERIVED_SBATCH[option],)


@pytest.mark.parametrize(("option", "instead"), [("dependency", "`moedsl run --sequential`"), ("array", "`sweep`")])
def test_jobs_that_belong_together_have_a_way_out(option: str, instead: str) -> None:
    _, (found,) = read(f'{SLURM}; sbatch {{ {option} "x" }}')
    assert found.id == "check.cluster" and instead in found.help[0]


@pytest.mark.parametrize("fact", table_of("launch", "cluster: commands of this machine"))  # fmt: skip
def test_nothing_reaches_a_command_of_this_machine(fact: str) -> None:
    ssh = ("tunnel ssh", "host h", "user u", 'job_dir "/runs"')
    others = [f for f in ssh if f.split()[0] != fact.split()[0]]
    assert ids("; ".join((SLURM, *others, fact))) == ["check.cluster"]


@pytest.mark.parametrize("name", table_of("launch", "cluster: what this machine loads"))  # fmt: skip
def test_a_run_file_does_not_choose_what_this_machine_loads(name: str) -> None:
    assert ids(f'executor local; env {{ {name} "/tmp/x" }}') == ["check.cluster"]
    assert ids(f'{SLURM}; env {{ {name} "/tmp/x" }}') == []


@pytest.mark.parametrize(
    "name", ["NOTE", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "PYTORCH_CUDA_ALLOC_CONF", "WANDB_MODE"]
)
def test_a_run_file_may_set_what_loads_nothing(name: str) -> None:
    assert ids(f"executor local; env {{ {name} 1 }}") == []


# ---------------------------------------------------------------- secrets


def random_key(alphabet: str, length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=length))


TOKENS = [
    "hf_" + random_key(string.ascii_letters, 34, 1),
    "ghp_" + random_key(string.ascii_letters + string.digits, 36, 2),
    "nvapi-" + random_key(string.ascii_letters + string.digits, 64, 3),
    "AKIA" + random_key(string.ascii_uppercase + string.digits, 16, 4),
    random_key(string.ascii_letters + string.digits + "/+", 40, 5),
    random_key("0123456789abcdef", 40, 6),
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "https://user:hunter2pass@proxy.example.org",
    "--export=ALL,WANDB_API_KEY=short",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("fact", ["env {{ SOME {} }}", "container {}", "srun_args [{}]", "sbatch {{ comment {} }}"])
def test_a_literal_that_looks_like_a_secret_is_an_error(token: str, fact: str) -> None:
    _, found = read(f"{SLURM}; " + fact.format(f'"{token}"'))
    assert [d.id for d in found] == ["check.secret"]
    (d,) = found
    assert token not in d.message + "".join(d.help) and "secrets [" in d.help[0]


@pytest.mark.parametrize("name", table_of("launch", "cluster: secret names"))  # fmt: skip
def test_a_value_for_a_secret_name_is_an_error(name: str) -> None:
    _, found = read(f"{SLURM}; env {{ {name} changeme }}")
    assert [d.id for d in found] == ["check.secret"]
    assert f"secrets [{name if name.isupper() else 'HF_TOKEN'}]" in found[0].help[0]


@pytest.mark.parametrize(
    "name", ["MAX_TOKENS", "NUM_OF_TOKENS_PER_CHUNK", "CACHE_KEYS", "TOKENIZERS_PARALLELISM", "KEYRING"]
)
def test_a_count_of_tokens_is_no_secret(name: str) -> None:
    assert ids(f"{SLURM}; env {{ {name} 4096 }}") == []


@pytest.mark.parametrize("text", table_of("launch", "cluster: no secret"))  # fmt: skip
def test_what_stands_in_clusters_is_no_secret(text: str) -> None:
    assert secrets.value_kind(text) is None


def test_tokens_of_recipes_are_no_secrets() -> None:
    """Every string of the stdlib and the examples, which hold none. A commit is spelled like a key, behind its word."""
    root = ROOT
    texts = [p.read_text() for folder in ("stdlib", "examples") for p in (root / folder).rglob("*.moe")]
    words = {line for text in texts for line in text.splitlines() if not line.lstrip().startswith("revision ")}
    assert len(words) > 1000 and not [w for w in words if secrets.value_kind(w)]


@given(st.integers(0, 10**9))
def test_random_keys_of_forty_characters_are_found(seed: int) -> None:
    key = random_key(string.ascii_letters + string.digits, 40, seed)
    counts = [key.count(c) / 40 for c in set(key)]
    mixed = any(map(str.isdigit, key)) and any(map(str.isupper, key)) and any(map(str.islower, key))
    if mixed and -sum(p * math.log2(p) for p in counts) > 4.1:
        assert secrets.value_kind(key)


@pytest.mark.parametrize("name", ["docker", "skypilot", "lepton", "dgxcloud"])
def test_an_executor_that_is_not_offered_says_so(name: str) -> None:
    (wrong,) = read(f"executor {name}; hardware h100")[1]
    assert wrong.id == "check.unknown_word" and "are untested" in wrong.help[0]


K8S = 'executor kubeflow; hardware h100; container "image"; node_selector '


@pytest.mark.parametrize(("said", "labels"), table_of("launch", "cluster: labels of nodes"))
def test_labels_of_nodes_are_kubernetes_own(said: str, labels: dict[str, str]) -> None:
    made, found = read(K8S + said)
    assert made is not None and not found
    assert made.node_selector == labels


@pytest.mark.parametrize("said", ['{ gpu "H 100" }', '["gpu"]', '["Up.per/gpu=1"]', f'["gpu={"x" * 64}"]', '["-a=1"]'])
def test_labels_that_the_api_server_refuses_are_said(said: str) -> None:
    assert ids(K8S + said) == ["check.cluster"]


def test_variables_of_the_rank_are_refused() -> None:
    assert all(launch_variables.refusal(n) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))


# ---------------------------------------------------------------- which one is meant


@pytest.fixture
def config(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The folder of the user's own clusters."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "moedsl").mkdir()
    return tmp_path / "moedsl" / "clusters.moe"


def write(file: Path, *names: str, default: str = "") -> Path:
    blocks = (f"cluster {n} {{ {SLURM}{'; default on' if n == default else ''} }}" for n in names)
    file.write_text((RUN if file.name == "run.moe" else "") + "\n".join(blocks) + "\n")
    return file


def dryrun(file: Path, *cluster: str) -> int:
    return main(["run", str(file), "--cluster", *cluster, "--dryrun", "--json"])


def chosen(capsys: Capture) -> str:
    return str(json.loads(capsys.readouterr().out)["runs"][0]["cluster"])


@pytest.mark.parametrize(("of_run", "of_user", "asked", "expected"), table_of("launch", "cluster: the one that is meant"))  # fmt: skip
def test_the_cluster_that_is_meant(
    of_run: tuple[str, ...],
    of_user: tuple[str, ...],
    asked: tuple[str, ...],
    expected: str,
    config: Path,
    capsys: Capture,
) -> None:
    for file, names in ((config.parent / "run.moe", of_run), (config, of_user)):
        write(file, *(n.rstrip("!") for n in names), default=next((n[:-1] for n in names if n.endswith("!")), ""))
    assert dryrun(config.parent / "run.moe", *asked) == 0
    assert chosen(capsys) == expected


def test_a_name_is_declared_once_in_the_run_file(config: Path, capsys: Capture) -> None:
    assert dryrun(write(config.parent / "run.moe", "local", "local")) == 1
    assert "`local` is declared twice" in capsys.readouterr().err


@pytest.mark.parametrize(("of_run", "asked", "says"), table_of("launch", "cluster: none is meant"))
def test_no_cluster_is_meant(
    of_run: tuple[str, ...], asked: tuple[str, ...], says: str, config: Path, capsys: Capture
) -> None:
    assert dryrun(write(config.parent / "run.moe", *of_run), *asked) == 1
    assert says in capsys.readouterr().err


def test_the_users_file_holds_clusters_alone(config: Path, capsys: Capture) -> None:
    config.write_text("qwen3_30b_a3b\n")
    assert dryrun(write(config.parent / "run.moe", "a")) == 1
    assert "launch.user_file" in capsys.readouterr().err


def test_a_used_file_brings_clusters(config: Path, capsys: Capture) -> None:
    write(config.parent / "shared.moe", "common")
    (config.parent / "run.moe").write_text(f'use "shared.moe"\n{RUN}')
    assert dryrun(config.parent / "run.moe") == 0
    assert chosen(capsys) == "common"


def test_clusters_are_listed(config: Path, capsys: Capture) -> None:
    write(config, "mine")
    run = write(config.parent / "run.moe", "here", default="here")
    assert main(["clusters", str(run), "--json"]) == 0
    listed = {c["name"]: c["declared_in"] for c in json.loads(capsys.readouterr().out)}
    assert listed == {"here": "run file", "mine": "user file", "local": "stdlib"}
    assert main(["clusters", str(run)]) == 0
    assert "here" in (out := capsys.readouterr().out) and "(default)" in out


def test_check_finds_a_wrong_cluster(config: Path, capsys: Capture) -> None:
    file = config.parent / "run.moe"
    file.write_text(RUN + "cluster bad { executor slurm; hardware h100; acount x }\n")
    assert main(["check", str(file)]) == 1
    assert "did you mean `account`?" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "says"), table_of("launch", "cluster: what check finds"))
def test_check_finds_what_a_launch_would(line: str, says: str, capsys: Capture) -> None:
    assert main(["check", "-e", f"{RUN}{line}"]) == (1 if says else 0)
    assert says in capsys.readouterr().err


def test_the_stdlibs_clusters_are_right() -> None:
    known, found = cluster_rules.known(load_stdlib())
    assert not found
    assert cluster_rules.choose(load_stdlib(), "local")[0] == cluster_facts.Cluster("local", "local")
    assert known["local"].origin == "stdlib"


@pytest.mark.parametrize(
    ("facts", "name"), [(f"{SLURM}; partition batch-long", "partition"), (f"{KUBE}; colocate nvidia.com/a", "colocate")]
)
def test_a_text_without_quotes_is_told_by_its_own_name(facts: str, name: str) -> None:
    _, (found,) = read(facts)
    assert found.help == (f'put it in quotes: `{name} "..."`',)
