"""What real runs print, for symptoms whose words no wheel holds, and which symptom each refused layout is."""

from __future__ import annotations

SEEN = {
    "flex_not_applied": "TransformerConfig(moe_token_dispatcher_type='alltoall', moe_flex_dispatcher_backend='deepep')",
    "graph_memory": "RuntimeError: CUDA error: out of memory while capturing a CUDA graph",
    "capture_failed": "RuntimeError: CUDA error: operation not permitted when stream is capturing",
    "graph_packed": "AssertionError: packed_seq_params not a Tensor",
    "nccl_memory": "Last error: Cuda failure 2 'out of memory'",
    "nccl_cuda": "NCCL error in: NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "time_limit": "slurmstepd: error: *** JOB 4711 ON node12 CANCELLED AT 2026-08-01T12:00:00 DUE TO TIME LIMIT ***",
    "host_memory": "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
    "deepep_missing": "ModuleNotFoundError: No module named 'deep_ep'",
    "hybridep_missing": "ImportError: cannot import name 'HybridEPBuffer' from 'deep_ep'",
    "nan_iterations": "iteration 5/ 100 | lm loss: nan | grad norm: nan | number of nan iterations:   0 |",
    "nsys_communication": "  54.2  23,561,000,000  6,144  3,834,798.0  ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "nsys_host": "     61.3    9,123,456,789    1,204,112     7,576.9  cudaLaunchKernel",
    "memory": "OOM during warmup: out of memory in warm-up",
    "communication": "Nsight shows large all-to-all blocks",
    "host": "the trace is launch-bound",
    "vision_encoder": "the vision encoder dominates the step",
    "compute": "low SM utilization once communication is hidden",
    "collective_timeout": "[rank3]:[E807 12:00:01.5 ProcessGroupNCCL.cpp:683] [PG ID 2 PG GUID 5(EXPERT_MODEL_PARALLEL_GROUP) Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1207, OpType=ALLTOALL_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
    "store_timeout": "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0",
    "deepep_timeout": "RuntimeError: DeepEP error: CPU recv timeout",
    "xid": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "ecc": "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "illegal_access": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "gated_repository": "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: ViT1Bf7O_026LGSQuVqfa)",
    "learning_rates": "    assert self.max_lr >= self.min_lr",
    "preflight_version": "moedsl preflight: bridge is 0.5.1 here, and the recipe is written for 0.6.2",
    "preflight_package": "moedsl preflight: deep_ep cannot be imported (ModuleNotFoundError: No module named 'deep_ep'), and dispatcher=deepep needs it",
    "preflight_node": "moedsl preflight: node n3 is bad: GPU 2 has 4 uncorrected ECC errors",
    "preflight_gpu": "moedsl preflight: GPU 0 is NVIDIA GB200: the plan is for H100",
    "preflight_path": "moedsl preflight: /data/corpus does not exist here: is it mounted?",
    "preflight_configuration": "moedsl preflight: the configuration of Qwen/Qwen3-30B-A3B is not in /cache/hub, and this job must not ask the Hugging Face hub",
    "preflight_secret": "secret HF_TOKEN is not set in this job",
}
"""CUDA's, NCCL's, Slurm's and the profiler's own words, a configuration as printed, and what a person says of a profile."""

REFUSED = {
    "attention mesh: cp 3 on 16": "world_over_model",
    "expert mesh: ep 32 on 16": "world_over_experts",
    "heads: 36 over 8": "heads_over_tp",
    "query groups: 3 over 2": "heads_over_tp",
    "dense width: 11265 over 2": "width_over_tp",
    "vocabulary: 151937 over 2": "width_over_tp",
    "biased experts over etp 2": "biased_experts",
    "layers: 48 on 16 x 4": "chunks_differ",
    "vpp without pp": "vpp_without_pp",
    "layout of 4 chunks with vpp 3": "layout_stale",
    "layout one short": "layout_layers",
    "layout without the MTP layer": "layout_layers",
    "layout with the loss first": "layout_ends",
    "batch: 250 over 16": "batch_over_dp",
    "interleaved: 6 microbatches on 4": "microbatches_interleaved",
    "interleaved: 2 microbatches on 4": "microbatches_interleaved",
    "context shards: 4098 over 2 x 2": "sequence_over_cp",
    "mla_up_proj without MLA": "recompute_needs_mla",
    "full recompute under attn graphs": "graph_full_recompute",
    "moe recompute under router graphs": "graph_moe_recompute",
    "moe_preprocess without moe_router": "graph_preprocess",
    "overlap without EP": "overlap_without_ep",
    "overlap, pp 2 without vpp": "overlap_without_vpp",
    "overlap with full recompute": "overlap_full_recompute",
    "overlap with moe recompute": "overlap_moe_recompute",
    "overlap with two MTP layers": "overlap_mtp",
    "K-EXAONE with expert overlap": "overlap_dense_mtp",
    "delayed weight gradients alone": "wgrad_without_overlap",
    "delayed weight gradients, biased attention in a graph": "wgrad_graph_bias",
    "deepep on gb200": "flex_refused",
    "deepep alone in its group": "flex_alone",
    "mxfp8 on h100": "fp8_gpu",
    "nvfp4 on h100": "fp8_gpu",
    "vision heads: 16 over 32": "vision_heads",
    "vision with vpp": "vision_vpp",
    "deepstack: 2 layers on the first of 24 stages": "vision_deepstack",
    "FSDP with pp": "fsdp_mesh",
    "shared keys, a stage that starts with a layer without an indexer": "sparse_split",
}
"""Layouts of rule_cases.py that the real Bridge refuses, and the symptom that its message is."""

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
