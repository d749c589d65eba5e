"""`set`: each mistake in a value or a field is one diagnostic at its place, and no mistake gets as far as the recipe."""

import re
from itertools import product
from typing import Any

import pytest

import moedsl
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields
from moedsl.facts import facts, fields
from moedsl.facts.families import CHOICES
from moedsl.facts.fields import OTHER_TOOLS, last_name, meant
from moedsl.rules.check.overrides import as_set
from moedsl.support.diagnostics import Diagnostic, Instead
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.programs import compiled, diagnosed, plan_of
from tests.helpers.tables import table_of

RUN = "qwen3_30b_a3b; h100 x 16\n"
SFT = 'qwen3_30b_a3b; h100 x 16; task sft; data "/d"\nset checkpoint.pretrained_checkpoint = "/c"\n'
SPECS = "dataset.offline_packing_specs.packed_sequence_size"

REFUSED = table_of("checker", "set: refused")
OVERWRITTEN = {
    "ddp.bucket_size = 1000": "comm_overlap.bucket_size",
    "ddp.align_param_gather = true": "comm_overlap.align_param_gather",
    "model.overlap_p2p_comm = true": "comm_overlap.overlap_p2p_comm",
    "model.fp8_margin = 2": "mixed_precision.fp8_margin",
    "optimizer.loss_scale = 2.0": "mixed_precision.loss_scale",
}
ACCEPTED = table_of("checker", "set: accepted")
UNPRICED = table_of("checker", "set: unpriced")
"""Values without a price, with what the estimate has."""


DERIVED = table_of("checker", "set: derived")
"""What a rule of the run derives, and the error: the same as of a `set`."""


def derived(line: str) -> str:
    return f'{RUN}rules house {{ derive {line} because "ours" cite ours "here" }}\n'


def found(text: str) -> list[Diagnostic]:
    return [d for d in diagnosed(text) if d.severity != "note"]


@pytest.mark.parametrize("line", REFUSED)
def test_a_mistake_is_one_error_at_the_set(line: str) -> None:
    text = f"{RUN}set {line}"
    (d,) = found(text)
    assert (d.id, d.severity) == (REFUSED[line], "error") and d.help
    start, end = d.labels[0].span.start, d.labels[0].span.end
    assert text[start:end] in line


@pytest.mark.parametrize("line", DERIVED)
def test_a_mistake_is_one_error_at_the_rule_that_derives_it(line: str) -> None:
    text = derived(line)
    (d,) = found(text)
    assert (d.id, d.severity) == (DERIVED[line], "error") and d.help
    start, end = d.labels[0].span.start, d.labels[0].span.end
    assert text[start:end] in line


def test_the_help_for_a_decided_field_that_a_rule_derives_is_a_pin() -> None:
    (d,) = found(derived("tensor_model_parallel_size = 4"))
    assert "`pin tp=4`" in d.help[0] and "`derive` is for" in d.help[0]
    assert [f.title for f in d.fixes] == ["Drop the `derive` of `model.tensor_model_parallel_size`"]


def test_a_rule_derives_a_field_only_for_releases_that_have_it() -> None:
    line, older = "train.gpu_sniff_test_interval = 100", "target bridge 0.4\n"
    (d,) = [d for d in found(older + derived(line)) if d.is_error]
    assert d.id == "plan.not_in_release"
    with_condition = derived(f'{line} when bridge_version >= version("0.6.0")')
    assert not any(d.is_error for d in found(older + with_condition))


def test_a_rule_derives_what_the_plan_leaves_open() -> None:
    text = derived("dataset.num_workers = dp when dp < 100") + derived("logger.log_interval = 5")[len(RUN) :].replace(
        "house", "logs"
    )
    assert found(text) == []
    recipe = recipe_text(plan_of(text))
    assert f"cfg.dataset.num_workers = {plan_of(text).layout.dp}\n" in recipe
    assert "cfg.logger.log_interval = 5\n" in recipe and "log_interval = 1\n" not in recipe


