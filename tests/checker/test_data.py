"""`data`: its options, their mistakes, and what a plan and a recipe make of them."""

import json
import re

import pytest

from moedsl.compiler import compile_source
from moedsl.emit.dataset import dataset
from moedsl.facts import fine_tuning
from moedsl.facts.families import PRESET_SPLITS, PRESETS
from moedsl.facts.fields import lookup
from moedsl.facts.fine_tuning import EXPERTS, METHODS, TARGETS, Adapter, Samples
from moedsl.launch.script import input_paths as paths
from moedsl.planner.text import samples
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT
from tests.helpers.programs import diagnosed, plan_of
from tests.helpers.tables import table_of

WEIGHTS = 'set checkpoint.pretrained_checkpoint = "/w"\n'
BASE = f"qwen3_30b_a3b; h100 x 16; task sft\n{WEIGHTS}"


def checked(text: str) -> tuple[tuple[str, Samples | None] | None, list[str]]:
    result = compile_source(Source("run.moe", text), "check")
    errors = [f"{d.id}: {d.message}" for d in result.diagnostics if d.is_error]
    return ((p := result.programs[0]).data, p.samples) if not errors else None, errors


def test_every_option_is_read() -> None:
    assert checked(BASE + 'data "/d"')[0] == ("/d", Samples())
    made = Samples("hf", False, (4.0, 9.5), "train[:90%]", "main")
    assert checked(BASE + 'data hf "a/b" pack=off lengths=[9.5, 4] split="train[:90%]" subset="main"')[0] == (
        "a/b",
        made,
    )
    assert checked(BASE + "data mock")[0] == ("mock", None)
    assert checked('qwen3_30b_a3b; h100 x 16; data "/d"')[0] == ("/d", None)


def test_a_file_without_quotes_is_quoted() -> None:
    found = compile_source(Source("run.moe", BASE + "data my.jsonl"), "check").diagnostics
    assert [h for d in found if d.is_error for h in d.help] == ['write a path in double quotes: `data "my.jsonl"`']


MISTAKES = table_of("checker", "data: mistakes")


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_an_error(line: str) -> None:
    assert checked(BASE + line)[1] == [MISTAKES[line]]


def test_other_runs_have_no_samples() -> None:
    text = "`pack` is for samples, which only fine-tuning on text reads"
    assert checked('qwen3_30b_a3b; h100 x 16; data "/d" pack=on')[1] == [f"check.data: {text}"]
    assert checked(f'qwen3_vl_30b_a3b; h100 x 16; task sft; data "/d" pack=on\n{WEIGHTS}')[1] == [f"check.data: {text}"]
    text = "only fine-tuning on text reads a data set of Hugging Face"
    assert checked('qwen3_30b_a3b; h100 x 16; data hf "squad"')[1] == [f"check.data: {text}"]
    vlm = f'qwen3_vl_30b_a3b; h100 x 8; task sft; vlm; data hf "cord_v2"\n{WEIGHTS}'
    (found,) = [d for d in diagnosed(vlm) if d.id == "check.data"]
    assert found.message == text and "reads an Energon dataset" in found.help[0]


def test_a_plan_packs_unless_bridges_recipes_do_not() -> None:
    packed = plan_of(BASE + 'data "/d"\n')
    assert packed.samples is not None and packed.samples.pack and packed.estimate.useful_share == 1
    assert dataset(packed).kwargs["enable_offline_packing"] is True
    (decided,) = (d for d in packed.decisions if d.name == "pack")
    assert decided.origin == "defaulted" and "recipes/common.py" in str(decided.cite)
    padded = plan_of(BASE + 'data "/d" pack=off\n')
    assert "offline_packing_specs" not in dataset(padded).kwargs
    assert packed.experiment.fingerprint != padded.experiment.fingerprint
    next_ = plan_of(f'qwen3_next_80b_a3b; h100 x 32; task sft; data "/d"\n{WEIGHTS}')
    assert next_.samples is not None and not next_.samples.pack
    assert plan_of(BASE).samples is None


def test_packing_follows_the_layout() -> None:
    plan = plan_of(BASE + 'data "/d"\nseq 8k; throughput first\npin cp=2 cuda_graph=[attn, moe_router]\n')
    specs = dataset(plan).kwargs["offline_packing_specs"].kwargs
    assert specs == {"packed_sequence_size": 8192, "pad_seq_to_mult": 4, "pad_cu_seqlens": True}
    assert plan.batch.micro_batch == 1


