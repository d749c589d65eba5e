"""Weights of a fine-tuning run: without any it is not submitted; those of Hugging Face are imported first.

Then the program that imports and exports weights: what is there already, what is left behind, and, with the real
AutoBridge, a small model there and back on a CPU.
"""

import ast
import inspect
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.launch import local, preflight
from moedsl.launch.in_job import convert, head_check
from moedsl.launch.submit import Task, following, sequential
from tests.helpers import bridge_process, ports
from tests.launch import launches
from tests.launch.launches import Capture, Patch

RUN = """cluster lab { executor slurm; hardware h100; job_dir "/r"; weights_dir "/shared/weights" }
qwen3_30b_a3b; h100 x 16; task sft; data "/data/conversations"
"""
WEIGHTS = 'weights hf "Qwen/Qwen3-30B-A3B"\n'
HUB = launches.cluster("executor slurm; hardware h100; secrets [HF_TOKEN]")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A run file with weights of Hugging Face."""
    (tmp_path / "run.moe").write_text(RUN + WEIGHTS)
    return tmp_path / "run.moe"


def dryrun(words: list[str], capsys: Capture) -> dict[str, Any]:
    assert main([*words, "--cluster", "--dryrun", "--json"]) == 0
    return cast("dict[str, Any]", json.loads(capsys.readouterr().out))


def wanted(script: str) -> dict[str, Any]:
    """What the job's program reads."""
    inside = script.partition('"$MOEDSL_FILES/weights.json"')[2].partition("\n")[2]
    return cast("dict[str, Any]", json.JSONDecoder().raw_decode(inside)[0])


def test_it_is_not_submitted(file: Path, capsys: Capture) -> None:
    file.write_text(RUN)
    assert main(["run", str(file), "--cluster", "--no-preflight"]) == 1
    assert "error[plan.sft_without_weights]: run `main` cannot start" in capsys.readouterr().err
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 0
    assert "error[" not in capsys.readouterr().err


def test_a_job_imports_them_into_the_folder_of_the_cluster(file: Path, capsys: Capture) -> None:
    sent = dryrun(["run", str(file)], capsys)
    name = "qwen3_30b_a3b_sft_16gpu_h100_bf16"
    assert [run["name"] for run in sent["runs"]] == [f"{name}.import", name]
    imports, trains = (sent["files"][f"{n}/scripts/{n}.sh"] for n in (f"{name}.import", name))
    folder = "/shared/weights/Qwen--Qwen3-30B-A3B"
    assert wanted(imports)["folder"] == folder
    assert wanted(imports)["model"] == "Qwen/Qwen3-30B-A3B"
    assert f'cfg.checkpoint.pretrained_checkpoint = "{folder}"' in trains
    assert "#SBATCH --nodes=1" in sent["files"][f"{name}.import_sbatch.sh"]


def test_the_script_to_keep_starts_from_the_folder_of_the_cluster(file: Path, capsys: Capture) -> None:
    """As the job that `run` sends; without such a folder it says so."""
    out = file.with_name("out")
    assert main(["compile", str(file), "--emit", "launch", "-o", str(out)]) == 0
    assert "launch.weights" not in capsys.readouterr().err
    line = 'cfg.checkpoint.pretrained_checkpoint = "/shared/weights/Qwen--Qwen3-30B-A3B"'
    assert line in (out / "recipe.py").read_text()
    (sent,) = (text for name, text in dryrun(["run", str(file)], capsys)["files"].items() if name.endswith("bf16.sh"))
    assert line in sent and "/shared/weights/Qwen--Qwen3-30B-A3B" in (out / "job.sh").read_text()
    file.write_text(RUN.replace('; weights_dir "/shared/weights"', "") + WEIGHTS)
    assert main(["compile", str(file), "--emit", "launch", "-o", str(out)]) == 0
    assert "warning[launch.weights]: cluster lab names no folder" in capsys.readouterr().err


def test_an_import_by_itself(file: Path, capsys: Capture) -> None:
    assert next(iter(dryrun(["weights", "import", str(file)], capsys)["files"])).endswith(".import_sbatch.sh")
    file.write_text(RUN + 'weights "/checkpoints/a"\n')
    assert main(["weights", "import", str(file), "--cluster", "--dryrun"]) == 1
    assert "error[launch.weights]: no run names weights of Hugging Face" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["sft", "peft"])
def test_an_export(file: Path, task: str, capsys: Capture) -> None:
    file.write_text(RUN.replace("sft", task) + WEIGHTS)
    words = ["weights", "export", str(file), "--to", "/shared/mine"]
    assert main([*words, "--cluster", "--dryrun"]) == 1
    assert "error[launch.weights]: the run names no folder of its checkpoints" in capsys.readouterr().err
    sent = dryrun([*words, "--from", "/runs/1"], capsys)
    (script,) = (text for name, text in sent["files"].items() if name.endswith(".sh") and "sbatch" not in name)
    said = wanted(script)
    assert (said["action"], said["folder"], said["checkpoint"]) == ("export", "/shared/mine", "/runs/1")
    assert said["adapters"] == (task == "peft")
    file.write_text(RUN + WEIGHTS + 'set checkpoint.save = "/runs/2"\n')
    sent = dryrun(words, capsys)
    assert any('"checkpoint": "/runs/2"' in text for text in sent["files"].values())


