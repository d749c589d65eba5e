"""What a run goes against whatever its layout is said before the plan, once, at the statement that says so."""

from __future__ import annotations

import pytest

from tests.helpers.programs import diagnosed, plan_of


def notes(text: str) -> dict[str, str]:
    """The ids of the notes on a run, and what each points at."""
    found = diagnosed(text)
    assert not [d for d in found if d.is_error], found
    return {d.id: text[d.labels[0].span.start : d.labels[0].span.end] for d in found}


def test_a_model_beyond_its_published_length() -> None:
    found = notes("qwen3_30b_a3b; h100 x 16\nseq 64k")
    assert found == {"std.layout_advice.published_length": "seq 64k"}


@pytest.mark.parametrize("text", ["qwen3_30b_a3b; h100 x 16; seq 32k", "qwen3_30b_a3b; h100 x 16\npin tp=8"])
def test_advice_for_layouts_is_no_note(text: str) -> None:
    assert notes(text) == {}


def test_advice_that_the_run_allows_is_no_note() -> None:
    allowed = 'allow std.layout_advice.published_length because "YaRN is set"'
    assert notes(f"qwen3_30b_a3b; h100 x 16; seq 64k\n{allowed}") == {}


POSITIONS = "std.captured_attention.with_positions"


def severities(text: str) -> dict[str, str]:
    return {d.id: d.severity for d in diagnosed(text)}


def test_a_pin_that_trains_without_positions_is_a_warning() -> None:
    """GPT-OSS has YaRN; the published recipes capture its attention, so it is no law."""
    text = "gpt_oss_120b; gb200 x 64\npin cuda_graph=[attn, moe_router, moe_preprocess]"
    assert severities(text)[POSITIONS] == "warning"
    assert notes(text)[POSITIONS] == "cuda_graph=[attn, moe_router, moe_preprocess]"


@pytest.mark.parametrize("text", [
    "gpt_oss_120b; gb200 x 64\npin cuda_graph=[moe_router, moe_preprocess]",
    "qwen3_30b_a3b; gb200 x 8\npin cuda_graph=[attn, moe_router, moe_preprocess]",
    "moonlight_16b; gb200 x 8\npin cuda_graph=[attn, moe_router, moe_preprocess]",
])  # fmt: skip
def test_captured_attention_that_knows_its_positions_is_none(text: str) -> None:
    assert POSITIONS not in severities(text)


WHOLE_LAYERS, SLICES = "std.deepstack.gradients_through_recompute", "std.deepstack.whole_gradients"


def test_grave_advice_that_no_layout_follows_is_a_warning() -> None:
    """Nobody pinned TP or recompute: nothing that fits keeps the gradients of the deepstack features whole."""
    text = "qwen3_vl_235b_a22b; h100 x 32; fit first"
    assert severities(text)[SLICES] == "warning"
    assert notes(text)[SLICES] == "h100 x 32"


def test_a_norm_over_all_heads_that_tp_splits_is_a_warning() -> None:
    split = "std.split_norm.whole_gradients"
    assert severities("minimax_m2_5; h100 x 256; pin tp=4; fit first")[split] == "warning"
    for phase in ("fit", "scale", "throughput"):
        assert split not in severities(f"minimax_m2_5; h100 x 64; {phase} first")


def test_deepstack_features_that_learn_are_kept_whole_where_a_layout_can() -> None:
    for phase in ("fit", "scale", "throughput"):
        assert not {WHOLE_LAYERS, SLICES} & severities(f"qwen3_vl_30b_a3b; h100 x 64; seq 16k; {phase} first").keys()


def test_frozen_features_may_be_cut_and_recomputed() -> None:
    pinned = "qwen3_vl_30b_a3b; h100 x 64; pin tp=2 recompute=full"
    assert {severities(pinned)[WHOLE_LAYERS], severities(pinned)[SLICES]} == {"warning"}
    assert not {WHOLE_LAYERS, SLICES} & severities(f"{pinned}\nvlm freeze_vision freeze_projection").keys()


OWN = 'rules house { prefer wide: pp > 1 worth 50% because "documents arrive in bursts" cite ours "runbook 1" }\n'
RUN = "qwen3_30b_a3b; h100 x 16; require dp >= 16\n"


def test_grave_advice_of_the_run_is_said_at_its_rule_with_what_it_asks_for() -> None:
    """Its reason need not say that, and no pin is at fault."""
    (found,) = [d for d in diagnosed(OWN + RUN) if d.id == "run.house.wide"]
    assert (found.severity, found.message) == ("warning", "`pp > 1` is not followed: documents arrive in bursts")
    assert notes(OWN + RUN)["run.house.wide"] == "wide"


def test_a_wish_without_a_reason_is_said_by_its_condition() -> None:
    plan = plan_of(f"{RUN}prefer pp > 1\nprefer tp == 2 because 'tried'\n".replace("'", '"'))
    reasons = {a.rule: a.because for a in plan.advice if a.rule.startswith("run.")}
    assert list(reasons.values()) == ["the run prefers `pp > 1`", "tried"]
