"""Data and weights of a run: what the recipe says of them, what the file is told, and what Bridge's own code makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.emit.dataset import dataset, tokenizer
from moedsl.emit.overrides import overrides
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields, sections
from moedsl.facts.values import Call
from moedsl.launch import local, script
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT
from tests.helpers.plans import PLANS, changed
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of

ASK = ROOT / "tests/oracles/ask_data.py"
SFT = 'qwen3_30b_a3b; h100 x 16; task sft; data "/data/sft"; batch 64\n'
PADDED = SFT.replace('"/data/sft"', '"/data/sft" pack=off')
WEIGHTS = 'set checkpoint.pretrained_checkpoint = "/checkpoints/base"\n'
CHAT = 'set dataset.preprocessing = "chat"\n'
MOONLIGHT = SFT.replace("qwen3_30b_a3b", "moonlight_16b") + WEIGHTS
DEEPSEEK = "deepseek_v3; h100 x 512; task sft; batch 512; scale first\npin pp=8 vpp=4\n" + WEIGHTS
REAL = 'data "/data/x"\n'


def checked(text: str) -> list[Diagnostic]:
    return compile_source(Source("run.moe", text), "check").diagnostics


def ids(text: str) -> list[str]:
    return [d.id for d in compiled(text).diagnostics]


def settings(plan: Plan) -> dict[str, Any]:
    """What the recipe assigns, by path; the last of each."""
    return {s.path: s.value for _, group in sections(plan) for s in group}


def ask(question: str, folder: Path, asked: Any = None) -> Any:
    """The answer of tests/oracles/ask_data.py."""
    (folder / "asked.json").write_text(json.dumps(asked))
    done = bridge_process.run(str(ASK), question, str(folder))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def plain(value: Any) -> Any:
    """A call as ask_data.py makes it."""
    if not isinstance(value, Call):
        return value
    return {"target": value.target, "kwargs": {k: plain(v) for k, v in value.kwargs.items()}}


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize(("data", "folder"), [("/data/chats.jsonl", "/data"), ("train.json", ".")])
def test_a_file_is_no_folder(data: str, folder: str) -> None:
    for task in ("sft", "peft"):
        text = f'qwen3_30b_a3b; h100 x 16; task {task}; data "{data}"; set checkpoint.pretrained_checkpoint = "/w"'
        (found,) = checked(text)
        assert found.id == "plan.not_a_folder" and f'`data "{folder}"`' in found.help[0]


@pytest.mark.parametrize(
    ("data", "way"),
    table_of("emit", "data: a file is no prefix", none="-"),
)  # fmt: skip
def test_a_file_is_no_prefix(data: str, way: str | None) -> None:
    """Core's path of the index of a prefix is another one than the file's."""
    found = checked(f'qwen3_30b_a3b; h100 x 16; data "{data}"')
    assert [d.id for d in found] == ["plan.not_a_prefix"] * (way is not None)
    assert all(way in d.help[0] for d in found if way)


MIXTURE = 'set dataset.data_path = ["0.3", "/d/a", "0.7", "/d/b"]'


def test_a_corpus_without_data_is_not_taken_for_mock_data_in_silence() -> None:
    """Its recipe would train 50 steps, and its plan would be that of a run that saves nothing."""
    (found,) = checked(f"qwen3_30b_a3b; h100 x 16; {MIXTURE}")
    assert found.id == "plan.mock_with_corpus" and found.severity == "warning"
    assert checked(f'qwen3_30b_a3b; h100 x 16; data "/d/a"; {MIXTURE}') == []


def test_several_corpora_in_one_word_have_a_way_out() -> None:
    (found,) = checked('qwen3_30b_a3b; h100 x 16; data "0.3 /d/a 0.7 /d/b"')
    assert found.id == "plan.not_a_prefix"
    assert f'`data "/d/a"`, and `{MIXTURE}`' in found.help[0]
    assert checked('qwen3_30b_a3b; h100 x 16; data "/my data/c"') == []


def test_the_preflight_looks_for_each_corpus_of_a_mixture() -> None:
    plan = plan_of(f'qwen3_30b_a3b; h100 x 16; data "/d/a"; {MIXTURE}')
    assert script.input_paths(plan) == ["/d/a", "/d/b"]


def test_fine_tuning_without_weights_is_a_warning() -> None:
    (found,) = (d for d in checked(SFT) if d.id == "plan.sft_without_weights")
    assert found.severity == "warning" and SFT[found.labels[0].span.start :].startswith("task sft")
    for weights in (WEIGHTS, 'set checkpoint.load = "/runs/1"\n'):
        assert checked(SFT + weights) == []
    assert "plan.sft_without_weights" in ids(SFT + 'set checkpoint.save = "/runs/2"\n')
    assert checked(SFT.replace("task sft; ", "")) == []


def test_a_rule_may_name_the_weights() -> None:
    rule = 'rules house { derive checkpoint.pretrained_checkpoint = "/b" because "ours" cite ours "here" }\n'
    assert checked(SFT + rule) == []


def test_it_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On this machine; tests/launch/test_weights.py asks for a cluster."""
    monkeypatch.setattr(local, "gpus", lambda: 0)  # tests/support/test_child_python.py asks torch
    file = tmp_path / "run.moe"
    file.write_text(SFT)
    assert main(["run", str(file), "--no-preflight"]) == 1
    assert "error[plan.sft_without_weights]: run `main` cannot start" in capsys.readouterr().err
    assert main(["run", str(file), "--dryrun"]) == 0
    assert "error[" not in capsys.readouterr().err