def test_lengths_are_useful_tokens() -> None:
    lengths = "lengths=[100, 300, 900, 2700]"
    packed, padded = (plan_of(f'{BASE}data "/d" pack={pack} {lengths}\n') for pack in ("on", "off"))
    assert padded.estimate.useful_share == pytest.approx(1000 / 4096)
    assert packed.estimate.useful_share > 0.9
    assert packed.samples is not None and packed.samples.per_sequence == pytest.approx(4, abs=0.3)
    e = packed.estimate
    assert e.useful_tokens_per_s_per_gpu == pytest.approx(e.useful_share * e.tokens_per_s_per_gpu)
    whole = plan_of(BASE + 'data "/d"\n').estimate
    assert e.model_tflops_per_gpu * e.step_time_s < whole.model_tflops_per_gpu * whole.step_time_s
    assert e.step_time_s < whole.step_time_s == padded.estimate.step_time_s


def test_what_measures_lengths_exists() -> None:
    """The file of a folder; of a data set of Hugging Face the one that Bridge makes (bridge data/builders/gpt_sft.py)."""
    folder, hub = (samples(plan_of(f"{BASE}data {data}\n"))[-1] for data in ('"/d/"', 'hf "squad"'))
    assert "`moedsl data stats /d/training.jsonl` measures them" in folder
    assert "its log names the path; `moedsl data stats` measures that file" in hub and "FILE" not in hub


def test_a_data_set_by_name_is_no_path() -> None:
    assert paths(plan_of(BASE + 'data hf "squad"\n')) == ["/w"]
    assert paths(plan_of(BASE + 'data "/d"\n')) == ["/d", "/w"]
    chat = dataset(plan_of(BASE + 'data hf "tulu3"\n')).kwargs
    assert chat["preprocessing"].name == "ChatSFTPreprocessingConfig"
    assert chat["hf_dataset"].kwargs == {"dataset_name": "tulu3"} and "dataset_root" not in chat
    other = dataset(plan_of(BASE + 'data hf "a/b" split="train"\n')).kwargs
    assert other["hf_dataset"].kwargs == {"path_or_dataset": "a/b", "split": "train"}