@pytest.mark.parametrize("line", rotation.some("overwritten", [*OVERWRITTEN], 2))
def test_a_field_that_bridge_overwrites_is_a_warning_with_the_field_to_set(line: str) -> None:
    (d,) = found(f"{RUN}set {line}")
    assert (d.id, d.severity) == ("plan.set_overwritten", "warning")
    owner = OVERWRITTEN[line]
    assert owner in d.message and any(f.text == owner for f in d.fixes)
    instead = f"set {owner} = {line.partition(' = ')[2]}"
    assert found(f"{RUN}set {line}\n{instead}") == [] == found(RUN + instead)


@pytest.mark.parametrize("line", rotation.some("accepted", [*ACCEPTED], 4))
def test_what_is_right_is_accepted(line: str) -> None:
    assert found(f"{RUN}set {line}") == []


FSDP = "qwen3_30b_a3b; h100 x 16; pin sharding=fsdp\nset "
AVERAGE = "ddp.average_in_collective = true"
FUSED = "qwen3_30b_a3b; gb200 x 16\nset model.use_transformer_engine_op_fuser = true"
FUSED_ENV = 'env NVTE_CUTEDSL_FUSED_GROUPED_MLP = 1 because "fused experts" cite ours "notes"'
VALIDATED = 'qwen3_vl_30b_a3b; h100 x 16; vlm; data "/d"; set dataset.do_validation = false\ntarget bridge '
FOUND = [
    # one layer in so many, or a number for each layer: the law is about the first
    (f"{RUN}set model.no_rope_freq = 7", ["std.recipe_kernels.layers_without_rope"]),
    (f"{RUN}set model.no_rope_freq = 6", []),
    (f"{RUN}set model.no_rope_freq = [1, 0]", []),
    # a variable that the recipe does not set is none, and no rule of it is left out
    (FUSED, ["std.recipe_kernels.fused_experts"]),
    (f"{FUSED}\nrules mine {{ {FUSED_ENV} }}", []),
    # FSDP averages by itself where it registers its buffers, and gathers no MXFP8 parameters into gradients in BF16
    (FSDP + AVERAGE, ["plan.set_decided"]),
    (f"{FSDP}{AVERAGE}\nset ddp.disable_symmetric_registration = true", []),
    (f"{FSDP}mixed_precision.reuse_grad_buf_for_mxfp8_param_ag = true", ["std.recipe_formats.reused_buffer"]),
    # Bridge 0.5 validates on Energon's data in any case; 0.6 has a field for it
    (f"{VALIDATED}0.5", ["check.other_class"]),
    (f"{VALIDATED}0.6", []),
    # packing is said with the data
    (f"{SFT}set {SPECS} = 8192", ["plan.set_decided"]),
    (f"{SFT}set dataset.offline_packing_specs.num_tokenizer_workers = 4", []),
]


@pytest.mark.parametrize(("text", "ids"), FOUND)
def test_what_is_found(text: str, ids: list[str]) -> None:
    assert [d.id for d in found(text)] == ids


@pytest.mark.parametrize(("text", "id", "help"), [
    # Bridge takes the field and builds no layer for it, so the plan counted one that does not train
    ("qwen3_vl_30b_a3b; gb200 x 16; set model.mtp_num_layers = 1", "check.model", "drop this"),
    (f"{RUN}set ddp.overlap_grad_reduce = false", "plan.set_decided", "set `comm_overlap.overlap_grad_reduce` instead"),
    (f"{RUN}precision fp8_current\nset mixed_precision.fp8_param = false", "plan.set_decided", "set `mixed_precision.fp8_param_gather` instead"),
    (f"{SFT}set dataset.enable_offline_packing = false", "plan.set_decided", "pack=off"),
])  # fmt: skip
def test_the_help_says_what_to_write(text: str, id: str, help: str) -> None:
    (d,) = found(text)
    assert (d.id, d.severity) == (id, "error") and help in "".join(d.help)


