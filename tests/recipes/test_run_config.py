"""`moedsl import run_config.yaml`, on files that Bridge itself writes."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from moedsl.bridge import recipe_import, run_files
from moedsl.bridge.recipe_import import Imported, imported
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.settings import decided_fields
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.bridge_recipes import DEEPSEEK, QWEN_30B, write
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

pytestmark = pytest.mark.bridge
CHANGED = table_of("recipes", "run config: changed")


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run_config.yaml of a recipe of Qwen3-30B with a few lines of its own, and of one of DeepSeek-V3."""
    folder = tmp_path_factory.mktemp("run_config")
    mine = write(folder, QWEN_30B, *CHANGED)
    targets = {"mine": str(mine), "deepseek": DEEPSEEK}
    out = {name: folder / name / "run_config.yaml" for name in targets}
    for name, target in targets.items():
        out[name].parent.mkdir()
        ran = bridge_process.run(str(ROOT / "tests/oracles/dump_config.py"), target, str(out[name]))
        assert ran.returncode == 0, ran.stderr[-2000:]
    return out


@pytest.fixture(autouse=True)
def one_bridge(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks the server of the tests, which has imported Bridge already."""
    monkeypatch.setattr(recipe_import, "Server", lambda jobs: nullcontext(server))


@pytest.fixture
def without_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_import, "is_installed", lambda: False)


def lines(made: Imported, *starts: str) -> list[str]:
    assert made.text is not None, made.diagnostics
    return [line for line in made.text.splitlines() if line.startswith(starts)]


def test_the_words_and_pins_are_those_of_the_recipe(dumped: dict[str, Path], server: Server) -> None:
    library = load_stdlib()
    case = cases.read(DEEPSEEK)
    assert isinstance(case, Case)
    built = recipe_import.of_bridge(case, server.resolve([case])[0], library)
    hardware, _ = library.gpu("gb200")
    assert hardware is not None and not isinstance(built, recipe_import.Diagnostic)
    read = run_files.read_run_config(dumped["deepseek"], hardware, 256)
    drafts = [recipe_import.draft(r, library) for r in (built, read)]
    texts = [d.text(d.below).splitlines()[1:] for d in drafts if isinstance(d, recipe_import.Draft)]
    assert len(texts) == 2 and texts[0] == texts[1]
    differ = {n for n in read.fields if n in built.settled and read.fields[n] != built.settled[n]}
    assert all(str(read.fields[n])[:1] == "<" or n == "model.pipeline_model_parallel_layout" for n in differ), differ


def test_without_bridge_its_hyperparameters_are_statements(dumped: dict[str, Path], without_bridge: None) -> None:
    made = imported(str(dumped["mine"]), "h100", 16)
    sets = lines(made, "set ")
    assert "set train.train_iters = 77" in sets and lines(made, "lr 0.0002")
    assert any("warmup=3" in line for line in lines(made, "schedule"))
    assert lines(made, "#   Megatron Bridge is not installed")
    assert made.text is not None and not compile_source(Source("recipe.moe", made.text)).failed


def test_with_bridge_every_other_field_is_too(dumped: dict[str, Path]) -> None:
    made = imported(str(dumped["mine"]), "h100", 16)
    assert "set model.moe_aux_loss_coeff = 0.02" in lines(made, "set ")
    assert made.text is not None
    result = compile_source(Source("recipe.moe", made.text))
    assert not result.failed
    decided = decided_fields(result.plans[0])
    assert decided["optimizer.lr"] == 2e-4 and decided["train.train_iters"] == 77


def test_it_needs_no_torch(dumped: dict[str, Path]) -> None:
    code = (
        "import sys; from moedsl.bridge import recipe_import; recipe_import.is_installed = lambda: False\n"
        f"made = recipe_import.imported({str(dumped['mine'])!r}, 'h100', 16)\n"
        "assert made.text and not {'torch', 'megatron', 'transformers'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "gpu", "said"), table_of("recipes", "run config: another file", none="-"))
def test_another_file_is_an_error(
    tmp_path: Path, without_bridge: None, text: str | None, gpu: str | None, said: str
) -> None:
    file = tmp_path / "run_config.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    made = imported(str(file), gpu, 8)
    assert made.text is None
    (d,) = made.diagnostics
    assert d.id == "import.recipe" and said in d.message


def test_a_pipe_is_not_waited_for(tmp_path: Path, without_bridge: None) -> None:
    os.mkfifo(tmp_path / "run_config.yaml")
    (d,) = imported(str(tmp_path / "run_config.yaml"), "h100", 8).diagnostics
    assert "is not a regular file" in d.message


def test_no_secret_is_written(dumped: dict[str, Path], tmp_path: Path) -> None:
    file, token = tmp_path / "run_config.yaml", "hf_" + "a1B2" * 9
    text = dumped["mine"].read_text(encoding="utf-8").replace("\nenv_vars:\n", f"\nenv_vars:\n  HF_TOKEN: {token}\n")
    file.write_text(text.replace("  wandb_project: null", f"  wandb_project: {token}"), encoding="utf-8")
    assert file.read_text(encoding="utf-8").count(token) == 2
    made = imported(str(file), "h100", 16)
    assert made.text is not None and token not in made.text
    assert lines(made, "#   env_vars.HF_TOKEN") == ["#   env_vars.HF_TOKEN = (a secret)"]
    assert lines(made, "#   logger.wandb_project = (a secret)") and not lines(made, "set logger.wandb_project")


def test_a_number_that_the_language_cannot_write_is_a_comment(
    dumped: dict[str, Path], tmp_path: Path, without_bridge: None
) -> None:
    file = tmp_path / "run_config.yaml"
    text = re.sub(r"(?m)^(  weight_decay|  clip_grad): \S+$", r"\1: .nan", dumped["mine"].read_text(encoding="utf-8"))
    file.write_text(re.sub(r"(?m)^(  moe_aux_loss_coeff): \S+$", r"\1: .inf", text), encoding="utf-8")
    made = imported(str(file), "h100", 16)
    assert {"#   optimizer.weight_decay = nan", "#   optimizer.clip_grad = nan"} <= {*lines(made, "#   ")}
    assert not lines(made, "set optimizer.weight_decay", "set optimizer.clip_grad", "set model.moe_aux_loss_coeff")


def test_another_architecture_is_an_error(dumped: dict[str, Path], tmp_path: Path, without_bridge: None) -> None:
    file = tmp_path / "run_config.yaml"
    text = dumped["mine"].read_text(encoding="utf-8")
    file.write_text(text.replace("\n  num_layers: 48\n", "\n  num_layers: 24\n"), encoding="utf-8")
    (d,) = imported(str(file), "h100", 16).diagnostics
    assert (d.id, d.message) == ("import.no_model", "the recipe changes qwen3_30b_a3b: layers 24")
    file.write_text(
        text.replace("Qwen/Qwen3-30B-A3B", "ours/model").replace("num_moe_experts: 128", "num_moe_experts: 64")
    )
    (d,) = imported(str(file), "h100", 16).diagnostics
    assert d.message == "no declared model has the architecture of ours/model"
    assert any("moedsl models add" in h for h in d.help)


def test_a_file_of_the_user_stays(dumped: dict[str, Path], tmp_path: Path, without_bridge: None) -> None:
    out = tmp_path / "run.moe"
    words = ["import", str(dumped["mine"]), "--gpu", "h100", "--world", "16", "-o", str(out)]
    assert main(words) == 0
    first = out.read_text(encoding="utf-8")
    assert first.startswith(f"# Written from {dumped['mine']} by `moedsl import`.")
    out.write_text("mine", encoding="utf-8")
    assert main(words) == 1 and out.read_text(encoding="utf-8") == "mine"
    assert main([*words, "--force"]) == 0 and out.read_text(encoding="utf-8") == first


def test_the_objects_in_a_section_keep_their_fields(tmp_path: Path) -> None:
    file = tmp_path / "run_config.yaml"
    file.write_text("""
model: {_target_: megatron.bridge.models.gpt_provider.GPTModelProvider, num_layers: 2}
dataset:
  _target_: megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig
  hf_dataset: {_target_: megatron.bridge.data.sources.hf.HFDatasetSourceConfig, dataset_name: squad, split: train}
  hf_validation_dataset: null
  offline_packing_specs: {_target_: megatron.bridge.data.packing.config.PackedSequenceSpecs, pad_seq_to_mult: 4}
""")
    hardware, _ = load_stdlib().gpu("h100")
    assert hardware is not None
    read = run_files.read_run_config(file, hardware, 8)
    assert read.get("dataset.hf_dataset") == "<HFDatasetSourceConfig>"
    assert (read.get("dataset.hf_dataset.dataset_name"), read.get("dataset.hf_dataset.split")) == ("squad", "train")
    assert read.get("dataset.offline_packing_specs.pad_seq_to_mult") == 4
    assert read.get("dataset.hf_validation_dataset") is None
