"""`moedsl init` writes a run file that has a plan, from options or from answers, and never over another."""

import io
import json
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.facts.symbols import TASKS
from moedsl.runs import samples
from moedsl.support.source import Source
from tests.cli.test_terminal import Terminal
from tests.helpers import rotation
from tests.helpers.programs import plan_of

GIVEN = ["--model", "qwen3_30b_a3b", "--machines", "h100 x 16"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("task", TASKS)
def test_the_batch_that_it_names_is_the_default(task: str) -> None:
    """That of the rules, which `moedsl data stats` compares samples with too."""
    assert main(["init", *GIVEN, "--task", task]) == 0
    text = Path("run.moe").read_text(encoding="utf-8")
    batch = plan_of(text).batch
    assert f"\n# batch {batch.global_batch}  " in text
    assert task == "pretrain" or (batch.seq, batch.global_batch) == (samples.SEQ, samples.BATCH)


@pytest.mark.parametrize("task", TASKS)
def test_options(task: str) -> None:
    assert main(["init", *GIVEN, "--task", task]) == 0
    text = Path("run.moe").read_text(encoding="utf-8")
    assert "h100 x 16 " in text and text.count("# moedsl ") == 3
    assert main(["check", "run.moe"]) == 0 and main(["fmt", "--check", "run.moe"]) == 0
    assert ('\nweights hf "Qwen/Qwen3-30B-A3B"' in text) == (task != "pretrain") and "/checkpoints" not in text


@pytest.mark.parametrize("task", TASKS)
def test_the_folder_of_the_data(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my run.moe", *GIVEN, "--task", task, "--data", 'my "own" data', "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1, "file": "my run.moe", "next": "moedsl plan 'my run.moe'",
    }  # fmt: skip
    assert '\ndata "my \\"own\\" data" ' in Path("my run.moe").read_text(encoding="utf-8")
    assert main(["check", "my run.moe"]) == 0


@pytest.mark.parametrize("data", [[], ["--data", "/shared/energon"]], ids=["no data", "data"])
@pytest.mark.parametrize("task", TASKS)
def test_a_model_with_a_vision_tower_reads_images(task: str, data: list[str]) -> None:
    given = ["--model", "qwen3_vl_30b_a3b", "--machines", "h100 x 16", "--task", task]
    assert main(["init", *given, *data]) == 0
    text = Path("run.moe").read_text(encoding="utf-8")
    assert main(["check", "run.moe"]) == 0 and plan_of(text).task == task
    assert "preprocessing" not in text and ".jsonl" not in text and "/data/tokens" not in text


@pytest.mark.parametrize("name", ["\udcff.moe", "a\nb.moe", "\x1b[31m.moe"], ids=["not UTF-8", "two lines", "colours"])
def test_a_name_that_is_no_text_of_a_program(name: str) -> None:
    assert main(["init", name, *GIVEN, "--task", "pretrain"]) == 0
    assert main(["check", name]) == 0 and "\x1b" not in Path(name).read_text(encoding="utf-8")


def test_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = Terminal("deepseek_v3\ngb200 256\n\n")
    monkeypatch.setattr("sys.stdin", answers)
    assert main(["init", "mine.moe"]) == 0
    text = Path("mine.moe").read_text(encoding="utf-8")
    assert "model deepseek_v3\ngb200 x 256 " in text and "\ntask " not in text
    assert "What for? (pretrain, sft, peft)" in capsys.readouterr().err


def test_a_wrong_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In lines of a terminal that break between names."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdin", Terminal("qwen3_30b\nqwen3_30b_a3b\n2 x 8 h100\nh10 x 8\nh100 x 8\nlora\npeft\n"))
    monkeypatch.setattr("sys.stderr", err := Terminal())
    assert main(["init"]) == 0
    lines = err.getvalue().splitlines()
    assert max(len(line) for line in lines if not line.startswith("[")) <= 80
    assert [line.split("; ")[1] for line in lines if "is not among them" in line] == [
        "did you mean `qwen3_30b_a3b`?", "write it as `h100 x 16`", "did you mean `h100`?", "write it as `pretrain`",
    ]  # fmt: skip
    text = Path("run.moe").read_text(encoding="utf-8")
    assert "model qwen3_30b_a3b\nh100 x 8 " in text and "\n# batch 32 " in text and "\ntask peft\n" in text


EVERY = [(model, task) for model in sorted(load_stdlib().models) for task in TASKS]


@pytest.mark.parametrize(("model", "task"), rotation.some("init", EVERY, 2))
def test_its_run_file_has_a_plan_without_a_warning(model: str, task: str) -> None:
    """For every model and task of the library, on enough GPUs for the largest."""
    given = ["--model", model, "--machines", "gb300 x 512", "--task", task, "--lr", "1e-5", "--length", "100B tokens"]
    assert main(["init", *given, "--checkpoints", "/c", "--wandb", "w", "--data", "/d/x"]) == 0
    text = Path("run.moe").read_text(encoding="utf-8")
    result = compile_source(Source("run.moe", text), asks="page")
    said = [d for d in result.diagnostics if d.severity != "note"]
    assert [d for d in said if d.id != "check.import_memory"] == []  # Kimi-K2 needs 2 TB to import
    (plan,) = result.plans
    assert plan.training is not None and {"steps", "lr"}.isdisjoint(plan.training.defaults)
    assert (plan.training.lr, plan.training.checkpoints, plan.training.wandb) == (1e-5, "/c", "w")


def test_samples_that_are_here_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """The file has what `moedsl data stats` prints for it."""
    Path("mine").mkdir()
    lines = [json.dumps({"input": "word " * n, "output": "yes"}) for n in range(1, 60)]
    Path("mine/training.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["data", "stats", "mine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["init", *GIVEN, "--task", "sft", "--data", "mine"]) == 0
    text = Path("run.moe").read_text(encoding="utf-8")
    assert found["statement"] in text and f"\nbatch {found['batch']} " in text and "preprocessing" not in text


def test_every_answer_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("\n\n\n8k\n14 days\n2e-4\n/shared/c\nmoe\n"))
    assert main(["init"]) == 0
    lines = [line.partition("  ")[0] for line in Path("run.moe").read_text(encoding="utf-8").splitlines()]
    assert {"seq 8k", "for 14 days", "lr 2e-4 min=2e-05", 'checkpoints "/shared/c"', 'wandb "moe"'} <= {*lines}


def test_a_file_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.moe").write_text("mine", encoding="utf-8")
    assert main(["init", *GIVEN, "--task", "sft"]) == 1
    assert Path("run.moe").read_text(encoding="utf-8") == "mine"
    assert "error[init.exists]" in capsys.readouterr().err


def test_mistakes_write_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["init", "--model", "qwen3_30b"]) == 1
    assert "--machines, --task" in capsys.readouterr().err
    assert main(["init", "--model", "qwen3_30b_a3", "--machines", "h100 x 16", "--task", "sft"]) == 1
    assert "did you mean `qwen3_30b_a3b`?" in capsys.readouterr().err
    assert not Path("run.moe").exists()