def test_muon_is_told_by_the_name_of_bridge() -> None:
    found = [d for d in diagnosed('qwen3_30b_a3b; h100 x 16; set optimizer.optimizer = "muon"') if d.is_error]
    assert [d.help[0].partition(":")[0] for d in found] == ['write `set optimizer.optimizer = "dist_muon"`']


def test_prediction_that_bridge_builds_is_no_error() -> None:
    assert not [e for e in found("qwen35_vl_35b_a3b; gb200 x 16; set model.mtp_num_layers = 1") if e.is_error]


def test_a_length_of_samples_needs_packing() -> None:
    unpacked = SFT.replace('"/d"', '"/d" pack=off')
    assert {x.id for x in found(f"{unpacked}set {SPECS} = 4096")} == {"std.recipe_packing.enabled"}


def test_a_corpus_may_have_a_tokenizer_of_its_own() -> None:
    """The commit of the model's repository is not one of the tokenizer's."""
    text = 'qwen3_30b_a3b; h100 x 16; data "/corpus"\nset tokenizer.tokenizer_model = "org/other"'
    assert found(text) == []
    recipe = recipe_text(compiled(text).plans[0])
    assert recipe.count("tokenizer.tokenizer_model") == 1 and "hf_tokenizer_kwargs" not in recipe
    assert [d.id for d in found(text.replace("30b", "vl_30b"))] == ["plan.set_decided"]


@pytest.mark.parametrize("lines", rotation.some("unpriced", [*UNPRICED], 2))
def test_a_value_without_a_price_is_a_warning_with_what_the_estimate_has(lines: str) -> None:
    every = found(f"{RUN}set {lines}")
    assert {(d.id, d.severity) for d in every} == {("plan.set_unpriced", "warning")}
    assert f"at {UNPRICED[lines]}: " in every[0].message.replace("torch.", "")


@pytest.mark.parametrize("model", ["step35_196b_a11b", "mimo_v2_flash"])
def test_prediction_by_another_layer_has_no_price(model: str) -> None:
    (d,) = found(f"{model}; gb300 x 64; set model.mtp_num_layers = 1")
    assert (d.id, d.severity) == ("plan.set_unpriced", "warning")
    assert found(f"{model}; gb300 x 64; set model.mtp_num_layers = none") == []


def test_a_plan_shows_a_set_instead_of_the_rule_below_it() -> None:
    """The estimate, the recipe and the decisions have one value, and `explain` has it by either name."""
    p = plan_of(f'{RUN}set model.cross_entropy_fusion_impl = "native"')
    (shown,) = [d for d in p.decisions if d.name == "cross_entropy_fusion_impl"]
    assert (shown.value, shown.origin, shown.rule) == ("native", "pinned", None)
    for name in ("cross_entropy_fusion_impl", "model.cross_entropy_fusion_impl"):
        told: Any = moedsl.explain(f'{RUN}set model.cross_entropy_fusion_impl = "native"', name).explanations[0]
        assert (told["value"], told["origin"]["kind"]) == ("native", "pinned")
    whole: Any = moedsl.explain(f'{RUN}set model.cross_entropy_fusion_impl = "native"').explanations[0]
    assert [v["value"] for v in whole["decisions"] if "fusion_impl" in v["name"]] == ["native"]


BLACKWELL = "qwen3_30b_a3b; gb200 x 16; pin tp=1 pp=1 ep=8 micro_batch=1 recompute=none cuda_graph=none\n"
BF16_WEIGHTS = "set mixed_precision.fp8_param_gather = false\n"


@pytest.mark.parametrize("precision", rotation.some("weights in bf16", ["mxfp8", "fp8_current"], 1))
def test_weights_in_bf16_are_a_part_of_the_plan(precision: str) -> None:
    """Each linear keeps two bytes a parameter besides its quantised copy, gathers two bytes, and may be offloaded."""
    run = f"{BLACKWELL}precision {precision}\n"
    kept, whole = (plan_of(run + more + "pin sharding=optimizer offload=none") for more in ("", BF16_WEIGHTS))
    stages = [p.estimate.memory.stages[0] for p in (kept, whole)]
    linears = stages[0].params - 2 * 151936 * 2048
    added = (stages[1].weights_gib - stages[0].weights_gib) * 2**30
    assert added == pytest.approx(2.0 * linears, rel=0.01)
    assert decided_fields(whole)["mixed_precision.reuse_grad_buf_for_mxfp8_param_ag"] is False
    (law,) = [d.id for d in found(run + "pin sharding=optimizer offload=optimizer") if d.severity == "error"]
    assert law == "std.offload_optimizer.unquantised_weights"
    assert found(run + BF16_WEIGHTS + "pin sharding=optimizer offload=optimizer") == []


