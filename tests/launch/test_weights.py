"""Weights of a fine-tuning run: without any it is not submitted; those of Hugging Face are imported first."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve

from moedsl.cli.main import main
from moedsl.launch import local, preflight
from moedsl.launch.submit import Task, following, sequential
from tests.launch import launches

RUN = """cluster lab { executor slurm; hardware h100; job_dir "/r"; weights_dir "/shared/weights" }
qwen3_30b_a3b; h100 x 16; task sft; data "/data/conversations"
"""
WEIGHTS = 'weights hf "Qwen/Qwen3-30B-A3B"\n'
HUB = launches.cluster("executor slurm; hardware h100; secrets [HF_TOKEN]")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.moe"


def dryrun(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*words, "--cluster", "--dryrun", "--json"]) == 0
    return cast("dict[str, Any]", json.loads(capsys.readouterr().out))


def wanted(script: str) -> dict[str, Any]:
    """What the job's program reads."""
    inside = script.partition('"$MOEDSL_FILES/weights.json"')[2].partition("\n")[2]
    return cast("dict[str, Any]", json.JSONDecoder().raw_decode(inside)[0])


def test_it_is_not_submitted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RUN)
    assert main(["run", str(file), "--cluster", "--no-preflight"]) == 1
    assert "error[plan.sft_without_weights]: run `main` cannot start" in capsys.readouterr().err
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 0
    assert "error[" not in capsys.readouterr().err


def test_a_job_imports_them_into_the_folder_of_the_cluster(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RUN + WEIGHTS)
    sent = dryrun(["run", str(file)], capsys)
    name = "qwen3_30b_a3b_sft_16gpu_h100_bf16"
    assert [run["name"] for run in sent["runs"]] == [f"{name}.import", name]
    imports, trains = (sent["files"][f"{n}/scripts/{n}.sh"] for n in (f"{name}.import", name))
    folder = "/shared/weights/Qwen--Qwen3-30B-A3B"
    assert wanted(imports)["folder"] == folder
    assert wanted(imports)["model"] == "Qwen/Qwen3-30B-A3B"
    assert f'cfg.checkpoint.pretrained_checkpoint = "{folder}"' in trains
    assert "#SBATCH --nodes=1" in sent["files"][f"{name}.import_sbatch.sh"]


def test_the_script_to_keep_starts_from_the_folder_of_the_cluster(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the job that `run` sends; without such a folder it says so."""
    file.write_text(RUN + WEIGHTS)
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


def test_an_import_by_itself(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RUN + WEIGHTS)
    assert next(iter(dryrun(["weights", "import", str(file)], capsys)["files"])).endswith(".import_sbatch.sh")
    file.write_text(RUN + 'weights "/checkpoints/a"\n')
    assert main(["weights", "import", str(file), "--cluster", "--dryrun"]) == 1
    assert "error[launch.weights]: no run names weights of Hugging Face" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["sft", "peft"])
def test_an_export(file: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_this_machine_lacks_the_gpu(
    words: list[str], file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No rehearsal converts weights, so none is offered."""
    monkeypatch.setattr(local, "gpus", lambda: 0)
    monkeypatch.setattr(local, "_has", lambda _: True)
    file.write_text(RUN + WEIGHTS)
    assert main(["weights", words[0], str(file), *words[1:]]) == 1
    said = capsys.readouterr().err
    assert f"the {words[0]} of weights needs 1 GPU, and this machine has none" in said
    assert "--cluster" in said and "rehearse" not in said


def test_a_cluster_without_a_folder_for_weights(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RUN.replace('; weights_dir "/shared/weights"', "") + WEIGHTS)
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 1
    assert "error[launch.weights]: cluster lab names no folder for the weights" in capsys.readouterr().err


def test_fsdp_does_not_load_them(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(RUN + WEIGHTS + "pin sharding=fsdp\n")
    assert main(["run", str(file), "--cluster", "--dryrun"]) == 1
    assert "error[std.fsdp.no_imported_weights]: no layout" in capsys.readouterr().err


def test_kubernetes_orders_no_jobs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        RUN.replace(
            'slurm; hardware h100; job_dir "/r"', 'kubeflow; hardware h100; container "c"; pvc all; pvc_path "/"'
        )
        + WEIGHTS
        + 'set checkpoint.save = "/shared/run"\n'
    )
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
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
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


def test_a_gated_repository(answers: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert [d.id for d in preflight.hub_refusals("org/name", None, HUB)] == ["preflight.hub"]


def test_compile_says_to_import_the_weights_before_the_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "run.moe", tmp_path / "out"
    launch = ["-o", str(out), "--emit", "launch", "--cluster", "lab"]
    file.write_text(RUN + WEIGHTS)
    assert main(["compile", str(file), *launch]) == 0
    steps = capsys.readouterr().out.partition("\nNext ")[2].splitlines()
    assert [line.split()[:3] for line in steps] == [
        ["moedsl", "verify", str(out)], ["moedsl", "weights", "import"], ["python", f"{out}/launch.py"],
    ]  # fmt: skip
    assert f"{file} --cluster lab" in steps[1]
    file.write_text(RUN + 'weights "/shared/w"\n')
    assert main(["compile", str(file), *launch]) == 0
    assert "weights import" not in capsys.readouterr().out
