"""`moedsl diff`: the experiment against how it runs, between sources of one kind and of two."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge import run_sides
from moedsl.bridge.diff import Comparison, compare, text
from moedsl.bridge.fields import of_plan, of_recipe
from moedsl.bridge.run_sides import Options, Side
from moedsl.bridge.verify.cases import Case, Refusal, devices
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
from moedsl.cli import main
from moedsl.emit.recipe import recipe_text
from moedsl.planner.experiment import settings
from moedsl.rules.rule import BENCHMARK, EXECUTION, EXPERIMENT, UNKNOWN
from moedsl.runs.results.gather import read_plan
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of

EXAMPLES = ROOT / "examples"
RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; "


def diff(*targets: str, texts: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    a, b = run_sides.read_sides(targets, texts, **more)
    assert isinstance(a, Side) and isinstance(b, Side), (a, b)
    return compare(a, b).to_json()


def of_texts(a: str, b: str) -> dict[str, Any]:
    return diff(texts=(RUN + a, RUN + b))


def names(d: dict[str, Any], effect: str) -> set[str]:
    return {x["name"] for x in d["changes"][effect]}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one file, compiled."""
    out = tmp_path_factory.mktemp("compiled")
    assert main.main(["compile", str(EXAMPLES / "several_runs.moe"), "-o", str(out)]) == 0
    return out


# ---------------------------------------------------------------- two plans


def test_a_run_and_itself() -> None:
    d = of_texts("", "")
    assert not any(d["changes"].values())
    assert d["verdict"]["same_experiment"] is True and d["a"]["fingerprint"] == d["b"]["fingerprint"]


def test_the_same_experiment_run_differently() -> None:
    d = of_texts("pin ep=8 recompute=none", "pin ep=16 recompute=full")
    assert names(d, EXECUTION) >= {"ep", "recompute"} and not names(d, EXPERIMENT)
    assert d["verdict"]["says"][0] == "the same experiment, run differently"
    assert d["a"]["fingerprint"] == d["b"]["fingerprint"]


@pytest.mark.parametrize(("more", "name"), table_of("diff", "another experiment"))
def test_another_experiment(more: str, name: str) -> None:
    d = of_texts("", more)
    assert name in names(d, EXPERIMENT)
    assert "different experiments: do not compare losses" in d["verdict"]["says"]
    assert d["a"]["fingerprint"] != d["b"]["fingerprint"]


@pytest.mark.parametrize(("a", "b", "name"), table_of("diff", "another experiment where tokens are dropped"))
def test_what_divides_a_step_decides_which_tokens_are_dropped(a: str, b: str, name: str) -> None:
    drops = "; set model.moe_expert_capacity_factor = 1.25"
    kept, dropped = of_texts(a, b), of_texts(a + drops, b + drops)
    assert name in names(kept, EXECUTION) and name in names(dropped, EXPERIMENT)
    assert kept["a"]["fingerprint"] == kept["b"]["fingerprint"]
    assert dropped["a"]["fingerprint"] != dropped["b"]["fingerprint"]


