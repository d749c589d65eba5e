"""Rules on hybrids, each held against the code of NVIDIA's that it speaks of, and what their recipes choose."""

from typing import Any

import pytest

from moedsl.facts import axes
from moedsl.solver.problem import lower
from tests.helpers.layouts import DEFAULTS, broken, checked, run_text
from tests.helpers.tables import table_of
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


# Rules on models with delta nets, each held against the code of NVIDIA's that it speaks of, and what is tried of
# them.

NEXT: dict[str, Any] = {**DEFAULTS, "model": "qwen3_next_80b_a3b", "hardware": "gb200", "gpus": 64, "ep": 32}
VL: dict[str, Any] = {**DEFAULTS, "model": "qwen35_vl_35b_a3b", "hardware": "gb200", "gpus": 16, "ep": 8}
ROUTER = frozenset({"moe_router", "moe_preprocess"})


@pytest.fixture(scope="module")
def said_of_delta_nets() -> dict[str, Any]:
    return answers("ask_delta_nets.py")


@pytest.mark.bridge
def test_the_last_of_each_four_layers_has_attention(said_of_delta_nets: dict[str, Any]) -> None:
    assert said_of_delta_nets["mixers"] == ["GatedDeltaNet", "GatedDeltaNet", "GatedDeltaNet", "SelfAttention"]


@pytest.mark.bridge
def test_a_rank_has_whole_heads(said_of_delta_nets: dict[str, Any]) -> None:
    """std.delta_net.heads"""
    for mesh, answer in said_of_delta_nets["heads"].items():
        tp, cp = map(int, mesh.split())
        values = {"linear_key_heads": 16, "linear_value_heads": 32, "tp": tp, "cp": cp}
        assert permits("std.delta_net.heads", **values) == (answer == "ok"), mesh


@pytest.mark.bridge
def test_what_is_left_of_a_nets_product_is_quantised_in_whole_blocks(said_of_delta_nets: dict[str, Any]) -> None:
    """std.delta_net.quantised_products, of Qwen3-Next in MXFP8"""
    for tp, whole in said_of_delta_nets["quantisable"].items():
        values: Any = {"precision": "mxfp8", "tp": int(tp), "quantised_columns": 32}
        values |= {"delta_in_projection": 12352, "delta_inner": 4096}
        assert permits("std.delta_net.quantised_products", **values) == whole, tp