def test_data_parallelism_without_overlap_takes_longer() -> None:
    run = "qwen3_30b_a3b; h100 x 16; pin tp=1 pp=2 ep=8 micro_batch=1 sharding=optimizer\n"
    lines = [f"set comm_overlap.{name} = false\n" for name in ("overlap_grad_reduce", "overlap_param_gather")]
    hidden, reduced, gathered, neither = (
        plan_of(run + more).estimate.breakdown["data_communication"] for more in ("", *lines, "".join(lines))
    )
    assert hidden < gathered < reduced < neither


def test_a_field_of_a_section_that_the_recipe_builds_is_no_second_line() -> None:
    text = recipe_text(plan_of(RUN + "set comm_overlap.tp_comm_overlap = true"))
    assert text.count("tp_comm_overlap") == 1 and "CommOverlapConfig(tp_comm_overlap=True)" in text


STATED: dict[str, tuple[str, ...]] = table_of("checker", "set: stated")
"""Fields that a plan decides, with the statements that decide them so."""


@pytest.mark.parametrize("line", STATED)
def test_a_decided_field_has_the_statement_that_gives_it_the_value(line: str) -> None:
    run = RUN.replace("16", "8")
    (d,) = found(f"{run}set {line}")
    assert d.id == "plan.set_decided"
    said = tuple(re.findall(r"`([^`]*)`", d.help[0].partition(";")[0]))
    assert said == STATED[line] or (not STATED[line] and d.help[0].startswith("drop this `set`"))
    for statement in STATED[line]:
        assert [x for x in found(run + statement) if x.severity == "error"] == []


ELSEWHERE = table_of("checker", "set: elsewhere")
"""Names and values of other tools, with what the help says."""


@pytest.mark.parametrize("line", ELSEWHERE)
def test_a_name_of_another_tool_has_the_right_field_or_statement(line: str) -> None:
    right = ELSEWHERE[line]
    (d,) = found(f"{RUN}set {line}")
    assert f"`{right.removeprefix('set ')}`" in d.help[0] or f"`{right}`" in d.help[0]
    value = "" if "=" in right or not right.startswith("set") else f" ={line.partition('=')[2]}"
    assert {x.id for x in found(RUN + right + value)} <= {"plan.set_decided", "std.recipe_schedule.warmup"}


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_a_name_of_another_tool_is_no_field_but_means_one(name: str) -> None:
    assert any(p.endswith(f".{last_name(name)}") for p in fields.field_names())
    assert name not in fields.field_names()


@pytest.mark.parametrize(
    ("path", "named"),
    [("model.mtp", ["model.mtp_enabled", "model.mtp_num_layers", "model.mtp_standalone"]), ("model.nope", []),
     ("optimizer.adam_betas1", ["optimizer.adam_beta1"]), ("nope", [])],
)  # fmt: skip
def test_a_field_of_a_known_section_is_near_by_its_own_name(path: str, named: list[str]) -> None:
    """The name of the section makes no two names alike; a word is part of a longer name."""
    assert [help.word for help in meant(path) if isinstance(help, Instead)] == named


def test_a_section_that_bridge_leaves_out_is_built_once_before_its_fields() -> None:
    plan = plan_of(RUN + "set ft.enable_ft_package = true\nset ft.simulated_fault_rank = 1")
    lines = [line.strip() for line in recipe_text(plan).splitlines() if "cfg.ft" in line]
    assert lines == [
        "cfg.ft = FaultToleranceConfig()",
        "cfg.ft.enable_ft_package = True",
        "cfg.ft.simulated_fault_rank = 1",
    ]


