"""Plans of vision-language models: how they are brought up, what their parts cost, what freezing buys, useful tokens."""

from itertools import product

import pytest

from moedsl.compiler import Result, compile_source
from moedsl.planner.decisions import Decision
from moedsl.planner.plan import Plan
from moedsl.planner.several import sweeps
from moedsl.planner.text import plan_text
from moedsl.support.source import Source
from moedsl.support.text import CLOSE
from tests.helpers import programs, rotation
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of

BASE = "model qwen3_vl_30b_a3b; gb200 x 32; seq 4k; batch 512; "
PINS = "pin tp=1 cp=1 pp=1 ep=8 micro_batch=1 recompute=none dispatcher=hybridep ep_overlap=off cuda_graph=none"
VL_PARAMETERS, TEXT_PARAMETERS = 31_070_754_032, 30_532_122_624
"""Of the published checkpoints of Qwen3-VL-30B-A3B and of Qwen3-30B-A3B, whose decoders are the same."""


def compiled(text: str) -> Result:
    result = programs.compiled(text)
    assert not result.failed, result.diagnostics
    return result


def decision(p: Plan, name: str) -> Decision:
    return next(d for d in p.decisions if d.name == name)


def said(p: Plan) -> set[str]:
    return {m.rule.rpartition(".")[2] for m in p.measured}


@pytest.mark.parametrize(
    ("wish", "vlm"),
    rotation.one_of_each(
        "reasons",
        [*product(("fit first", "scale first", "throughput first"), ("", "; vlm freeze_vision freeze_projection"))],
        lambda case: case[0],
    ),
)
def test_a_faster_value_says_why_it_is_not_chosen(wish: str, vlm: str) -> None:
    """The plan's value is the best by a ranking: beside a value with a shorter step, the reason is more than the step."""
    p = plan_of(f"{BASE}{wish}{vlm}")
    faster = [(d.name, a) for d in p.decisions for a in d.alternatives if a.effect.removeprefix(CLOSE).startswith("-")]
    assert all("but worse by `" in a.effect or "but goes against std." in a.effect for _, a in faster), faster
    assert faster or wish != "fit first"


def test_bring_up_is_fsdp_with_full_recompute() -> None:
    p = plan_of(BASE + "fit first; vlm freeze_vision freeze_projection")
    assert (p.policy.sharding, p.policy.recompute, p.layout.pp) == ("fsdp", ["full"], 1)
    chosen = decision(p, "sharding")
    assert chosen.origin == "chosen"
    assert any("VLM training" in c for c in chosen.cite)
    assert "relax_recompute" in said(p)


@pytest.mark.parametrize("words", ["fit first; ", "fit first; vlm freeze_vision; "])
def test_bring_up_recomputes_no_whole_layers_where_deepstack_learns(words: str) -> None:
    p = plan_of(BASE + words)
    assert (p.policy.sharding, p.policy.recompute, p.layout.pp) == ("fsdp", [], 1)


def test_3d_where_the_run_says_so_and_selective_recompute_first() -> None:
    p = plan_of(BASE + "fit first; vlm 3d")
    assert (p.policy.sharding, p.policy.recompute) == ("optimizer", [])


def test_bring_up_takes_3d_where_fsdp_does_not_fit() -> None:
    p = plan_of(BASE + "fit first; pin pp=2")
    assert p.policy.sharding == "optimizer"


def test_text_models_keep_the_distributed_optimizer() -> None:
    for phase in ("fit", "scale", "throughput"):
        p = plan_of(f"model qwen3_30b_a3b; gb200 x 32; {phase} first")
        assert decision(p, "sharding").origin == "defaulted"
        assert p.policy.sharding == "optimizer"
        assert p.estimate.parts is None
        assert p.estimate.useful_tokens_per_s_per_gpu == pytest.approx(p.estimate.tokens_per_s_per_gpu)


def test_throughput_weighs_3d_against_fsdp() -> None:
    p = plan_of(BASE + "throughput first")
    sharding = decision(p, "sharding")
    assert (sharding.value, sharding.origin) == ("optimizer", "chosen")
    assert [a.value for a in sharding.alternatives] == ["fsdp"]
    assert {"sweep_micro_batch", "useful_tokens", "three_d_recovers"} <= said(p)