@pytest.mark.parametrize("words", [["import"], ["export", "--from", "/runs/1", "--to", "/shared/mine"]])
def test_this_machine_lacks_the_gpu(words: list[str], file: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """No rehearsal converts weights, so none is offered."""
    monkeypatch.setattr(local, "gpus", lambda: 0)
    monkeypatch.setattr(local, "find_spec", lambda _: True)
    assert main(["weights", words[0], str(file), *words[1:]]) == 1
    said = capsys.readouterr().err
    assert f"the {words[0]} of weights needs 1 GPU, and this machine has none" in said
    assert "--cluster" in said and "rehearse" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RUN.replace('; weights_dir "/shared/weights"', "") + WEIGHTS,
         "error[launch.weights]: cluster lab names no folder for the weights"),
        (RUN + WEIGHTS + "pin sharding=fsdp\n", "error[std.fsdp.no_imported_weights]: no layout"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_imported_or_loaded(text: str, says: str, file: Path, capsys: Capture) -> None:
    file.write_text(text)
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 1
    assert says in capsys.readouterr().err


def test_kubernetes_orders_no_jobs(file: Path, capsys: Capture) -> None:
    pods = 'kubeflow; hardware h100; container "c"; pvc all; pvc_path "/"'
    text = RUN.replace('slurm; hardware h100; job_dir "/r"', pods)
    file.write_text(f'{text}{WEIGHTS}set checkpoint.save = "/shared/run"\n')
    sent = dryrun(["run", str(file)], capsys)
    assert [*sent["files"]] == ["trainjob.yaml"]


def test_training_starts_after_the_import() -> None:
    first, a, b = (Task(name, None, None) for name in ("import", "a", "b"))
    assert [t.after for t in following([first], [a, b])] == [(), ("import",), ("import",)]
    assert [(t.after, t.whatever) for t in following([first], sequential([a, b]))] == [
        ((), False), (("import",), False), (("a",), True),
    ]  # fmt: skip


def test_checkpoints_that_are_missing_or_not_whole(tmp_path: Path) -> None:
    whole, half, gone = (str(tmp_path / name) for name in ("whole", "half", "gone"))
    for folder in (whole, half):
        Path(folder).mkdir()
    Path(whole, "latest_train_state.pt").touch()
    local = launches.cluster("executor local")
    assert preflight.absent([whole, half, gone], local) == [gone]
    paths = [whole, half, gone]
    said = preflight._local(preflight.paths_command(paths, local, (), paths))
    assert [d.id for d in preflight.path_errors(said, paths, local)] == ["preflight.path", "preflight.checkpoint"]


@pytest.fixture
def answers(monkeypatch: Patch) -> Iterator[list[str | None]]:
    """A hub with one gated repository, which lists the tokens that it was asked with."""
    tokens: list[str | None] = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            known, may = self.path == "/org/gated/resolve/main/config.json", tokens[-1] == "Bearer good"
            self.send_response(200 if known and may else 401)
            if not (known and may):
                self.send_header("X-Error-Code", "GatedRepo" if known else "RepoNotFound")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield tokens
    server.shutdown()
    server.server_close()


def test_a_gated_repository(answers: list[str | None], monkeypatch: Patch) -> None:
    (found,) = preflight.hub_refusals("org/gated", None, HUB)
    assert (found.id, found.message) == ("preflight.gated", "org/gated on Hugging Face is gated")
    monkeypatch.setenv("HF_TOKEN", "good")
    assert preflight.hub_refusals("org/gated", None, HUB) == []
    (found,) = preflight.hub_refusals("org/gated", None, evolve(HUB, secrets=()))
    assert "secrets [HF_TOKEN]" in found.help[0]
    (found,) = preflight.hub_refusals("org/absent", None, HUB)
    assert "does not exist, or is private" in found.message
    assert answers == [None, "Bearer good", None, "Bearer good"]
    assert preflight.hub_refusals("org/gated", None, evolve(HUB, offline=True)) == []


def test_a_hub_out_of_reach(monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert [d.id for d in preflight.hub_refusals("org/name", None, HUB)] == ["preflight.hub"]


def test_compile_says_to_import_the_weights_before_the_launch(tmp_path: Path, capsys: Capture) -> None:
    file, out = tmp_path / "run.moe", tmp_path / "out"
    file.write_text(RUN + WEIGHTS)
    launch = ["-o", str(out), "--emit", "launch", "--cluster", "lab"]
    assert main(["compile", str(file), *launch]) == 0
    steps = capsys.readouterr().out.partition("\nNext ")[2].splitlines()
    assert [line.split()[:3] for line in steps] == [
        ["moedsl", "verify", str(out)], ["moedsl", "weights", "import"], ["python", f"{out}/launch.py"],
    ]  # fmt: skip
    assert f"{file} --cluster lab" in steps[1]
    file.write_text(RUN + 'weights "/shared/w"\n')
    assert main(["compile", str(file), *launch]) == 0
    assert "weights import" not in capsys.readouterr().out


@pytest.fixture(autouse=True)
def beside(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "preflight", head_check)


def importing(folder: Path) -> dict[str, Any]:
    return {"action": "import", "model": "org/name", "folder": str(folder), "options": {}}


def test_weights_that_are_there_stay(tmp_path: Path, capsys: Capture) -> None:
    """And a folder that is no checkpoint, or that an export would overwrite, is left alone."""
    with pytest.raises(SystemExit, match="is no whole checkpoint"):
        convert.main(importing(tmp_path))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("0")
    convert.main(importing(tmp_path))
    assert "is there already" in capsys.readouterr().out
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit, match="name another folder"):
        convert.main({**importing(tmp_path), "action": "export"})


def test_a_result_appears_when_it_is_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / "new" / "weights"

    def write(wanted: dict[str, Any], part: str) -> None:
        assert not folder.exists()
        Path(part, ".metadata").touch()

    monkeypatch.setattr(convert, "import_", write)
    convert.main(importing(folder))
    assert head_check.is_checkpoint(str(folder)) and [*folder.parent.iterdir()] == [folder]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: Patch) -> None:
    """Another process may be first, and its result stays."""
    folder = tmp_path / "weights"

    def fail(wanted: dict[str, Any], part: str) -> None:
        Path(part, "half").touch()
        raise OSError("no space left")

    def be_late(wanted: dict[str, Any], part: str) -> None:
        folder.mkdir()
        (folder / "config.json").touch()

    monkeypatch.setattr(convert, "import_", fail)
    with pytest.raises(OSError, match="no space"):
        convert.main(importing(folder))
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setattr(convert, "import_", be_late)
    convert.main(importing(folder))
    assert [*tmp_path.iterdir()] == [folder]