def test_a_fact_of_the_model_that_is_set_again_is_not_a_line_of_the_recipe() -> None:
    assert recipe_text(plan_of(RUN + "set model.num_layers = 48")) == recipe_text(plan_of(RUN))


def test_a_negative_depth_does_not_reach_the_estimate() -> None:
    model, _ = load_stdlib().model("qwen3_30b_a3b")
    assert model is not None and as_set(model, {"model.mtp_num_layers": -3}) == model


WRONG: dict[str, tuple[Any, str]] = {
    "a word": ("str", "zzz"),
    "a text": ("str", '"z z"'),
    "a number": ("float", "-0.5"),
    "a flag": ("bool", "true"),
    "a list": ("list", "[[zzz]]"),
}
BASES = (RUN, SFT, "qwen3_vl_30b_a3b; h100 x 16\n", "nemotron_3_nano; h100 x 16\n", "moonlight_16b; h100 x 16\n")


@pytest.mark.parametrize(
    "base, kind", rotation.one_of_each("wrong values", [*product(BASES, WRONG)], lambda case: case[1])
)
def test_each_field_refuses_a_value_of_another_type(base: str, kind: str) -> None:
    """All fields in one program: each `set` has its error, at its value, and none ends in a traceback."""
    python = {"a word": "zzz", "a text": "z z", "a number": -0.5, "a flag": True, "a list": [["zzz"]]}[kind]
    every = [f for f in fields.fields().values() if f.path not in base]
    text = base + "\n".join(f"set {f.path} = {WRONG[kind][1]}" for f in every)
    source = Source("run.moe", text)
    errors = [d for d in compile_source(source, "check").diagnostics if d.is_error]
    wrong = {source.line(source.position(d.labels[0].span.start)[0]).split()[1] for d in errors}
    expected = {f.path for f in every if fields.refused(f.type, python) is not None and f.path not in CHOICES}
    assert expected <= wrong
    assert len(expected) > 100


def test_the_facts_of_the_architecture_are_fields_and_facts() -> None:
    model, _ = load_stdlib().model("qwen3_30b_a3b")
    assert model is not None
    for path, word in facts.facts_by_field().items():
        assert hasattr(model, word), path


RANDOM_STATE = ("model.use_te_rng_tracker", "rng.te_rng_tracker")
BY_A_RULE = 'rules ours { derive FIELD because "a test" cite ours "here" }'


@pytest.mark.parametrize("path", RANDOM_STATE)
@pytest.mark.parametrize("way", ["set FIELD", BY_A_RULE])
def test_the_random_state_of_transformer_engine_is_on_in_both_sections_or_off(path: str, way: str) -> None:
    made = decided_fields(plan_of(f"{RUN}pin cuda_graph=none\n{way.replace('FIELD', f'{path} = true')}"))
    assert [made[p] for p in RANDOM_STATE] == [True, True]
    assert [decided_fields(plan_of(f"{RUN}pin cuda_graph=none"))[p] for p in RANDOM_STATE] == [False, False]


@pytest.mark.parametrize("field", ["peft.dim = 4", "model.mamba_chunk_size = 64", "dataset.packing_buffer_size = 4"])
def test_a_rule_derives_no_field_that_the_run_does_not_have(field: str) -> None:
    run = 'qwen3_30b_a3b; h100 x 16; data "/d"\n'
    (d,) = found(run + BY_A_RULE.replace("FIELD", field))
    assert d.id == "check.other_class"
    elsewhere = run + BY_A_RULE.replace("FIELD", f"{field} when gpus == 8")
    assert found(elsewhere) == []


def test_epochs_that_a_rule_derives_replace_the_steps() -> None:
    made = decided_fields(plan_of(SFT + BY_A_RULE.replace("FIELD", "train.num_epochs = 3")))
    assert (made["train.num_epochs"], made.get("train.train_iters")) == (3, None)