def test_fsdp_sizes_ep_to_the_nvlink_domain() -> None:
    p = plan_of(BASE.replace("x 32", "x 128") + "fit first")
    assert p.layout.ep == 64


def test_graphs_start_narrow_and_widen_on_real_data() -> None:
    text = BASE + "throughput first; vlm 3d; pin micro_batch=1 recompute=[moe_act] pp=1 tp=1 "
    assert "attn" not in plan_of(text).policy.cuda_graph
    assert plan_of(text + '; data "images"').policy.cuda_graph == ["moe_router", "moe_preprocess"]


def test_etp_is_a_last_resort() -> None:
    assert plan_of(BASE + "fit first").layout.etp == 1
    assert plan_of(BASE + "throughput first").layout.etp == 1


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize(
    "vlm",
    rotation.one_of_each(
        "parts",
        ["", "vlm freeze_vision; ", "vlm fsdp; ", "vlm fsdp freeze_vision freeze_projection; "],
        lambda words: "fsdp" in words,
    ),
)
def test_parts_add_up_to_the_first_stage(vlm: str) -> None:
    p = plan_of(f"{BASE}{vlm}throughput first; {PINS}")
    parts, stage = p.estimate.parts, p.estimate.memory.stages[0]
    assert [x.part for x in parts] == ["encoder", "projector", "decoder"]
    for name in ("weights_gib", "gradients_gib", "optimizer_gib", "activations_gib", "buffers_gib", "total_gib"):
        assert sum(getattr(x, name) for x in parts) == pytest.approx(getattr(stage, name))
        assert all(getattr(x, name) >= 0 for x in parts)
    assert sum(x.params for x in parts) == stage.params
    outside = ("pipeline_communication", "bubble", "stragglers", "step_overhead", "data_communication", "optimizer")
    inside = sum(v for k, v in p.estimate.breakdown.items() if k not in outside)
    assert sum(x.time_s for x in parts) == pytest.approx(inside)


def test_encoder_and_projector_are_what_the_checkpoint_has_beside_its_decoder() -> None:
    parts = plan_of(f"{BASE}throughput first; {PINS}").estimate.parts
    assert parts[0].params + parts[1].params == VL_PARAMETERS - TEXT_PARAMETERS


def test_a_frozen_tower_has_weights_only() -> None:
    encoder = plan_of(f"{BASE}vlm freeze_vision; throughput first; {PINS}").estimate.parts[0]
    assert encoder.weights_gib > 0
    assert (encoder.gradients_gib, encoder.optimizer_gib, encoder.activations_gib) == (0, 0, 0)


def test_full_recompute_runs_the_tower_again() -> None:
    run = f"{BASE}vlm 3d; throughput first; {PINS}"
    once, again = (plan_of(t).estimate.parts[0] for t in (run, run.replace("recompute=none", "recompute=full")))
    assert again.time_s == pytest.approx(once.time_s * 4 / 3)


# ---------------------------------------------------------------- freezing


@pytest.mark.parametrize("how", rotation.some("freezing", ["3d", "fsdp"], 1))
def test_what_freezing_buys_is_the_difference_of_two_plans(how: str) -> None:
    free, frozen = (plan_of(f"{BASE}vlm {how} {word}; throughput first; {PINS}") for word in ("", "freeze_vision"))
    said = {f.name: f for f in free.estimate.freeze}["freeze_vision"]
    gib = frozen.estimate.memory.peak_gib - free.estimate.memory.peak_gib
    assert said.peak_gib == pytest.approx(gib, abs=1e-6)
    assert said.step_time == pytest.approx(frozen.estimate.step_time_s / free.estimate.step_time_s - 1)
    assert gib < 0
    assert said.step_time < 0
    same = {f.name: f for f in frozen.estimate.freeze}["freeze_vision"]
    assert (said.frozen, same.frozen) == (False, True)
    assert same.effect == said.effect


def test_freezing_is_a_small_gain_on_real_shapes() -> None:
    """ "A small but real throughput gain" (VLM training, key tuning knobs 1)."""
    freeze = plan_of("model qwen3_vl_235b_a22b; gb200 x 256; seq 4k; batch 1024; throughput first").estimate.freeze
    vision = next(f for f in freeze if f.name == "freeze_vision")
    assert -0.10 < vision.step_time < 0


