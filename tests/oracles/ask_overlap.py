"""Bridge's own checks of overlap and delayed weight gradients, asked for a grid of versions: JSON lines on stdout.

Each question is a configuration with the versions of PyTorch and Transformer Engine that Bridge is told; the answer is
the message of its assertion, or null. Run as a script where Bridge is installed.
"""

import itertools
import json
from typing import Any

from packaging.version import Version

from moedsl.bridge.verify import stand_ins

GRAPHS: tuple[list[str], ...] = ([], ["attn"], ["moe_router"])
TORCH, TE = ("2.5.1", "2.6.0"), ("2.6.0", "2.7.0", "2.11.0", "2.12.0")


def grid() -> list[dict[str, Any]]:
    """Every question: a model with and without shared experts, both switches, graphs and versions."""
    keys = ("shared", "wgrad", "graphs", "torch", "te")
    return [dict(zip(keys, v, strict=True)) for v in itertools.product((0, 512), (False, True), GRAPHS, TORCH, TE)]


def main() -> None:
    stand_ins.install_engine()
    from megatron.bridge.training import comm_overlap
    from megatron.core.distributed import DistributedDataParallelConfig

    for q in grid():
        comm_overlap.is_torch_min_version = lambda v, q=q: Version(q["torch"]) >= Version(v)
        comm_overlap.is_te_min_version = lambda v, q=q: Version(q["te"]) >= Version(v)
        config = comm_overlap.CommOverlapConfig(
            tp_comm_overlap=False, overlap_moe_expert_parallel_comm=True, delay_wgrad_compute=q["wgrad"]
        )
        config.data_parallel_size = 16
        config.finalize()
        ddp = DistributedDataParallelConfig(overlap_grad_reduce=True)
        print(json.dumps({**q, "refused": _asked(config, _model(q), ddp)}))


def _asked(config: Any, model: Any, ddp: Any) -> str | None:
    try:
        config._get_model_comm_overlap_cfgs(model, ddp)
    except AssertionError as e:
        return str(e)
    return None


def _model(q: dict[str, Any]) -> Any:
    """A small MoE model's configuration, made without Megatron-Core's own validation, which asks the same again."""
    from megatron.core.transformer import TransformerConfig

    model = TransformerConfig(
        num_layers=4, hidden_size=256, num_attention_heads=4, num_moe_experts=8, expert_model_parallel_size=8, bf16=True,
        moe_token_dispatcher_type="alltoall", add_bias_linear=False, moe_ffn_hidden_size=128,
    )  # fmt: skip
    model.moe_shared_expert_intermediate_size = q["shared"] or None
    model.cuda_graph_impl = "transformer_engine" if q["graphs"] else "none"
    model.cuda_graph_modules = _modules(q["graphs"])
    model.gradient_accumulation_fusion = True
    return model


def _modules(names: list[str]) -> list[Any]:
    from megatron.core.transformer.enums import CudaGraphModule

    return [CudaGraphModule[n] for n in names]


if __name__ == "__main__":
    main()
