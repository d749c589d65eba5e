"""Pairs of the rules of walls.moe and workflow.moe, see rule_pairs.py."""

from __future__ import annotations

from tests.helpers.rule_runs import PARTIAL, Pair, own, run

_PROFILED = (
    "profiling.use_nsys_profiler", "profiling.use_pytorch_profiler", "profiling.profile_step_start", "profiling.profile_step_end",
    "profiling.profile_ranks", "profiling.nvtx_ranges", "profiling.record_shapes", "profiling.record_memory_history",
    "profiling.memory_snapshot_path", "train.train_iters", "scheduler.lr_warmup_iters",
)  # fmt: skip

WORKFLOW: dict[str, Pair] = {
    "std.walls.memory": (
        "OOMs during warm-up; it only fits with aggressive full recompute",
        "iteration 10/ 100 | peak 61.2 GiB of 74.5",
    ),
    "std.walls.communication": (
        "Nsight shows large all-to-all blocks with nothing beside them",
        "all-to-all runs behind the next layer",
    ),
    "std.walls.host": ("GPU gaps and launch-bound traces", "kernels run back to back"),
    "std.walls.compute": ("low SM utilization with communication and host out of the way", "SM utilization 92%"),
    "std.walls.usual_on_hopper": (run(), run("gb200")),
    "std.walls.usual_on_nvl72": (run("gb200"), run()),
    "std.walls.low_precision_mfu": (run(precision="fp8_blockwise"), run()),
    "std.walls.graphs_hold_memory": (run(cuda_graph=PARTIAL), run()),
    "std.host_work.train.manual_gc": (run(), own("derive train.manual_gc = false")),
    "std.host_work.train.manual_gc_interval": (run(), own("derive train.manual_gc_interval = 10")),
    "std.fusion.moe_grouped_gemm": (run(), own("derive moe_grouped_gemm = false")),
    "std.fusion.moe_permute_fusion": (run(), own("derive moe_permute_fusion = false")),
    "std.data_loading.dataset.num_workers": (run(), own("derive dataset.num_workers = 2")),
    "std.fusion.bias_activation_fusion": (run(), own("derive bias_activation_fusion = false")),
    "std.fusion.apply_rope_fusion": (run(), own("derive apply_rope_fusion = false")),
    "std.fusion.dist.enable_megatron_core_experimental": (run(model="deepseek_v3"), run()),
    "std.fusion.cross_entropy_loss_fusion": (run(), own("derive cross_entropy_loss_fusion = false")),
    "std.fusion.cross_entropy_fusion_impl": (run(), own('derive cross_entropy_fusion_impl = "native"')),
    "std.fusion.moe_router_fusion": (run(), run(phase="fit")),
    "std.fusion.comm_overlap.tp_comm_overlap": (run(), own("derive comm_overlap.tp_comm_overlap = true")),
    **{f"std.profile.{name}": (run(phase="profile"), run(phase="scale")) for name in _PROFILED},
    "std.ladder.process_groups": (run(phase="fit"), run(phase="scale")),
    "std.ladder.contract": (run(phase="fit"), run(phase="scale")),
    "std.ladder.hidden_communication": (run(phase="profile"), run(phase="scale")),
    "std.ladder.one_variable": (run(), run(phase="scale")),
    "std.ladder.windows": (run(), run(phase="scale")),
    "std.ladder.evidence": (run(), run(phase="scale")),
    "std.ladder.bf16_first": (run(precision="fp8_blockwise"), run()),
    "std.ladder.unchanged": (run(phase="profile"), run(phase="scale")),
    "std.ladder_alone.wrong_order": (run(), run(phase="fit")),
    "std.ladder.graphs_and_recompute": (run(cuda_graph=PARTIAL), run()),
    "std.ladder.iterate": (run(phase="profile"), run(phase="scale")),
}