# ---------------------------------------------------------------- mock data, useful tokens, vision that dominates


def test_mock_data_is_no_performance_proxy() -> None:
    mock = compiled(BASE + "throughput first")
    notes = [d for d in mock.plans[0].diagnostics if d["id"] == "plan.no_proxy"]
    assert len(notes) == 1
    assert "mock_data_twice_as_fast" in said(mock.plans[0])
    assert "about twice as fast" in " ".join(plan_text(mock.plans[0]).split())


@pytest.mark.parametrize(
    "text", [BASE + 'throughput first; data "images"', "model qwen3_30b_a3b; gb200 x 32; fit first"]
)
def test_real_images_and_text_get_no_such_note(text: str) -> None:
    p = plan_of(text)
    assert not [d for d in p.diagnostics if d["id"] == "plan.no_proxy"]
    assert "mock_data_twice_as_fast" not in said(p)


def test_useful_tokens_leave_the_image_out() -> None:
    e = plan_of(f"{BASE}throughput first; {PINS}").estimate
    assert e.useful_share == (4096 - 1024) / 4096
    assert e.useful_tokens_per_s_per_gpu == pytest.approx(0.75 * e.tokens_per_s_per_gpu)


def test_alternatives_and_sweeps_compare_by_useful_tokens() -> None:
    p = plan_of(BASE + "throughput first")
    rates = [a.useful_tokens_per_s_per_gpu * a.step_time_s for a in p.alternatives]
    assert rates == pytest.approx([512 * (4096 - 1024) / 32] * len(rates))
    text = f"model qwen3_vl_30b_a3b; gb200 x 32; batch 512; throughput first; {PINS}; sweep seq in 2k, 8k"
    (compared,) = sweeps(compiled(text).plans)
    short, long = compared.values
    assert long.speedup > 1.0, "half of a short sequence is the image"
    assert long.speedup == pytest.approx(long.useful_tokens_per_s_per_gpu / short.useful_tokens_per_s_per_gpu)


def test_a_vision_encoder_that_dominates_is_said() -> None:
    short, long = (
        plan_of(f"model qwen3_vl_30b_a3b; gb200 x 32; seq {s}; batch 512; throughput first; {PINS}")
        for s in ("1k", "16k")
    )
    note = short.estimate.vision_note
    assert note.rule == "std.vlm_frozen.vision_encoder"
    assert note.share > 0.10
    assert "of the step is vision" in plan_text(short)
    assert long.estimate.vision_note is None


@pytest.mark.parametrize(("hardware", "rule"), [("gb200", "fsdp_gb200_mfu"), ("b200", "fsdp_b200_sensitive")])
def test_what_was_measured_of_fsdp(hardware: str, rule: str) -> None:
    p = plan_of(f"model qwen3_vl_30b_a3b; {hardware} x 32; seq 4k; fit first; vlm fsdp")
    assert {"fsdp_gb200_mfu", "fsdp_b200_sensitive"} & said(p) == {rule}


@pytest.mark.parametrize(("more", "warns"), table_of("planner", "vlm: frozen at random weights"))
def test_a_part_that_is_frozen_at_random_weights_is_a_warning(more: str, warns: bool) -> None:
    """A run that fine-tunes has the warning of missing weights."""
    rest = ("" if "vlm" in more else "vlm freeze_vision; ") + ("" if "data" in more else 'data "/images"; ')
    found = {d.id for d in programs.diagnosed(f"{BASE}fit first; {rest}{more}") if d.severity == "warning"}
    assert ("check.frozen_at_random" in found) == warns
    assert ("plan.sft_without_weights" in found) == ("sft" in more)


def test_a_run_in_which_nothing_learns_is_a_warning() -> None:
    frozen = "vlm freeze_vision freeze_projection freeze_language"
    result = compile_source(Source("run.moe", BASE + f"fit first; {frozen}"), "check")
    assert [(d.id, d.severity) for d in result.diagnostics] == [("check.all_frozen", "warning")]
    result = compile_source(Source("run.moe", BASE + "fit first; vlm freeze_vision freeze_language"), "check")
    assert not result.diagnostics
