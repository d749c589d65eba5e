"""Advice that makes a plan TIGHT for no predicted gain is told, and the pin that it names gives what it promises."""

import pytest

from moedsl.support.diagnostics import Diagnostic
from tests.helpers.programs import compiled, diagnosed, plan_of, solved
from tests.helpers.tables import table_of

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 1024; throughput first; risk oom; pin ep=16"
ADVICE = "std.cuda_graph_advice.narrow_first"


def noted(text: str) -> list[Diagnostic]:
    return [d for d in diagnosed(text) if d.id == "plan.idle_advice"]


def test_the_pin_that_is_named_fits_at_the_same_step_time() -> None:
    (found,) = noted(RUN)
    assert found.severity == "note" and ADVICE in found.message
    (before,) = compiled(RUN).plans
    (after,) = compiled(f"{RUN}; {found.help[0].split('`')[1]}").plans
    assert before.estimate.memory.verdict == "TIGHT"
    assert after.estimate.memory.verdict == "FITS"
    assert after.estimate.step_time_s <= before.estimate.step_time_s * (1 + 1e-9)


@pytest.mark.parametrize("text", table_of("planner", "advice: nothing is said of"))
def test_nothing_is_said_of(text: str) -> None:
    """What is pinned is the run's own wish, what is allowed counts for nothing, and the others fit."""
    assert noted(text) == []


def test_verdicts_agree() -> None:
    """The quick verdict is the whole one."""
    from moedsl.cost.estimate import FITS, bounds, fits

    for phase in ("fit", "scale", "throughput"):
        for chosen in solved(f"qwen3_30b_a3b; h100 x 16; seq 4k; {phase} first").chosen:
            for row in chosen.solution.rows:
                assert fits(chosen.cost, row.codes) == (bounds(chosen.cost, row.codes).verdict == FITS)


def test_advice_that_the_run_s_own_pins_exclude_names_them() -> None:
    text = "qwen3_30b_a3b; h100 x 64; seq 32k; throughput first; pin pp=2 vpp=1 cp=1 dispatcher=alltoall"
    costs = {a.rule: a.cost for a in plan_of(text).advice}
    assert costs["std.dispatch_advice.deepep_on_nvl8"] == "the run excludes it by dispatcher=alltoall"
    assert costs["std.layout_advice.cp_from_4k_shard"] == "the run excludes it by cp=1"
    assert set(str(costs["std.layout_advice.vpp_with_pp"]).partition(" by ")[2].split(", ")) == {"pp=2", "vpp=1"}


# What a run goes against whatever its layout is said before the plan, once, at the statement that says so.


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


@pytest.mark.parametrize("text", table_of("planner", "advice: captured attention that knows its positions"))
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
IGNORING = "qwen3_30b_a3b; h100 x 16; require dp >= 16\n"


def test_grave_advice_of_the_run_is_said_at_its_rule_with_what_it_asks_for() -> None:
    """Its reason need not say that, and no pin is at fault."""
    (found,) = [d for d in diagnosed(OWN + IGNORING) if d.id == "run.house.wide"]
    assert (found.severity, found.message) == ("warning", "`pp > 1` is not followed: documents arrive in bursts")
    assert notes(OWN + IGNORING)["run.house.wide"] == "wide"


def test_a_wish_without_a_reason_is_said_by_its_condition() -> None:
    plan = plan_of(f"{IGNORING}prefer pp > 1\nprefer tp == 2 because 'tried'\n".replace("'", '"'))
    reasons = {a.rule: a.because for a in plan.advice if a.rule.startswith("run.")}
    assert list(reasons.values()) == ["the run prefers `pp > 1`", "tried"]


# What several runs have to say alike is said once, and names the runs that it concerns.


def said(text: str, id: str) -> list[Diagnostic]:
    return [d for d in diagnosed(text) if d.id == id]


def test_a_sweep_says_once_what_holds_for_some_of_its_runs() -> None:
    text = "qwen3_30b_a3b; gb200 x 16; throughput first; sweep seq in 8k, 64k, 128k"
    (found,) = said(text, "std.layout_advice.published_length")
    assert found.values["seq"] == [65536, 131072]
    assert found.values["runs"] == ["main.seq_65536", "main.seq_131072"]
    (found,) = said(text, "std.long_context.short_of_new_kernels")
    assert (found.values["seq"], found.values["runs"]) == (131072, "main.seq_131072")


def test_what_holds_for_all_names_none() -> None:
    text = "qwen3_30b_a3b; gb200 x 16; seq 64k; throughput first; sweep micro_batch in 1, 2"
    (found,) = said(text, "std.layout_advice.published_length")
    assert "runs" not in found.values


def test_runs_of_other_words_are_not_named() -> None:
    """The span says which run it is."""
    text = "run a { qwen3_30b_a3b; gb200 x 16; seq 64k }; run b { qwen3_30b_a3b; gb200 x 16; seq 4k }"
    (found,) = said(text, "std.layout_advice.published_length")
    assert "runs" not in found.values


def test_the_variants_of_an_isolation_refuse_a_field_once() -> None:
    text = "qwen3_30b_a3b; h100 x 16; batch 64; throughput first; isolate overlap in off, on, delayed; "
    assert len(said(text + "set model.tensor_model_parallel_size = 4", "plan.set_decided")) == 1


SITE = """
rules site {
  prefer nvlink_tp: tp <= 2 because "the rule of the house" cite ours "wiki"
  candidates ep = [4, 8] because "racks of eight" cite ours "wiki"
  default dispatcher = alltoall because "no other is installed" cite ours "wiki"
}
qwen3_30b_a3b; h100 x 64; fit first; pin tp=4 cp=1 pp=1 ep=16 recompute=none offload=none dispatcher=deepep micro_batch=1
"""


def test_a_pin_against_a_rule_of_the_site_is_said_with_its_price() -> None:
    """The price is the difference to a plan with the site's value."""
    found = {text_at(SITE, d): d.message for d in diagnosed(SITE) if d.id == "plan.against_policy"}
    assert {*found} == {"tp=4", "ep=16", "dispatcher=deepep"}
    assert "the rule of the house" in found["tp=4"] and "racks of eight" in found["ep=16"]
    (here,), (other,) = (compiled(t).plans for t in (SITE, SITE.replace("dispatcher=deepep", "dispatcher=alltoall")))
    change = other.estimate.step_time_s / here.estimate.step_time_s - 1
    assert f"with alltoall instead: {100 * change:+.1f}% step time" in found["dispatcher=deepep"]
    own = SITE[SITE.index("qwen3") :]
    assert not [d for d in diagnosed(own) if d.id == "plan.against_policy"]


def text_at(text: str, d: Diagnostic) -> str:
    return text[d.labels[0].span.start : d.labels[0].span.end]
