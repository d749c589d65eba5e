"""Rules on hybrids, each held against the code of NVIDIA's that it speaks of, and what their recipes choose."""

from __future__ import annotations

from typing import Any

import pytest

from moedsl.facts import axes
from moedsl.solver.problem import lower
from tests.helpers.layouts import DEFAULTS, broken, checked, run_text
from tests.oracles.proven import answers, applies, derived, permits

WHOLE = frozenset({"full_iteration"})
NANO = {**DEFAULTS, "model": "nemotron_3_nano", "hardware": "h100", "gpus": 16, "ep": 8}


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_hybrid.py")


@pytest.mark.bridge
def test_a_hybrid_has_no_overlapped_schedule(said: dict[str, Any]) -> None:
    """std.hybrid.no_ep_overlap"""
    assert not permits("std.hybrid.no_ep_overlap", ep_overlap=True)
    assert said["schedules"]["GPTModel"] == "ok"
    assert "build_schedule_plan" in said["schedules"]["HybridModel"]


@pytest.mark.bridge
def test_the_provider_of_a_hybrid_makes_no_virtual_stages(said: dict[str, Any]) -> None:
    """std.hybrid.no_vpp: without them it comes to the vocabulary, which was left out on purpose."""
    assert permits("std.hybrid.no_vpp", vpp=1) and not permits("std.hybrid.no_vpp", vpp=2)
    assert "vocab_size must be configured" in said["chunks"]["None"]
    assert "temporarily unsupported in Hybrid" in said["chunks"]["2"]


@pytest.mark.bridge
def test_each_word_captures_the_layers_of_one_letter(said: dict[str, Any]) -> None:
    """std.captured_layers.mamba_exists, std.throughput.cuda_graph: nothing but a Mamba layer is captured for `mamba`, and
    nothing of MTP for any word."""
    assert said["captured"] == {"attn": ["*"], "mamba": ["M"], "moe_router": ["E"]}


@pytest.mark.bridge
def test_what_recomputation_and_offload_reach(said: dict[str, Any]) -> None:
    """The only norm that stands alone is the one before the experts; a Mamba layer reads neither word.

    std.offload_advice.norm_is_alone"""
    found = {k: v for k, v in said["recomputed"].items() if v}
    assert found == {
        "layernorm E": ["recompute_pre_mlp_layernorm"],
        "mlp *": ["recompute_mlp"],  # of no MLP: the checkpoint of an identity
        "mlp -": ["recompute_mlp"],
    }
    assert said["offloaded"] == {"*": [], "E": ["offload_mlp_norm"], "-": []}
    assert said["mamba_reads"] == []
    assert not permits("std.offload_advice.norm_is_alone", offload_modules=frozenset({"attn_norm"}), attention="gqa")


@pytest.mark.bridge
def test_latent_experts_let_a_captured_router_recompute_its_norm(said: dict[str, Any]) -> None:
    """std.recompute_advice.norm_inside_graph"""
    for case, recomputes in said["recomputed_in_graph"].items():
        dispatcher, latent = case.split()
        values: Any = {
            "recompute": frozenset({"layernorm"}),
            "cuda_graph": frozenset({"moe_router", "moe_preprocess"}),
            "ep_overlap": False,
            "dispatcher": {"flex": "hybridep"}.get(dispatcher, dispatcher),
            "moe_latent": int(latent),
        }
        assert permits("std.recompute_advice.norm_inside_graph", **values) == recomputes, case


@pytest.mark.bridge
def test_fused_experts_recompute_a_squared_relu(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_activation"""
    assert said["squared_relu"] == {"False": "ok", "True": "ok"}
    values: Any = {"cuda_graph": WHOLE, "recompute": frozenset({"moe_act"})}
    assert permits("std.cuda_graph.whole_graph_activation", gated=False, **values)


@pytest.mark.bridge
def test_fused_experts_need_the_one_kernel_of_a_squared_relu(said: dict[str, Any]) -> None:
    """std.squared_relu.model.use_fused_weighted_squared_relu"""
    assert said["fused_squared_relu"] == {"False": False, "True": True}
    rule = "std.squared_relu.model.use_fused_weighted_squared_relu"
    assert derived(rule) is True
    assert applies(rule, gated=False, mlp_bias=False) and not applies(rule, gated=True, mlp_bias=False)


@pytest.mark.bridge
def test_a_hybrids_router_is_never_on_the_meta_device(said: dict[str, Any]) -> None:
    """std.fsdp.model.init_model_with_meta_device: so the buffer of its expert bias is not emptied with it."""
    assert said["router_on_meta"] == {"gpt": True, "hybrid": False}
    assert (
        derived(
            "std.fsdp.model.init_model_with_meta_device",
            has_vision=False,
            shared_expert_gate=False,
            family="nemotron_h",
        )
        is True
    )


@pytest.mark.bridge
def test_what_is_left_of_a_mamba_product_is_quantised_in_whole_blocks(said: dict[str, Any]) -> None:
    """std.hybrid.quantised_mamba, of Nemotron 3 Nano in MXFP8"""
    for tp, whole in said["quantisable"].items():
        values: Any = {"precision": "mxfp8", "tp": int(tp), "quantised_columns": 32}
        values |= {"mamba_in_projection": 10304, "mamba_inner": 4096}
        assert permits("std.hybrid.quantised_mamba", **values) == whole, tp


def test_the_lets_are_the_widths_of_the_mixer() -> None:
    """10304 is what the provider makes of Nano: 64 heads of 64, twice, B and C of 8 groups of 128, and 64 steps."""
    fp8 = {**NANO, "precision": "fp8_current"}
    assert [tp for tp in (1, 2, 4, 8) if broken({**fp8, "tp": tp})] == [8]
    assert [tp for tp in (1, 2, 4, 8) if (10304 // tp) % 16] == [8]


@pytest.mark.parametrize("model", ["nemotron_3_nano", "nemotron_3_super"])
def test_retuning_tries_graphs_with_the_mamba_layers(model: str) -> None:
    """std.throughput.cuda_graph: what NVIDIA's recipes of these models capture, or nothing."""
    text = run_text({**NANO, "model": model}).replace(" cuda_graph=none", "")
    (program,) = checked(text).programs
    (axis,) = (a for a in axes.AXES if a.name == "cuda_graph")
    found = [axis.decode(int(code)) for code in lower(program, 16).domains["cuda_graph"]]
    tried = {frozenset(v) for v in found if isinstance(v, list)}
    assert tried == {
        frozenset(),
        frozenset({"mamba"}),
        frozenset({"attn", "mamba"}),
        frozenset({"attn", "mamba", "moe_router", "moe_preprocess"}),
    }


def test_attention_without_positions_may_be_captured() -> None:
    """std.captured_attention.with_positions speaks of embeddings that a graph does not know; a hybrid has none to lose."""
    rule = "std.captured_attention.with_positions"
    said = {p: applies(rule, attention="gqa", position_embedding_type=p) for p in ("rope", "none", "yarn", "mrope")}
    assert said == {"rope": False, "none": False, "yarn": True, "mrope": True}
