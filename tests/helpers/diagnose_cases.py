"""Lines of logs and the symptoms that they are, of tests/data/symptoms.toml; what a healthy run prints."""

import tomllib

from tests.helpers.paths import DATA

_TABLES = tomllib.loads((DATA / "symptoms.toml").read_text(encoding="utf-8"))
SYMPTOMS: dict[str, str] = _TABLES["printed"] | _TABLES["seen"]
"""A line of each symptom of the stdlib."""
SEEN: dict[str, str] = {name.rpartition(".")[2]: line for name, line in _TABLES["seen"].items()} | _TABLES["other"]
"""What real runs print and no wheel holds, by the name of the symptom."""
REFUSED: dict[str, str] = _TABLES["refused"]
"""Layouts of law_cases.toml that the real Bridge refuses, and the symptom that its message is."""

TABLE = (
    "overlap_without_ep", "overlap_dispatcher", "overlap_precision", "overlap_torch", "overlap_without_vpp",
    "overlap_full_recompute", "wgrad_without_overlap", "wgrad_graph_fusion", "wgrad_graph_bias", "flex_not_applied",
    "flex_skipped",
)  # fmt: skip
"""The rows of the failure table of the seed on expert-parallel overlap, in its order."""

HEALTHY = (
    "[2026-08-01 12:00:00] iteration  100/ 1000 | consumed samples: 102400 | elapsed time per iteration (ms): 31310.1 |"
    " throughput per GPU (TFLOP/s/GPU): 300.1 | lm loss: 1.2E+01 | grad norm: 1.2 | number of nan iterations: 0 |",
    "> initializing torch distributed with 16 ranks, expert_model_parallel_size 16, virtual_pipeline_model_parallel_size 2",
    "  recompute_modules: [moe_act]",
    "  moe_token_dispatcher_type: flex   moe_flex_dispatcher_backend: deepep",
    "srun: job 4711 queued and waiting for resources",
    "global batch size 1024, micro batch size 1, data parallel size 16",
    "   3.1   120,000,000   1,204,112   7,576.9  cudaLaunchKernel",
    "INFO:megatron.bridge:Using preset vocab_size: 151936 over the tokenizer vocab_size: 151643",
    "NCCL version 2.27.3+cuda12.9",
    "saving checkpoint at iteration 100 in fsdp_dtensor format",
)
"""What a run that goes well prints."""