def test_the_recipe_says_where_weights_come_from() -> None:
    plan = PLANS["qwen3_30b_h100_sft"]
    field = "cfg.checkpoint.pretrained_checkpoint = "
    assert field not in recipe_text(plan) and "AutoBridge.import_ckpt" in recipe_text(plan)
    assert "convert-torch-dist-to-fsdp-dtensor" not in recipe_text(plan)
    plan = changed(plan, set={"checkpoint.pretrained_checkpoint": "/base"}, policy={"sharding": "fsdp"})
    text = recipe_text(plan)
    assert f'{field}"/base"' in text and "AutoBridge.import_ckpt" not in text
    assert "convert-torch-dist-to-fsdp-dtensor" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("    #")) <= 121


# ---------------------------------------------------------------- lines of a folder


def test_how_lines_are_read_is_said() -> None:
    said = dataset(plan_of(SFT + WEIGHTS)).kwargs["preprocessing"]
    assert said.name == "PromptCompletionSFTPreprocessingConfig" and said.kwargs["prompt_column"] == "input"
    plan = plan_of(SFT + WEIGHTS + CHAT)
    assert dataset(plan).kwargs["preprocessing"].name == "ChatSFTPreprocessingConfig"
    assert "preprocessing=ChatSFTPreprocessingConfig()," in recipe_text(plan)
    assert "cfg.dataset.preprocessing" not in recipe_text(plan)
    assert "dataset.preprocessing" not in decided_fields(plan)
    assert sum("preprocessing" in o for o in overrides(plan)) == 1


@pytest.mark.parametrize(
    ("value", "help"),
    [('"chatt"', "did you mean `chat`?"), ('"messages"', "write `prompts`"), ("none", "write `chat`")],
)
def test_another_word_is_an_error(value: str, help: str) -> None:
    (found,) = checked(SFT + WEIGHTS + CHAT.replace('"chat"', value))
    assert found.id == "check.unknown_word" and help in found.help


@pytest.mark.parametrize(
    "text",
    [
        SFT.replace('; data "/data/sft"', "") + WEIGHTS,
        SFT.replace("task sft; ", ""),
        SFT.replace("qwen3_30b_a3b", "qwen3_vl_30b_a3b") + WEIGHTS,
    ],
)
def test_where_no_folder_is_read_there_is_nothing_to_say_of_it(text: str) -> None:
    assert [d.id for d in checked(text + CHAT)] == ["check.other_class"]
    assert checked(text) == []


