"""Pairs of the rules of vision.moe and fsdp.moe, see rule_pairs.py."""

from __future__ import annotations

from tests.helpers.rule_runs import PARTIAL, WHOLE, Pair, run

_REAL = 'data "images"\n'
_FSDP_DERIVES = (
    "ddp.data_parallel_sharding_strategy", "checkpoint.ckpt_format", "ddp.average_in_collective", "ddp.overlap_grad_reduce",
    "ddp.overlap_param_gather", "ddp.megatron_fsdp_main_params_dtype", "ddp.megatron_fsdp_main_grads_dtype",
    "ddp.megatron_fsdp_grad_comm_dtype", "model.init_model_with_meta_device",
)  # fmt: skip
_CAPTURED_FSDP = ("ddp.megatron_fsdp_cuda_graph_mode", "ddp.fsdp_all_gather_in_start_param_sync")
_ALL_FROZEN = ["freeze_vision", "freeze_projection"]
_FROZEN = {"vlm": ["freeze_vision"]}
_GB200 = {"hardware": "gb200"}

VLM: dict[str, Pair] = {
    **{f"std.fsdp.{name}": (run(sharding="fsdp"), run()) for name in _FSDP_DERIVES},
    **{f"std.fsdp.{name}": (run(sharding="fsdp", **WHOLE), run(sharding="fsdp")) for name in _CAPTURED_FSDP},
    "std.deepstack.gradients_through_recompute": (
        run("vl", recompute=["moe_act"]),
        run("vl", recompute=["full"], vlm=["freeze_vision"]),
    ),
    "std.deepstack.whole_gradients": (run("vl"), run("vl", tp=2)),
    "std.vlm_sharding.sharding/1": (run("vl", "fit"), run("vl")),
    "std.vlm_sharding.sharding/2": (run("vl"), run("vl", "fit")),
    "std.vlm_sharding.fsdp_first": (run("vl", "fit", sharding="fsdp"), run("vl", "fit")),
    "std.vlm_sharding.three_d_once_stable": (run("vl"), run("vl", sharding="fsdp")),
    "std.vlm_sharding.full_recompute_first": (
        run("vl", "fit", sharding="fsdp", recompute=["full"], vlm=_ALL_FROZEN),
        run("vl", "fit", sharding="fsdp", recompute=["moe_act"], vlm=_ALL_FROZEN),
    ),
    "std.vlm_sharding.selective_once_fitting": (run("vl", recompute=["moe_act"]), run("vl", recompute=["full"])),
    "std.vlm_sharding.etp_only_for_fit": (run("vl"), run("vl", etp=2)),
    "std.vlm_sharding.no_cp_or_pp_under_fsdp": (run("vl", sharding="fsdp"), run("vl", sharding="fsdp", cp=2)),
    "std.vlm_sharding.ep_sized_to_topology": (run("vl", sharding="fsdp"), run("vl", sharding="fsdp", ep=4)),
    "std.vlm_sharding.modest_pp": (run("vl", **_GB200, pp=2), run("vl", **_GB200, pp=8, ep=2)),
    "std.vlm_graphs.narrow_before_real_data": (
        run("vl", cuda_graph=["moe_router", "moe_preprocess"]),
        run("vl", cuda_graph=PARTIAL),
    ),
    "std.vlm_graphs.wide_on_real_data": (
        run("vl", also=_REAL, cuda_graph=["moe_router", "moe_preprocess"]),
        run("vl", also=_REAL),
    ),
    "std.vlm_frozen.vision_encoder": (
        "the vision encoder dominates the step",
        "the vision encoder takes 3% of the step",
    ),
    "std.vlm_measured.mock_data_twice_as_fast": (run("vl"), run("vl", also=_REAL)),
    "std.vlm_measured.sweep_micro_batch": (run("vl"), run("vl", "fit")),
    "std.vlm_measured.relax_recompute": (run("vl", "fit", recompute=["full"]), run("vl", "fit", recompute=["moe_act"])),
    "std.vlm_measured.fsdp_gb200_mfu": (run("vl", **_GB200, sharding="fsdp"), run("vl", sharding="fsdp")),
    "std.vlm_measured.fsdp_b200_sensitive": (
        run("vl", hardware="b200", sharding="fsdp"),
        run("vl", **_GB200, sharding="fsdp"),
    ),
    "std.vlm_measured.three_d_recovers": (run("vl"), run("vl", sharding="fsdp")),
    "std.vlm_measured.useful_tokens": (run("vl"), run("vl", "fit")),
    "std.vlm_compatibility.hybridep_fsdp": (
        run("vl", **_GB200, dispatcher="hybridep", sharding="fsdp"),
        run("vl", **_GB200, dispatcher="hybridep"),
    ),
    "std.vlm_compatibility.hybridep_3d": (
        run("vl", **_GB200, dispatcher="hybridep"),
        run("vl", **_GB200, dispatcher="alltoall"),
    ),
    "std.vlm_compatibility.graphs_3d": (run("vl", cuda_graph=PARTIAL), run("vl")),
    "std.vlm_compatibility.frozen_fsdp": (run("vl", **_FROZEN, sharding="fsdp"), run("vl", sharding="fsdp")),
    "std.vlm_compatibility.frozen_3d": (run("vl", **_FROZEN), run("vl", **_FROZEN, sharding="fsdp")),
    "std.vlm_compatibility.selective_recompute": (run("vl", recompute=["moe_act"]), run("vl", recompute=["full"])),
}