@pytest.mark.parametrize(("a", "b", "shown"), table_of("diff", "texts that are no values"))
def test_a_text_is_not_the_value_that_it_spells(a: str, b: str, shown: str, tmp_path: Path) -> None:
    for name, line in (("a", a), ("b", b)):
        target = "_target_: megatron.bridge.models.gpt_provider.GPTModelProvider"
        (tmp_path / f"{name}.yaml").write_text(f"model:\n  {target}\n  {line}\n")
    d = diff(str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    assert d["verdict"]["same_experiment"] is None
    assert shown in text(Comparison.from_json(d))


def test_a_benchmark_is_no_proxy() -> None:
    d = of_texts('data "corpus"', 'data "corpus"; routing balanced')
    assert names(d, BENCHMARK) == {"routing"} and d["verdict"]["benchmark_only"] == ["b"]
    assert d["verdict"]["says"] == [
        "B is benchmark-only (routing balanced): its speed is not that of training, its loss is meaningless"
    ]


@pytest.mark.bridge
@pytest.mark.parametrize(("changed", "paths"), [
    (('prompt_column="input"', 'prompt_column="question"'), {"dataset.preprocessing.prompt_column"}),
    (('separator=" "', 'separator=" ", loss_mode="full"'), {"dataset.preprocessing.loss_mode"}),
    (('"PROMPTS"', '"PROMPTS"'), set()),
])  # fmt: skip
def test_how_samples_are_read_is_the_experiment(
    changed: tuple[str, str], paths: set[str], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_sides, "Server", lambda jobs: nullcontext(server))
    run = 'qwen3_30b_a3b; h100 x 8; task sft; data hf "squad"'
    text = recipe_text(plan_of(run))
    (a := tmp_path / "a.py").write_text(text)
    (b := tmp_path / "b.py").write_text(text.replace(*changed))
    assert names(diff(str(a), str(b), options=Options("h100", 8)), EXPERIMENT) == paths
    (program := tmp_path / "run.moe").write_text(run.replace("; ", "\n"))
    assert names(diff(str(program), str(b), options=Options("h100", 8)), EXPERIMENT) == paths


def test_samples_of_hugging_face_are_chats_if_nothing_is_said() -> None:
    fields = {"dataset.hf_dataset": "<HFDatasetSourceConfig>", "dataset.preprocessing": None}
    made = of_recipe(fields, {"dataset": "GPTSFTDatasetConfig"})
    assert made["dataset.preprocessing"] == "<ChatSFTPreprocessingConfig>"
    assert made["dataset.preprocessing.loss_mode"] == "assistant"


def test_mock_data_against_real_data() -> None:
    d = of_texts('data "corpus"', "data mock")
    assert names(d, BENCHMARK) == {"data"} and d["verdict"]["benchmark_only"] == ["b"]


def test_the_fingerprint_and_the_verdict_agree() -> None:
    """Two roads to one answer: plans are one experiment where their fingerprints are equal."""
    texts = ["", "pin tp=2", "precision fp8", "routing balanced", "task sft", "pin micro_batch=2", "scale first"]
    made = [s for s in run_sides.read_sides((), [RUN + t for t in texts]) if isinstance(s, Side)]
    assert len(made) == len(texts)
    for a in made:
        for b in made:
            d = compare(a, b).to_json()
            same = d["a"]["fingerprint"] == d["b"]["fingerprint"]
            assert (d["verdict"]["same_experiment"] is True) == same, (a.plan, b.plan)


def test_one_change_alone_is_priced() -> None:
    mesh = "pin ep=16 etp=1 tp=1 cp=1 pp=1 offload=none "
    d = of_texts(mesh + "recompute=moe_act", mesh + "recompute=full")
    assert names(d, EXECUTION) == {"recompute"}
    (line,) = [x for x in d["changes"][EXECUTION] if x["name"] == "recompute"]
    e = d["estimates"]
    slower, more = 100 * (e["step_time_s"][1] / e["step_time_s"][0] - 1), e["peak_gib"][1] - e["peak_gib"][0]
    assert line["alone"] == f"{slower:+.1f}% step time, {more:+.1f} GiB"


def test_useful_tokens_normalise() -> None:
    d = diff(texts=("qwen3_30b_a3b; h100 x 16; seq 4k; batch 512", "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024"))
    e = d["estimates"]
    assert e["step_time_s"][1] / e["step_time_s"][0] > 1.8
    assert e["tokens_per_s_per_gpu"][1] == pytest.approx(e["tokens_per_s_per_gpu"][0], rel=0.05)
    for i in (0, 1):
        rate = e["tokens_per_step"][i] / e["step_time_s"][i] / 16
        assert rate == pytest.approx(e["tokens_per_s_per_gpu"][i])
        assert e["gpu_hours_per_1e9_tokens"][i] == pytest.approx(1e9 / rate / 3600)
    assert "compare by useful tokens" in text(Comparison.from_json(d))


def test_a_users_own_effect_counts() -> None:
    own = '\nrules mine { effect model.qk_clip_alpha = execution because "a test" cite ours "here" }\n'
    assert names(of_texts("", "\nset model.qk_clip_alpha = 0.25"), EXPERIMENT) == {"model.qk_clip_alpha"}
    assert names(of_texts("", own + "set model.qk_clip_alpha = 0.25"), EXECUTION) == {"model.qk_clip_alpha"}


def test_models_of_one_name_differ_by_their_facts(tmp_path: Path) -> None:
    own = (EXAMPLES / "own_model.moe").read_text(encoding="utf-8")
    assert "ffn_hidden 6144" in own
    d = diff(texts=(own, own.replace("ffn_hidden 6144", "ffn_hidden 4096")))
    assert "model facts" in names(d, EXPERIMENT)


# ---------------------------------------------------------------- other sources


def test_a_folder_its_plan_and_the_file_are_one(compiled: Path) -> None:
    for other in (str(compiled / "tuned" / "plan.json"), str(EXAMPLES / "several_runs.moe") + ":tuned"):
        d = diff(str(compiled / "tuned"), other)
        assert not any(d["changes"].values()) and d["by"] == "words"


def test_a_recipe_is_read_without_bridge(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sides, "is_installed", lambda: False)
    d = diff(str(compiled / "tuned" / "recipe.py"), str(compiled / "scale_out" / "recipe.py"))
    assert d["a"]["how"] == "source" and "comm_overlap.overlap_moe_expert_parallel_comm" in names(d, EXECUTION)
    d = diff(str(compiled / "tuned" / "recipe.py"), str(compiled / "tuned"))
    assert d["compared"] > 20 and not names(d, EXPERIMENT) and not names(d, EXECUTION)


@pytest.fixture(scope="module")
def long() -> dict[str, Any]:
    """Two plans of 64k, which say of their batch what it is against 4K."""
    text = "qwen3_30b_a3b; h100 x 64; seq 64k"
    return diff(texts=(text, text + "; throughput first"))


def test_commentary_of_a_plan_is_no_field(long: dict[str, Any]) -> None:
    assert not names(long, UNKNOWN) and long["verdict"]["same_experiment"] is True
    assert "against_4k" not in text(Comparison.from_json(long))


def test_every_setting_of_a_plan_is_a_word() -> None:
    """What `settings` leaves out is commentary alone: no value of a word is lost."""
    for program in ("qwen3_vl_30b_a3b; h100 x 16; seq 64k", "deepseek_v3; gb200 x 256"):
        (side,) = run_sides.read_sides((), [program])
        assert isinstance(side, Side) and side.plan is not None
        sections = (side.plan.batch, side.plan.layout, side.plan.policy)
        left = {n for s in sections for n in s.to_json()} - {*settings(*sections)}
        assert left <= {"against_4k"}


def of_fields(name: str, a: Any, b: Any) -> dict[str, Any]:
    """Compare two recipes that differ in one field at most."""
    return compare(*(Side("recipe.py", "source", {"model.seq_length": 4096, name: v}) for v in (a, b))).to_json()


def test_what_nobody_set_is_off_and_alike_values_are_told_apart() -> None:
    assert not any(of_fields("model.inference_cuda_graph_scope", None, "none")["changes"].values())
    assert "model.recompute_modules  null -> []" in text(
        Comparison.from_json(of_fields("model.recompute_modules", None, []))
    )


def test_what_no_effect_names_is_unknown() -> None:
    d = of_fields("model.no_such_field", 1, 2)
    assert names(d, UNKNOWN) == {"model.no_such_field"} and d["verdict"]["same_experiment"] is None


def test_two_kinds_compare_by_the_fields_that_both_have(compiled: Path) -> None:
    recipe = str(compiled / "tuned" / "recipe.py")
    d = diff(recipe, str(compiled / "scale_out"), options=Options(read_only=True))
    assert d["by"] == "fields" and {"comm_overlap.overlap_moe_expert_parallel_comm", "mixed_precision.fp8_recipe"} & {
        x["name"] for group in d["changes"].values() for x in group
    }
    assert not names(d, UNKNOWN)


def test_one_layout_and_one_dtype_in_each_spelling() -> None:
    name = "model.pipeline_model_parallel_layout"
    lists = of_recipe({name: [["embedding", "decoder"], ["decoder", "mtp", "loss"]]}, {})
    assert lists == of_recipe({name: "Et|tmL"}, {}) == {name: ["Et", "tmL"]}
    dtype = "optimizer.exp_avg_dtype"
    assert of_recipe({dtype: "bfloat16"}, {}) == of_recipe({dtype: "torch.bfloat16"}, {})


def answer(refusal: Refusal | None, built: dict[str, Any], behind: dict[str, Any]) -> Resolved:
    return Resolved("recipe.py", "a_config", built=built, resolved=behind, refusal=refusal)


def test_recipes_are_compared_as_built_where_bridge_refuses_one() -> None:
    """Only A comes behind the update, whose values the recipes do not say."""
    case = Case("recipe.py", "recipe.py", "a_config", {}, devices()["h100"], 16)
    refusal = Refusal("update", "AssertionError", "must be\ndivisible", "megatron/bridge/training/config.py:1")
    one, two = ({"train.global_batch_size": n, "scheduler.lr_decay_steps": None} for n in (1024, 100))
    answers = [answer(None, one, {**one, "scheduler.lr_decay_steps": 9}), answer(refusal, two, two)]
    a, b = run_sides.resolved([case, case], answers)
    assert isinstance(a, Side) and isinstance(b, Side)
    d = compare(a, b).to_json()
    assert names(d, EXPERIMENT) == {"train.global_batch_size"}
    assert d["verdict"]["says"][0] == "Bridge refuses B: must be divisible"
    assert "before what runtime_config_update" in d["verdict"]["says"][1]
    assert d["b"]["refused"] == "must be divisible" and d["a"]["refused"] is None
    a, b = run_sides.resolved([case, case], answers[:1] * 2)
    assert isinstance(a, Side) and a.fields["scheduler.lr_decay_steps"] == 9 and not a.as_built


def test_a_run_that_goes_on_from_its_own_checkpoints_is_no_other() -> None:
    own = of_recipe({"checkpoint.load": "a/b", "checkpoint.save": "a/b"}, {})
    other = of_recipe({"checkpoint.load": "c", "checkpoint.save": "a/b"}, {})
    assert "checkpoint.load" not in own and other["checkpoint.load"] == "c"


def test_a_plan_of_mock_data_says_so(compiled: Path) -> None:
    plan = read_plan(compiled / "tuned" / "plan.json")
    assert plan is not None and of_plan(plan)["dataset.mock"] is True


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give two sides"),
        (["a.moe", "b.moe", "c.moe"], "give two sides"),
        (["nowhere.moe", "-e", RUN], "does not exist"),
        ([str(EXAMPLES / "several_runs.moe"), "-e", RUN], "has 3 runs: bring_up, scale_out, tuned"),
        ([str(EXAMPLES / "several_runs.moe") + ":tunde", "-e", RUN], "did you mean `tuned`?"),
        ([str(EXAMPLES), "-e", RUN], "recipe.py"),
        ([str(EXAMPLES / "sft.moe"), "-e", "qwen3_30b_a3c; h100 x 8"], "qwen3_30b_a3b"),
        (["model.a=1", "-e", RUN], "no such file"),
        (["no_recipe.py", "-e", RUN], "no such file"),
        (["none/plan.json", "-e", RUN], "none/plan.json does not exist"),
    ],
)
def test_a_wrong_side_is_answered(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["diff", *words]) == 1
    said = capsys.readouterr().err
    assert says in said and "Errno" not in said