@pytest.mark.bridge
@pytest.mark.parametrize("chat", [False, True])
def test_bridge_reads_the_keys_that_the_documents_name(chat: bool, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    row = {"messages": turns} if chat else {"input": "2+2 is", "output": "4"}
    (tmp_path / "training.jsonl").write_text(json.dumps(row) + "\n")
    plan = plan_of(PADDED + WEIGHTS + (CHAT if chat else ""))
    read, learned = ask("lines", tmp_path, plain(dataset(plan)))
    assert (read, learned) == (("user:hi;assistant:hello;", "hello") if chat else ("2+2 is 4\1", " 4\1"))


@pytest.mark.bridge
def test_bridge_packs_as_the_plan_says(tmp_path: Path) -> None:
    rows = [{"input": "x" * (1 + i % 7 * 40), "output": "y"} for i in range(40)]
    for name in ("training", "validation"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = plan_of(SFT.replace("batch 64", "batch 8") + WEIGHTS + "seq 512\npin cp=2 dp=8\n")
    width, bounds = ask("packed", tmp_path, plain(dataset(plan)))
    assert width == 512 and {b % 4 for pack in bounds for b in pack} == {0}
    samples = sum(b - a > 0 for pack in bounds for a, b in zip([0, *pack], pack, strict=False))
    assert len(bounds) < 12 and samples >= len(rows)


# ---------------------------------------------------------------- batches of validation


@pytest.mark.parametrize(
    ("text", "times"), [(SFT + WEIGHTS, 1), (PADDED + WEIGHTS + "pin micro_batch=2\n", 2), (DEEPSEEK + REAL, 8)]
)
def test_validation_takes_the_smallest_batch(text: str, times: int) -> None:
    plan = plan_of(text)
    assert settings(plan)["validation.eval_global_batch_size"] == plan.layout.dp * times
    assert "# the smallest batch; validation.jsonl must fill" in recipe_text(plan)


def test_other_data_validates_on_the_batch_that_it_trains_on() -> None:
    for name in ("qwen3_30b_h100_real_data", "qwen3_30b_h100_bf16", "qwen3_vl_235b_gb200_energon"):
        assert "validation.eval_global_batch_size" not in settings(PLANS[name])


@pytest.mark.bridge
def test_bridge_wants_a_whole_batch_of_validation(tmp_path: Path) -> None:
    smallest, whole = ask("batches", tmp_path, [8, 64])
    assert smallest == 5 and "global_batch_size=64" in whole


# ---------------------------------------------------------------- a corpus


@pytest.mark.bridge
def test_a_small_corpus_builds_and_asks_for_no_test_set(tmp_path: Path) -> None:
    asked = plain(dataset(PLANS["qwen3_30b_h100_real_data"]))
    train, valid, test = ask("corpus", tmp_path, asked)
    assert train >= 64 and valid >= 64 and test is None


@pytest.mark.bridge
def test_bridges_own_split_never_ends_on_it(tmp_path: Path) -> None:
    asked = plain(dataset(PLANS["qwen3_30b_h100_real_data"]))
    asked["kwargs"]["split"] = "9999,8,2"
    assert ask("corpus", tmp_path, asked) == "still building"


# ---------------------------------------------------------------- tokenizers

OWN = """from transformers import PreTrainedTokenizer
class OwnTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "own.model"}
    def __init__(self, vocab_file=None, **more):
        self.known = {str(i): i for i in range(50)}
        super().__init__(**more)
    @property
    def vocab_size(self): return 50
    def get_vocab(self): return dict(self.known)
    def _tokenize(self, text): return list(text)
    def _convert_token_to_id(self, token): return self.known.get(token, 0)
    def _convert_id_to_token(self, id): return str(id)
"""
KIMI = "kimi_k2; gb300 x 256; precision mxfp8; throughput first\npin dispatcher=hybridep moments=bf16\n"


@pytest.mark.parametrize(("text", "trusts"), [(MOONLIGHT, True), (KIMI + REAL, True), (DEEPSEEK + REAL, False)])
def test_code_of_a_repository_runs_where_the_tokenizer_is_code(text: str, trusts: bool) -> None:
    assert ("hf_tokenizer_kwargs" in tokenizer(plan_of(text))) == trusts


def test_the_run_has_the_last_word_on_code() -> None:
    said = tokenizer(plan_of(MOONLIGHT + "set tokenizer.trust_remote_code = false\n"))
    assert said["hf_tokenizer_kwargs"]["trust_remote_code"] is False
    assert "hf_tokenizer_kwargs" not in tokenizer(plan_of(KIMI))


@pytest.mark.bridge
def test_bridge_runs_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the field alone is set: validation makes it anew."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text("{}")
    (own / "own.model").touch()
    (own / "own_tokenizer.py").write_text(OWN)
    auto = {"AutoTokenizer": ["own_tokenizer.OwnTokenizer", None]}
    about = {"tokenizer_class": "OwnTokenizer", "auto_map": auto, "bos_token": "0", "eos_token": "1"}
    (own / "tokenizer_config.json").write_text(json.dumps(about))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    emitted = dict(tokenizer(plan_of(MOONLIGHT)))
    alone = {k: v for k, v in emitted.items() if k != "hf_tokenizer_kwargs"} | {"trust_remote_code": True}
    without, runs = ask("tokenizers", tmp_path, [alone, emitted])
    assert without is not True and runs is True


def test_a_tokenizer_larger_than_the_model_is_a_warning() -> None:
    (found,) = (d for d in compiled(MOONLIGHT + "pin tp=4\n").diagnostics if d.id == "plan.small_vocabulary")
    assert found.severity == "warning" and "163842" in found.message
    assert found.help[0].startswith("write `set model.vocab_size = 163844`")
    assert "plan.small_vocabulary" not in ids(MOONLIGHT + "pin tp=4\nset model.vocab_size = 163844\n")
    assert "plan.small_vocabulary" not in ids(MOONLIGHT.replace('data "/data/sft"; ', ""))
    assert "plan.small_vocabulary" not in ids(SFT + WEIGHTS)


def test_a_vocabulary_that_the_run_sets_is_counted() -> None:
    plain_, larger = (plan_of(MOONLIGHT + "pin tp=4 pp=1\n" + more) for more in ("", "set model.vocab_size = 163844\n"))
    counts = [p.estimate.memory.stages[0].params for p in (plain_, larger)]
    assert counts[1] - counts[0] == 2 * 2048  # one row of each table on a rank


# ---------------------------------------------------------------- multi-token prediction


def test_mtp_learns_nothing_from_masked_text() -> None:
    derived = plan_of(DEEPSEEK + REAL).derived
    assert derived["mtp_loss_scaling_factor"] == 0
    for text in (DEEPSEEK, DEEPSEEK.replace("task sft; ", "") + REAL, SFT + WEIGHTS):
        assert "mtp_loss_scaling_factor" not in plan_of(text).derived
    own = plan_of(DEEPSEEK + REAL + "set model.mtp_loss_scaling_factor = 0.1\n")
    assert settings(own)["model.mtp_loss_scaling_factor"] == 0.1


@pytest.mark.bridge
def test_megatrons_mtp_loss_takes_a_factor_of_zero(tmp_path: Path) -> None:
    """Without the mask every row but the last learns, with it those of the answer, at 0 none; nothing divides by it."""
    assert ask("mtp", tmp_path) == {"True": [63, 10, 0, 0], "False": [63, 10, 0, 0]}


@pytest.mark.parametrize("data", ['"squad"', '"squad" split="train[:5%]"', '"someone/corpus" subset="main" pack=off'])
def test_a_source_is_stated_once(data: str) -> None:
    """Its fields are decided one by one, and what the object does not name has the default of its class."""
    text = recipe_text(plan_of(SFT.replace('"/data/sft"', f"hf {data}")))
    assert text.count("HFDatasetSourceConfig(") == 1 and "cfg.dataset.hf_dataset" not in text
