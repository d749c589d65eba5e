"""Rules on experts, graphs, FSDP, optimizers and checkpoints, each held against the code of NVIDIA's that it speaks of."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from moedsl.emit.fields import words
from moedsl.emit.read_back import Configuration
from tests.helpers import bridge_process
from tests.helpers.cost_models import model
from tests.helpers.layouts import broken
from tests.oracles.proven import answers, applies, derived, permits

pytestmark = pytest.mark.bridge
WHOLE = frozenset({"full_iteration"})


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_training.py")


def test_fused_experts_do_not_recompute_their_activation(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_activation"""
    for case, answer in said["fused_experts"].items():
        recompute = frozenset({"moe_act"} if case.endswith("True") else ())
        values: Any = {"cuda_graph": WHOLE, "recompute": recompute, "gated": True, "dispatcher": "hybridep"}
        assert permits("std.cuda_graph.whole_graph_activation", **values) == (answer == "ok")
        assert answer == "ok" or "does not support activation recomputation" in answer


def test_fused_experts_are_not_split(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_experts"""
    for etp, fused in said["fused_experts_split"].items():
        assert (
            permits("std.cuda_graph.whole_graph_experts", cuda_graph=WHOLE, etp=int(etp), dispatcher="hybridep")
            == fused
        )


def test_grouped_products_in_blockwise_fp8_stay_on_the_device_on_hopper_alone(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_blockwise"""
    for case, stays in said["grouped_products"].items():
        precision, capability = case.split()
        values: Any = {"cuda_graph": WHOLE, "precision": precision, "capability": float(capability)}
        values["dispatcher"] = "hybridep"
        assert permits("std.cuda_graph.whole_graph_blockwise", **values) == stays


def test_no_module_under_fsdp_is_captured(said: dict[str, Any]) -> None:
    """std.cuda_graph.modules_under_fsdp: FSDP's hooks end what otherwise comes to the capture."""
    rule, modules = "std.cuda_graph.modules_under_fsdp", frozenset({"attn"})
    assert not permits(rule, sharding="fsdp", cuda_graph=modules)
    assert permits(rule, sharding="optimizer", cuda_graph=modules)
    assert "must not have hooks" in said["hooks"]["fsdp"]
    assert "the capture begins" in said["hooks"]["alone"]


def test_a_recomputed_norm_in_a_graph_ends_the_overlapped_schedule(said: dict[str, Any]) -> None:
    """std.ep_overlap.norm_recompute_in_graph, for every combination of modules and dispatcher."""
    for case, answer in said["recomputed_norm"].items():
        scope, dispatcher = case.split(", ")
        values: Any = {
            "recompute": frozenset({"layernorm"}),
            "cuda_graph": frozenset(() if scope == "none" else scope.split()),
            "dispatcher": {"flex": "deepep"}.get(dispatcher, dispatcher),
        }
        assert permits("std.ep_overlap.norm_recompute_in_graph", **values) == (answer == "ok"), (case, answer)
        lost = ("'NoneType' object is not iterable", "no attribute 'pre_mlp_norm_checkpoint'")
        assert answer == "ok" or any(x in answer for x in lost), (case, answer)


def test_a_replay_steps_only_gradients_that_stayed_attached(said: dict[str, Any]) -> None:
    """std.fsdp.ddp.megatron_fsdp_cuda_graph_mode: False is Bridge's default."""
    rule = "std.fsdp.ddp.megatron_fsdp_cuda_graph_mode"
    assert applies(rule, sharding="fsdp", cuda_graph=WHOLE)
    assert not applies(rule, sharding="fsdp", cuda_graph=frozenset())
    assert derived(rule) is True
    assert said["gradient_mode"] == {"False": False, "True": True}


def test_the_offloaded_optimizer_has_no_quantised_weights(said: dict[str, Any]) -> None:
    """std.offload_optimizer.unquantised_weights, as Bridge's recipes keep weights, and with BF16 weights."""
    for case, answer in said["offloaded_precisions"].items():
        precision, where, weights = case.split()
        kept = dict.fromkeys(("fp8_weights", "fp4_weights"), weights == "quantised")
        allowed = permits(
            "std.offload_optimizer.unquantised_weights", sharding="optimizer", precision=precision, **kept
        )
        assert (answer == "ok") == (where == "device" or allowed), (case, answer)
        assert answer == "ok" or "one of the params is NoneType" in answer


@pytest.mark.parametrize(
    ("mixed", "kept"), [("bf16_with_mxfp8_mixed", True), (False, False), (True, True), (None, True)]
)
def test_lint_reads_how_a_recipe_keeps_its_weights(mixed: Any, kept: bool) -> None:
    """A name of Bridge's stands for all its fields; an object has its own."""
    named = isinstance(mixed, str) or mixed is None
    fields = {"mixed_precision": mixed} if named else {"mixed_precision.fp8_param_gather": mixed}
    recipe = Configuration(fields)
    assert words(recipe)["fp8_weights"] is kept


def test_the_offloaded_optimizer_takes_no_shards_of_fsdp(said: dict[str, Any]) -> None:
    """std.fsdp.no_optimizer_offload"""
    assert not permits("std.fsdp.no_optimizer_offload", offload="optimizer")
    assert permits("std.fsdp.no_optimizer_offload", offload="none")
    assert said["offloaded_shards"]["plain"] == "ok"
    assert "_pin_memory" in said["offloaded_shards"]["dtensor"]


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_30b_a3b"])
def test_an_empty_share_of_a_bucket_is_never_saved_in_the_default_layout(name: str, said: dict[str, Any]) -> None:
    """std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable holds wherever a replica has nothing, of 2 to 2048."""
    rule, facts = "std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable", model(name)
    values: Any = {"hidden": facts.hidden, "dense_layers": facts.dense_layers, "experts": facts.experts, "cp": 2}
    values |= {"hybrid": False, "pp": 1}
    values |= {"precision": "mxfp8", "sharding": "optimizer", "data": "text"}
    empty = set(said["empty_shares"][name])
    other = {n for n in range(2, 2049) if applies(rule, **values | {"dp": n / 2})}
    assert empty
    assert empty <= other
    assert min(other) > 8


def test_saving_an_empty_share_ends_the_run(said: dict[str, Any]) -> None:
    """std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable: what its `because` says of Bridge's default."""
    assert {128, 192} & set(said["empty_shares"]["deepseek_v3"]) == {192}
    assert said["saving"]["128"] == "ok"
    assert "empty bucket encountered" in said["saving"]["192"]


def test_fsdp_fills_no_expert_bias_of_the_meta_device(said: dict[str, Any]) -> None:
    """std.fsdp.model.init_model_with_meta_device"""
    rule = "std.fsdp.model.init_model_with_meta_device"
    assert said["router_buffers"]["False"] == []
    assert "expert_bias" in said["router_buffers"]["True"]
    biased = {"deepseek_v3": True, "kimi_k2": True, "glm4_moe": True, "qwen3_moe": False, "gpt_oss": False}
    values = {"has_vision": False, "shared_expert_gate": False}
    assert {f: not derived(rule, family=f, **values) for f in biased} == biased


# The laws on the tokens and the widths of a quantised product, held against the forward passes of Transformer
# Engine's linear layers.

RULE = "std.precision.quantised_tokens"
DENSE = "std.precision.quantised_dense"


@pytest.fixture(scope="module")
def said_of_formats() -> dict[str, Any]:
    return answers("ask_quantised.py")


def permitted(case: str) -> bool:
    precision, tokens, ranks = case.split()[-3:]
    rows = derived("std.precision.quantised_rows", precision=precision)
    values = {"micro_batch": 1, "seq": int(tokens), "cp": 1, "tp": int(ranks), "quantised_rows": rows}
    return permits(RULE, precision=precision, **values)


@pytest.mark.parametrize("layers", ["linear", "normed"])
def test_a_shard_is_quantised_before_it_is_gathered(layers: str, said_of_formats: dict[str, Any]) -> None:
    """std.precision.quantised_tokens, of column-parallel layers, of duplicated ones, and of those with their norm."""
    for case, answer in ((c, a) for c, a in said_of_formats[layers].items() if not c.startswith("row")):
        assert permitted(case) == (answer == "ok"), (case, answer)
    verdicts = {answer.split(":")[0] for answer in said_of_formats[layers].values()}
    assert verdicts == {"ok", "ValueError"}


def test_a_shard_of_fp8_is_checked_before_any_communication(said_of_formats: dict[str, Any]) -> None:
    """Shards of 3,000 tokens over 2 ranks, and of 25,000 over 8."""
    for tokens, ranks in ((3000, 2), (25000, 8)):
        assert "divisible by 8" in said_of_formats["linear"][f"column fp8_blockwise {tokens} {ranks}"]


def test_a_share_of_a_dense_layer_is_whole_blocks(said_of_formats: dict[str, Any]) -> None:
    """std.precision.quantised_dense, of the second of two dense layers: the first may be in BF16."""
    rows = {
        tuple(case.split()[1:]): answer for case, answer in said_of_formats["linear"].items() if case.startswith("row")
    }
    assert {answer.split(":")[0] for answer in rows.values()} == {"ok", "ValueError"}
    for (precision, width, ranks), answer in rows.items():
        values = {"dense_layers": 2, "mtp_dense": False, "ffn_hidden": int(width), "tp": int(ranks)}
        columns = derived("std.precision.quantised_columns", precision=precision)
        may = permits(DENSE, precision=precision, quantised_columns=columns, **values)
        assert may == (answer == "ok"), (precision, width, ranks, answer)


# Rules on the offload of activations, held against Megatron's own offload and recomputation in steps on a CPU.


@pytest.fixture(scope="module")
def said_of_offload() -> dict[str, Any]:
    return answers("ask_offload.py")


def test_full_recompute_and_offload_end_in_the_first_backward(said_of_offload: dict[str, Any]) -> None:
    """std.offload_modules.not_with_full_recompute: one microbatch in turn passes with core_attn, a pipeline does not."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case, answer in said_of_offload["full"].items():
        offloaded, recompute, _ = case.split(", ")
        found[offloaded, recompute].append(answer)
    for (offloaded, recompute), got in found.items():
        values: Any = {
            "recompute": frozenset({"full"} if recompute.startswith("full") else ()),
            "offload_modules": frozenset(() if offloaded == "none" else (offloaded,)),
        }
        allowed = permits("std.offload_modules.not_with_full_recompute", **values)
        assert allowed == (set(got) == {"ok"}), (offloaded, recompute, got)
    assert "data is not allocated" in said_of_offload["full"]["attn_norm, full recompute, in turn"]
    assert "Chunk mismatch" in said_of_offload["full"]["core_attn, full recompute, pipeline"]


def test_a_recomputed_up_projection_needs_a_chunk_that_is_open(said_of_offload: dict[str, Any]) -> None:
    """std.offload_modules.up_proj_has_chunk, for sets of offloaded modules"""
    for case, answer in said_of_offload["latent"].items():
        modules = frozenset(case.split(", ")[0].split())
        values: Any = {"recompute": frozenset({"mla_up_proj"}), "offload_modules": modules, "cuda_graph": frozenset()}
        assert permits("std.offload_modules.up_proj_has_chunk", **values) == (answer == "ok"), (case, answer)
        assert answer == "ok" or "no attribute 'tensor_pop'" in answer


# Step-3.5's layers of MTP: which attention Bridge gives them, by the layers before their stage.

ASK = """
import json
from types import SimpleNamespace as Config
from megatron.bridge.models.stepfun import step35_provider as bridge
from megatron.bridge.models.stepfun.configuration_step35 import Step35Config
config = Step35Config(**json.load(open("stdlib/hf/stepfun-ai--Step-3.5-Flash/config.json")))
shape = {"window_size": [512, 0], "num_attention_heads": 96, "num_query_groups": 8, "kv_channels": 128}
heads = []
bridge.TransformerLayer.__init__ = lambda self, config, **named: heads.append(config.num_attention_heads)
bridge.get_pg_rank = lambda group: 0
def built(number, before, mtp):
    bridge.get_transformer_layer_offset = lambda config, vp_stage, rank: before
    own = Config(num_layers=45, num_attention_heads=64, layer_types=config.layer_types + config.mtp_layer_types,
                 sliding_attention_setting=shape)
    bridge.Step35DecoderLayer(own, None, number, pg_collection=Config(pp=None), is_mtp_layer=mtp)
    return heads.pop()
print(json.dumps({
    "layers": [built(n, 0, False) for n in range(1, 46)],
    "second stage": [built(n, 23, False) for n in range(1, 23)],
    "mtp": {before: [built(n, before, True) for n in (1, 2, 3)] for before in (0, 23)},
}))
"""


def test_mtp_of_a_pipeline_has_the_heads_of_full_attention() -> None:
    """So the plan leaves MTP out (`window_heads.model.mtp_num_layers`)."""
    m = model("step35_196b_a11b")
    ran = bridge_process.run("-c", ASK)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    ours = [m.heads if i % m.window_every == 0 else m.window_heads for i in range(m.layers)]
    assert said["layers"] == ours and said["second stage"] == ours[23:]
    assert said["mtp"] == {"0": [96, 96, 96], "23": [64, 64, 64]}


# The advice on MiniMax-M2's norm over all heads, held against Bridge's own norm on two ranks.


def test_tensor_parallel_ranks_lose_a_part_of_the_gradients(tmp_path: Path) -> None:
    """std.split_norm.whole_gradients"""
    errors = answers("ask_split_norm.py", str(tmp_path))
    for tp in (1, 2):
        assert (errors[f"gradients of {tp}"] < 1e-5) == permits("std.split_norm.whole_gradients", tp=tp)
        assert errors[f"outputs of {tp}"] < 1e-5
    assert errors["gradients of 2"] > 0.01


# Rules on Qwen3-VL's deepstack features, formats and offload, each held against Bridge's own code of the model.


@pytest.fixture(scope="module")
def said_of_deepstack(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers("ask_deepstack.py", str(tmp_path_factory.mktemp("meet")))


def test_full_recompute_takes_the_mergers_gradients(said_of_deepstack: dict[str, Any]) -> None:
    """std.deepstack.gradients_through_recompute"""
    for recompute, learned in said_of_deepstack["recomputed_tower"].items():
        values: Any = {
            "deepstack_learns": True,
            "recompute": frozenset() if recompute == "None" else frozenset({recompute}),
        }
        mergers = any(name.startswith("deepstack_merger_list") for name in learned)
        assert permits("std.deepstack.gradients_through_recompute", **values) == mergers
        assert any(name.startswith("layers.0") for name in learned)


def test_tensor_parallel_ranks_keep_their_parts_of_the_mergers_gradients(said_of_deepstack: dict[str, Any]) -> None:
    """std.deepstack.whole_gradients: two real ranks, with Megatron's own scatter to compare Bridge's cut with."""
    errors = said_of_deepstack["merger_gradients"]
    for tp in (1, 2):
        allowed = permits("std.deepstack.whole_gradients", deepstack_learns=True, tp=tp)
        assert (errors[f"bridge of {tp}"] < 1e-5) == allowed
        assert errors[f"scatter of {tp}"] < 1e-5
    assert errors["bridge of 2"] > 0.1


def test_deepstack_features_need_equal_parts_of_the_sequence(said_of_deepstack: dict[str, Any]) -> None:
    """std.vision.image_shards"""
    for seq, answer in said_of_deepstack["shards"].items():
        allowed = permits("std.vision.image_shards", is_qwen_vl=True, cp=2, tp=2, pp=1, ep=8, seq=int(seq))
        assert allowed == (answer == "ok")
    assert {answer == "ok" for answer in said_of_deepstack["shards"].values()} == {True, False}


def test_no_layer_of_qwen3_vl_runs_in_fp4(said_of_deepstack: dict[str, Any]) -> None:
    """std.vision.no_fp4: the block enters no context for it, where Megatron's own block does."""
    for precision in ("mxfp8", "nvfp4"):
        assert said_of_deepstack["formats"][f"core {precision}"]
        allowed = permits("std.vision.no_fp4", is_qwen_vl=True, precision=precision)
        assert allowed == (
            said_of_deepstack["formats"][f"qwen3_vl {precision}"] == said_of_deepstack["formats"][f"core {precision}"]
        )


def test_the_offload_of_activations_never_begins(said_of_deepstack: dict[str, Any]) -> None:
    """std.vision.no_activation_offload"""
    for name, begins in said_of_deepstack["offload_begins"].items():
        values: Any = {"is_qwen_vl": name == "qwen3_vl", "offload_modules": frozenset({"core_attn"})}
        assert permits("std.vision.no_activation_offload", **values) == begins


# Laws of DeepEP and HybridEP, which are in no wheel, held against what Megatron-Core hands to them.


@pytest.fixture(scope="module")
def said_of_dispatch() -> dict[str, Any]:
    return answers("ask_dispatch.py")


def test_a_group_lies_in_nodes_as_the_environment_says(said_of_dispatch: dict[str, Any]) -> None:
    """std.dispatch.hybridep_domain and std.dispatch.hybridep_nodes, in Megatron-Core's order of ranks."""
    for case, whole in said_of_dispatch["groups"].items():
        etp, ep = map(int, case.split())
        values = {"dispatcher": "hybridep", "gpus": 48, "etp": etp, "ep": ep, "nvlink_domain": 8, "gpus_per_node": 8}
        laws = ("std.dispatch.hybridep_domain", "std.dispatch.hybridep_nodes")
        assert all(permits(law, **values) for law in laws) == whole, case


def test_hybridep_makes_a_buffer_for_all_tokens_of_a_rank(said_of_dispatch: dict[str, Any]) -> None:
    """std.dispatch.hybridep_depth: its queue pairs hold three requests for each, and one more, of fewer than 65,536."""
    assert said_of_dispatch["tokens"] == {str(n): n for n in (64, 21824, 21845)}
    for tokens in (21824, 21825, 21845):
        values = {"dispatcher": "hybridep", "nvlink_domain": 8, "etp": 1, "rank_tokens": tokens}
        filled = -(-tokens // 64) * 64  # whole chunks
        assert permits("std.dispatch.hybridep_depth", ep=16, **values) == (3 * filled + 1 < 65536)
        assert permits("std.dispatch.hybridep_depth", ep=8, **values)


def test_deepep_takes_a_token_to_topk_times_etp_places(said_of_dispatch: dict[str, Any]) -> None:
    """std.dispatch.deepep_topk"""
    for case, places in said_of_dispatch["topk"].items():
        topk, etp = map(int, case.split())
        assert permits("std.dispatch.deepep_topk", dispatcher="deepep", topk=topk, etp=etp) == (places <= 32), case


def test_the_settings_of_deepep_are_those_of_the_whole_group(said_of_dispatch: dict[str, Any]) -> None:
    """std.dispatch.deepep_sizes: Megatron-Core asks for the settings of ETP x EP ranks, twice, whatever their number."""
    assert said_of_dispatch["settings"] == {str(n): [n, n] for n in (2, 3, 6, 8, 12)}
    for ranks, known in ((2, True), (3, False), (6, False), (8, True), (12, False), (16, True)):
        assert permits("std.dispatch.deepep_sizes", dispatcher="deepep", ep=ranks, etp=1) == known


@pytest.mark.parametrize(("ep", "laws"), [(2, []), (6, ["dispatch.hybridep_nodes"])])
def test_a_group_within_one_node(ep: int, laws: list[str]) -> None:
    """Where all GPUs are in one domain, no group leaves it."""
    layout = {"model": "nemotron_3_nano", "hardware": "h100", "dispatcher": "hybridep", "ep": ep, "global_batch": 288}
    assert broken({**layout, "gpus": 12}, {"experts": 126}) == laws
    assert broken({**layout, "gpus": 6}, {"experts": 126}) == []


def test_a_capacity_leaves_nothing_to_read_on_the_host(said_of_dispatch: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_dispatcher"""
    assert said_of_dispatch["host_reads"] == {"dropless": "before_finish", "padded": "no_sync"}
    for padded in (False, True):
        values: Any = {"cuda_graph": frozenset({"full_iteration"}), "drop_and_pad": padded}
        assert permits("std.cuda_graph.whole_graph_dispatcher", dispatcher="alltoall", **values) == padded
        assert not permits("std.cuda_graph.whole_graph_dispatcher", dispatcher="deepep", **values)