@pytest.mark.bridge
def test_bridge_has_these_data_sets() -> None:
    code = (
        "import json; from megatron.bridge.recipes.utils import dataset_utils as u\n"
        "made = [u.default_squad_config(8), u.default_tulu3_config(), u.default_openmathinstruct2_config(),"
        " u.default_gsm8k_config(), u.default_openmathinstruct2_thinking_config()]\n"
        "print(json.dumps({m.hf_dataset.dataset_name: type(m.preprocessing).__name__ for m in made}))"
    )
    done = bridge_process.run("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    names = {"prompts": "PromptCompletionSFTPreprocessingConfig", "chat": "ChatSFTPreprocessingConfig"}
    assert json.loads(done.stdout.splitlines()[-1]) == {n: names[w] for n, w in PRESETS.items()}


@pytest.mark.bridge
def test_bridge_has_these_splits() -> None:
    code = (
        "import json; from megatron.bridge.data.sources import hf\n"
        "print(json.dumps({n: p.supported_splits for n, p in hf._HF_DATASET_PRESETS.items()}))"
    )
    done = bridge_process.run("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {n: tuple(found[n]) for n in PRESETS} == PRESET_SPLITS
    rules = (ROOT / "stdlib/rules/recipe_training.moe").read_text(encoding="utf-8")
    for split, name in (("validation", "hub_validation_split"), ("test", "hub_test_split")):
        listed = rules.partition(f"require {name}:")[2].partition(" in [")[2].partition("]")[0]
        assert sorted(json.loads(f"[{listed}]")) == sorted(n for n, splits in found.items() if split in splits)


@pytest.mark.parametrize(("path", "value", "help"), [
    ("dataset_name", '"gsm8k"', 'write `data hf "gsm8k"`'),
    ("path_or_dataset", '"a/b"', 'write `data hf "a/b"`'),
    ("split", '"validation"', 'write `split="validation"` after the name of `data hf`'),
    ("subset", '"main"', 'write `subset="main"` after the name of `data hf`'),
])  # fmt: skip
def test_a_set_of_the_data_set_is_a_word_of_data(path: str, value: str, help: str) -> None:
    text = BASE + f'data hf "squad"\nset dataset.hf_dataset.{path} = {value}\n'
    found = [d for d in compile_source(Source("run.moe", text)).diagnostics if d.is_error]
    assert [(d.id, *d.help) for d in found] == [("plan.set_decided", help)]


@pytest.mark.parametrize(("data", "path"), [('hf "tulu3"', "prompt_column"), ('"/d"', "add_eos")])
def test_a_field_of_another_preprocessing(data: str, path: str) -> None:
    value = '"text"' if path == "prompt_column" else "true"
    text = BASE + f"data {data}\nset dataset.preprocessing.{path} = {value}\n"
    chats = text + ("" if "tulu" in data else 'set dataset.preprocessing = "chat"\n')
    (found,) = (d for d in compile_source(Source("run.moe", chats), "check").diagnostics if d.is_error)
    assert found.id == "check.other_class" and found.help == ('`set dataset.preprocessing = "prompts"` has it',)
    prompts = text + ('set dataset.preprocessing = "prompts"\n' if "tulu" in data else "")
    assert not any(d.is_error for d in compile_source(Source("run.moe", prompts), "check").diagnostics)


# `adapter`: its options, their mistakes, and the fields of Bridge that they are.

ADAPTED = "qwen3_30b_a3b; h100 x 8; task peft; "


def checked_adapter(text: str) -> tuple[Adapter | None, list[str]]:
    result = compile_source(Source("run.moe", text), "check")
    errors = [f"{d.id}: {d.message}" for d in result.diagnostics if d.is_error]
    return (result.programs[0].adapter if not errors else None), errors


def test_the_default_is_that_of_bridges_common_function() -> None:
    made, _ = checked_adapter(ADAPTED)
    four = frozenset(("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"))
    assert made == Adapter("lora", 32, 32, 0.0, four, "shared")


def test_every_option_of_an_adapter_is_read() -> None:
    made, _ = checked_adapter(
        ADAPTED
        + "adapter lora rank=8 alpha=16 dropout=0.1 targets=[linear_qkv, router] experts=each normalized=on regather=on"
    )
    assert made == Adapter("lora", 8, 16, 0.1, frozenset(("linear_qkv", "router")), "each", True, True)
    assert (
        checked_adapter(ADAPTED + "adapter lora dropout=5%")[0]
        == checked_adapter(ADAPTED + "adapter lora dropout=0.05")[0]
    )


def test_another_method_has_its_own_defaults() -> None:
    dora, canonical = (checked_adapter(ADAPTED + f"adapter {m}")[0] for m in ("dora", "canonical_lora"))
    assert dora is not None and dora.alpha == 64
    assert canonical is not None and "linear_q" in canonical.targets and "linear_qkv" not in canonical.targets


ADAPTER_MISTAKES = table_of("checker", "data: adapter mistakes")


@pytest.mark.parametrize("text", ADAPTER_MISTAKES)
def test_a_mistake_has_one_message(text: str) -> None:
    assert checked_adapter(ADAPTED + text)[1] == [ADAPTER_MISTAKES[text]]


@pytest.mark.parametrize(
    ("method", "word", "target"),
    [("lora", "v_proj", "linear_qkv"), ("dora", "o_proj", "linear_proj"), ("lora", "up_proj", "linear_fc1"),
     ("canonical_lora", "gate_proj", "linear_fc1_gate"), ("canonical_lora", "q_proj", "linear_q")],
)  # fmt: skip
def test_a_name_of_hugging_face_is_answered_with_megatrons(method: str, word: str, target: str) -> None:
    text = ADAPTED + f"adapter {method} targets=[{word}]"
    (found,) = compile_source(Source("run.moe", text), "check").diagnostics
    assert found.help == (f"in Megatron `{word}` of Hugging Face is in `{target}`",)
    made, _ = checked_adapter(text.replace(word, target))
    assert made is not None and made.targets == {target}


def test_a_target_that_the_model_lacks_is_said() -> None:
    text = ADAPTED + 'data "/d"; weights "/w"; adapter lora targets=[linear_qkv, in_proj]'
    (found,) = compile_source(Source("run.moe", text), "check").diagnostics
    assert found.id == "check.adapter_target" and "has no `in_proj`" in found.message


def test_an_adapter_needs_its_task() -> None:
    _, errors = checked_adapter("qwen3_30b_a3b; h100 x 8; task sft; adapter lora")
    assert errors == ["check.adapter: only `task peft` trains an adapter"]


def test_a_field_of_an_adapter_needs_one() -> None:
    path = "peft.dropout_position"
    assert checked_adapter(ADAPTED + f'set {path} = "post"')[1] == []
    for text in (
        f'qwen3_30b_a3b; h100 x 8; task sft; set {path} = "post"',
        ADAPTED + "adapter dora; set peft.lora_dtype = torch.float32",
    ):
        result = compile_source(Source("run.moe", text), "plan")
        assert [d.id for d in result.diagnostics if d.is_error] == ["check.other_class"]


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("method", METHODS)
def test_the_object_for_bridge_reads_back(method: str, experts: str) -> None:
    if (method == "dora" and experts == "each") or not fine_tuning.has_experts(method, experts):
        return
    a = Adapter(**{**fine_tuning.defaults(method), "method": method, "experts": experts})
    call = fine_tuning.call(a)
    assert fine_tuning.read(call.name, {f"peft.{n}": v for n, v in call.kwargs.items()}) == a


def test_patterns_of_others_are_not_guessed() -> None:
    for targets in (
        ["*.layers.0.*.linear_qkv"],
        ["*.mlp.linear_fc1"],
        ["linear_fc1", "*.mlp.linear_fc2", "*.shared_experts.linear_fc2"],
        [],
    ):
        assert fine_tuning.read("LoRA", {"peft.target_modules": targets}) is None
    assert fine_tuning.read("VLMLoRA", {}) is None


def test_targets_cover_bridges_defaults() -> None:
    field = lookup("peft.target_modules")
    assert field is not None
    named = {t for value in (field.default, *field.others.values()) for t in value}
    assert named <= {*TARGETS}, json.dumps(sorted(named))


# `weights`: what a run starts from.

RUN = "qwen3_30b_a3b; h100 x 16; task sft; "


def test_a_model_of_hugging_face_has_a_folder() -> None:
    (program,) = compile_source(Source("run.moe", RUN + 'weights hf "org/mine"'), "check").programs
    assert program.hub_weights == "org/mine"
    assert program.sets["checkpoint.pretrained_checkpoint"] == "nemo_experiments/weights/org--mine"


def test_a_path_is_the_field_of_bridge() -> None:
    (program,) = compile_source(Source("run.moe", RUN + 'weights "/c"'), "check").programs
    (same,) = compile_source(Source("run.moe", RUN + 'set checkpoint.pretrained_checkpoint = "/c"'), "check").programs
    assert program.hub_weights is None
    assert program.sets == same.sets


@pytest.mark.parametrize(("text", "id"), table_of("checker", "data: weights"))
def test_mistakes(text: str, id: str) -> None:
    found = [d.id for d in compile_source(Source("run.moe", text), "check").diagnostics if d.is_error]
    assert found == [id]


def test_weights_of_a_sibling_are_a_warning_with_the_way_to_declare_it() -> None:
    """Nothing compares the rotary base or the tokenizer of another repository."""
    other = "Qwen/Qwen3-30B-A3B-Instruct-2507"
    (d,) = compile_source(Source("run.moe", f'{RUN}weights hf "{other}"'), "check").diagnostics
    assert (d.id, d.severity) == ("check.other_weights", "warning")
    assert other in d.message and f"--hf {other}" in " ".join(d.help)
    assert not compile_source(Source("run.moe", RUN + 'weights hf "Qwen/Qwen3-30B-A3B"'), "check").diagnostics


@pytest.mark.parametrize(
    ("run", "least"),
    [
        ('deepseek_v3; h100 x 512; task sft; weights hf "deepseek-ai/DeepSeek-V3"', "1.37"),
        ('kimi_k2; h200 x 1024; task sft; weights hf "moonshotai/Kimi-K2-Instruct"', "2.05"),
        ('glm45_355b; gb200 x 128; task sft; weights hf "zai-org/GLM-4.5"', "0.71"),
        ('deepseek_v3; b200 x 512; task sft; weights hf "deepseek-ai/DeepSeek-V3"', None),  # its nodes vary
        ('qwen3_235b_a22b; h100 x 256; task sft; weights hf "Qwen/Qwen3-235B-A22B"', None),
    ],
)
def test_the_import_of_weights_is_compared_with_the_memory_of_a_node(run: str, least: str | None) -> None:
    """Two bytes for each parameter that transformers counts in the published configuration."""
    found = compile_source(Source("run.moe", run), "check").diagnostics
    told = [d for d in found if d.id == "check.import_memory"]
    assert not [d for d in found if d.is_error]
    assert [f"at least {least} TB" in d.message for d in told] == ([True] if least else [])
    more = "; cluster ours { executor slurm; hardware h100; node_memory 6 TB }"
    again = compile_source(Source("run.moe", run.replace("h200", "h100").replace("gb200", "h100") + more), "check")
    assert not [d for d in again.diagnostics if d.is_error or d.id == "check.import_memory"]


def test_pretraining_from_weights_is_told_the_rates_of_a_continued_run() -> None:
    run = 'qwen3_30b_a3b; h100 x 16; weights "/c"'
    (d,) = compile_source(Source("run.moe", run), "check").diagnostics
    assert (d.id, d.severity) == ("check.continued_rate", "warning")
    sets = re.findall(r"`set (\S+) = \.\.\.`", " ".join(d.help))
    assert sets == ["optimizer.lr", "optimizer.min_lr"]
    stated = run + "".join(f"; set {path} = 1e-5" for path in sets)
    assert not compile_source(Source("run.moe", stated), "check").diagnostics