def test_a_file_that_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, says in (("{}", "is not the plan of one run"), ("{", "cannot be read as JSON")):
        (tmp_path / "plan.json").write_text(content, encoding="utf-8")
        assert main.main(["diff", str(tmp_path), "-e", RUN]) == 1
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(("b", "code"), [(RUN + "pin tp=2", 0), (RUN + "precision fp8", 1)])
def test_the_exit_code(b: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["diff", "-e", RUN, "-e", b]) == 0
    assert main.main(["diff", "-e", RUN, "-e", b, "--exit-code"]) == code


def test_json_and_text_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", "-e", RUN, "-e", RUN + "precision fp8; pin ep=8"]
    assert main.main([*words, "--json"]) == 0
    d = json.loads(capsys.readouterr().out)
    assert main.main(words) == 0
    out = capsys.readouterr().out
    assert out == text(Comparison.from_json(d))
    for line in (*d["verdict"]["says"], "Changes the experiment", "precision  bf16 -> fp8_blockwise"):
        assert line in out


# ---------------------------------------------------------------- through the real Bridge

PERF = "megatron.bridge.perf_recipes.qwen.h100.qwen3_moe:qwen3_30b_a3b_pretrain_16gpu_h100_{}_config"


@pytest.mark.bridge
def test_through_the_real_bridge(compiled: Path, server: Server) -> None:
    recipe, plan, bf16, fp8 = run_sides.read_sides(
        [str(compiled / "tuned" / "recipe.py"), str(compiled / "tuned"), PERF.format("bf16"), PERF.format("fp8cs")],
        server=server,
    )
    assert isinstance(recipe, Side) and isinstance(plan, Side) and isinstance(bf16, Side) and isinstance(fp8, Side)
    same = compare(recipe, plan).to_json()
    assert same["compared"] > 80 and not any(same["changes"].values()), same["changes"]
    theirs = compare(bf16, fp8).to_json()
    assert names(theirs, EXPERIMENT) >= {"mixed_precision.fp8"} and not names(theirs, UNKNOWN)
    other = {n for n in names(theirs, EXPERIMENT) if "fp8" not in n and "bf16" not in n}
    assert other <= {"checkpoint.load"}, theirs["changes"][EXPERIMENT]  # one of the two has a folder to load from
    assert "model.overlap_moe_expert_parallel_comm" in names(theirs, EXECUTION)
    assert {x["name"] for x in theirs["benchmark"]["a"]} == {"dataset.mock", "model.moe_router_force_load_balancing"}