def test_the_newest_iteration_of_a_checkpoint(tmp_path: Path) -> None:
    assert convert.iteration(str(tmp_path)) == str(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40\n")
    assert convert.iteration(str(tmp_path)) == str(tmp_path / "iter_0000040")


HERE = Path(__file__).resolve().parent
Run = Callable[..., subprocess.CompletedProcess[str]]
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "HF_HUB_OFFLINE": "1"}
SMALL_MODEL = """
import sys
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

config = Qwen3MoeConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
    norm_topk_prob=True, max_position_embeddings=128,
)
Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""


def tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The type, the shape and the bytes of each tensor of model.safetensors: a length, a header in JSON, the data."""
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (about["dtype"], about["shape"], data[begin:][slice(*about["data_offsets"])])
        for name, about in header.items()
    }


@pytest.fixture
def run(tmp_path: Path, monkeypatch: Patch) -> Run:
    """Run the program as a job does, one rank with a place to meet."""

    def run(**wanted: Any) -> subprocess.CompletedProcess[str]:
        job = tmp_path / "job"
        job.mkdir(exist_ok=True)
        for module, name in ((convert, "convert.py"), (head_check, "preflight.py")):
            shutil.copy(inspect.getfile(module), job / name)
        (job / "weights.json").write_text(json.dumps({"options": {}, **wanted}))
        meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(ports.kept())}
        for name, value in (meet | ONE_RANK).items():
            monkeypatch.setenv(name, value)
        return bridge_process.run(str(HERE / "convert_on_cpu.py"), str(job))

    return run


@pytest.mark.bridge
def test_there_and_back(tmp_path: Path, run: Run) -> None:
    theirs, ours, back = tmp_path / "hf", tmp_path / "imported", tmp_path / "exported"
    done = bridge_process.run("-c", SMALL_MODEL, str(theirs))
    assert done.returncode == 0, done.stderr[-3000:]
    done = run(action="import", model=str(theirs), folder=str(ours))
    assert done.returncode == 0, done.stderr[-3000:]
    assert head_check.is_checkpoint(str(ours)) and head_check.is_checkpoint(convert.iteration(str(ours)))
    assert [p.name for p in tmp_path.glob("imported*")] == ["imported"]
    done = run(action="export", model=str(theirs), folder=str(back), checkpoint=str(ours), adapters=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert tensors(back) == tensors(theirs)


@pytest.mark.bridge
def test_an_import_that_fails_leaves_nothing(tmp_path: Path, run: Run) -> None:
    done = run(action="import", model=str(tmp_path / "nowhere"), folder=str(tmp_path / "imported"))
    assert done.returncode != 0 and "nowhere" in done.stderr
    assert [*tmp_path.glob("imported*")] == []


@pytest.mark.bridge
@pytest.mark.parametrize("name", ["export_adapter_ckpt", "export_ckpt"])
def test_bridge_takes_a_checkpoint_and_a_folder(name: str) -> None:
    """No adapter is trained here, so its call is compared with the method's text."""
    (package,) = getattr(find_spec("megatron"), "submodule_search_locations", [])
    text = Path(package, "bridge", "models", "conversion", "auto_bridge.py").read_text(encoding="utf-8")
    (found,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == name)
    needed = len(found.args.args) - len(found.args.defaults)
    assert (found.args.args[0].arg, needed) == ("self", 3)