def test_the_lets_are_the_widths_of_the_net() -> None:
    """12352 of Qwen3-Next: queries and keys of 16 heads of 128, values and gate of 32, and two numbers for each of these."""
    fp8 = {**NEXT, "precision": "fp8_current", "ep": 8}
    assert [tp for tp in (1, 2, 4, 8) if broken({**fp8, "tp": tp})] == [8]
    assert [tp for tp in (1, 2, 4, 8) if (12352 // tp) % 16] == [8]


@pytest.mark.bridge
def test_graphs_take_a_delta_net_for_attention(said_of_delta_nets: dict[str, Any]) -> None:
    """std.throughput.cuda_graph, std.captured_layers.mamba_exists"""
    both = ["net", "attention"]
    assert said_of_delta_nets["captured"] == {"attn": both, "moe_router": both, "mamba": []}


@pytest.mark.bridge
def test_what_recomputation_and_offload_reach_of_delta_nets(said_of_delta_nets: dict[str, Any]) -> None:
    """The only norm that stands alone is the one before the experts, and a net knows one word that no axis has.

    std.recompute.recompute, std.offload_advice.norm_is_alone"""
    for kind in ("net", "attention"):
        assert said_of_delta_nets["recomputed"][kind] == ["recompute_pre_mlp_layernorm"]
        assert said_of_delta_nets["offloaded"][kind] == ["offload_mlp_norm"]
    assert said_of_delta_nets["net_reads"] == ["gdn_norm_out"]
    assert not permits("std.offload_advice.norm_is_alone", offload_modules=frozenset({"attn_norm"}), attention="gqa")


@pytest.mark.bridge
def test_a_captured_net_waits_for_copies_that_know_nothing_of_it(said_of_delta_nets: dict[str, Any]) -> None:
    """std.offload_modules.graph_joins: what a graph waits for has to have waited for the graph."""
    values: Any = {"cuda_graph": frozenset({"attn"}), "offload_modules": frozenset({"core_attn"}), "hybrid": False}
    for kind, every in (("net", 4), ("attention", 0)):
        assert (
            permits("std.offload_modules.graph_joins", linear_every=every, **values)
            == said_of_delta_nets["joins"][kind]
        )


@pytest.mark.bridge
def test_a_net_delays_its_weight_gradients(said_of_delta_nets: dict[str, Any]) -> None:
    """So no law forbids it: expert overlap and delayed gradients are those of any text model."""
    assert said_of_delta_nets["delayed"] == {"net": True, "attention": True}
    assert not broken({**NEXT, "ep_overlap": True, "delay_wgrad": True})


@pytest.mark.bridge
def test_mtp_needs_a_layer_in_each_chunk(said_of_delta_nets: dict[str, Any]) -> None:
    """check.pipeline_layout: and its own layer has attention, as the model's last."""
    assert "get_gpt_decoder_layer_specs" in said_of_delta_nets["layer_of_mtp"].pop("0")
    assert set(said_of_delta_nets["layer_of_mtp"].values()) == {"SelfAttention"}
    assert broken({**NEXT, "pp": 2, "pipeline_layout": "Et*47|tmL"}) == []
    assert broken({**NEXT, "pp": 2, "pipeline_layout": "Et*48|mL"}) == ["check.pipeline_layout"]


@pytest.mark.bridge
def test_megatron_fsdp_cannot_fill_the_gate_of_shared_experts(said_of_delta_nets: dict[str, Any]) -> None:
    """std.fsdp.model.init_model_with_meta_device: a net's own parameters are never on the meta device."""
    assert said_of_delta_nets["gate_of_shared_experts"] == {"meta": True, "fills": False}
    assert not any(said_of_delta_nets["net_on_meta"].values())
    rule = "std.fsdp.model.init_model_with_meta_device"
    values: Any = {"has_vision": False, "family": "qwen3_next"}
    assert [derived(rule, shared_expert_gate=gate, **values) for gate in (True, False)] == [False, True]


@pytest.mark.bridge
def test_the_mask_of_images_is_cut_without_deepstack_too(said_of_delta_nets: dict[str, Any]) -> None:
    """std.vision.image_shards"""
    for seq, answer in said_of_delta_nets["image_shards"].items():
        values: Any = {"is_qwen_vl": True, "tp": 2, "cp": 2, "pp": 1, "ep": 8, "seq": int(seq)}
        assert permits("std.vision.image_shards", **values) == (answer == "ok"), seq


def tried(layout: dict[str, Any], axis: str, also: str = "") -> set[frozenset[str]]:
    """The sets that a run chooses from where it pins none."""
    text = run_text(layout).replace(f" {axis}=none", "") + also
    (program,) = checked(text).programs
    (found,) = (a for a in axes.AXES if a.name == axis)
    sets = [found.decode(int(code)) for code in lower(program, layout["gpus"]).domains[axis]]
    return {frozenset(v) for v in sets if isinstance(v, list)}


@pytest.mark.parametrize("precision", ["bf16", "mxfp8"])
def test_retuning_tries_the_graphs_of_nvidias_recipes(precision: str) -> None:
    """std.throughput.cuda_graph: no whole iteration, whatever the routing."""
    found = tried({**NEXT, "precision": precision}, "cuda_graph", "routing balanced\n")
    assert found == {frozenset(), ROUTER, ROUTER | {"attn"}}


def test_a_vlm_with_delta_nets_starts_narrow() -> None:
    """std.throughput.cuda_graph: on mock data as Qwen3-VL. Advice keeps attention out, and no law."""
    assert tried(VL, "cuda_graph") == {frozenset(), ROUTER}
    assert broken({**VL, "cuda_graph": ["attn"]}) == []


def test_recomputation_is_tried_as_nvidia_does() -> None:
    """std.recompute.recompute: the set of the library's recipe of Qwen3-Next, and none with core_attn."""
    found = tried(NEXT, "recompute")
    assert frozenset({"layernorm", "moe", "moe_act"}) in found
    assert not any("core_attn" in words for words in found)


@pytest.mark.parametrize(("change", "law"), table_of("stdlib", "laws of qwen3 vl"))
def test_which_laws_of_qwen3_vl_hold_for_qwen35(change: dict[str, Any], law: tuple[str, ...]) -> None:
    """Bridge builds both with one model class; virtual stages and deepstack are Qwen3-VL's own."""
    asked = {name: [*value] if isinstance(value, tuple) else value for name, value in change.items()}
    assert (*broken({**VL, **asked}),) == law


def test_a_tower_without_deepstack_learns_under_tp_and_full_recompute() -> None:
    """std.deepstack.whole_gradients, std.deepstack.gradients_through_recompute speak of features that there are not."""
    for rule in ("std.deepstack.whole_gradients", "std.deepstack.gradients_through_recompute"):
        assert permits(rule, deepstack_learns=False, tp=4, recompute=frozenset({"full"}))