# ---------------------------------------------------------------- a program and itself like one of Bridge's recipes


def test_a_program_and_itself_like_a_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name, file = "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config", tmp_path / "run.moe"
    file.write_text(RUN + "throughput first", encoding="utf-8")
    assert main.main(["diff", str(file), "--like", name, "--json"]) == 0
    d = json.loads(capsys.readouterr().out)
    plan = next(p for p in [run_sides.read_sides([str(file)])[0]] if isinstance(p, Side)).plan
    assert plan is not None and plan.shipped is not None and d["b"]["name"] == f"{file} --like {name}"
    moved = {x["name"]: x["b"] for x in d["changes"][EXECUTION] if not x["name"].startswith("env_vars.")}
    assert moved == plan.shipped.changes and d["verdict"]["same_experiment"] is True
    assert d["estimates"]["step_time_s"] == [plan.estimate.step_time_s, plan.shipped.step_time_s]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.moe", "b.moe"], "give one program: moedsl diff FILE --like RECIPE"),
        (["plan.json"], "plan.json is not a .moe file"),
        (["-e", RUN], "check.unknown_recipe"),
    ],
)
def test_like_needs_one_program_and_a_recipe(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main.main(["diff", *words, "--like", "nothing"]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("side", ["run", "plan"])
def test_lines_that_were_edited_are_differences(side: str, tmp_path: Path) -> None:
    """The plan leaves the learning rate and the length of the run to Bridge: a line of the recipe may set them."""
    run = tmp_path / "run.moe"
    run.write_text('qwen3_30b_a3b; h100 x 8; seq 4k; task sft; weights "/w"; data "/d" lengths=[100, 900]; fit first')
    assert main.main(["compile", str(run), "-o", str(tmp_path / "out")]) == 0
    recipe = tmp_path / "out" / "recipe.py"
    left = str(run) if side == "run" else str(tmp_path / "out" / "plan.json")
    read_only = run_sides.Options(read_only=True)
    same = diff(left, str(recipe), options=read_only)
    assert not any(same["changes"].values())
    own = "    cfg.train.train_iters = 7\n    cfg.optimizer.lr = 7e-5\n    cfg.optimizer.adam_beta1 = 0.5\n"
    recipe.write_text(recipe.read_text().replace("    return cfg", f"{own}    return cfg"))
    found = diff(left, str(recipe), options=read_only)
    changed = {x["name"]: (x["a"], x["b"]) for x in found["changes"][EXPERIMENT]}
    assert changed.keys() == {"optimizer.lr", "train.train_iters", "optimizer.adam_beta1"}
    assert changed["optimizer.adam_beta1"] == (0.9, 0.5) and changed["optimizer.lr"] == (5e-6, 7e-5)
    assert found["verdict"]["same_experiment"] is False
    assert {x["name"] for x in diff(str(recipe), left, options=read_only)["changes"][EXPERIMENT]} == changed.keys()
