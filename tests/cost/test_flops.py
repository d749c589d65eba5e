"""Model FLOPs: against the function whose result Megatron Bridge's log prints, and published throughput."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from moedsl.compiler import load_stdlib
from moedsl.cost.flops import of_step, of_token
from moedsl.facts.facts import Model
from tests.helpers import bridge_process
from tests.helpers.cost_models import model

NANO, SUPER, ULTRA = (model(f"nemotron_3_{size}") for size in ("nano", "super", "ultra"))
LIGHTNING = model("nemotron_3_5_lightning")
NEXT = model("qwen3_next_80b_a3b")
CASES = (
    *((model(key), 4096, 1) for key in sorted(load_stdlib().models)),
    *((m, seq, tp) for m in (NANO, SUPER, ULTRA) for seq, tp in ((8192, 1), (4096, 4), (131072, 2))),
    (evolve(SUPER, mtp_layers=2), 8192, 1),  # what NVIDIA's recipes train
    (evolve(SUPER, mtp_layers=0, mtp_pattern="", mtp_repeated=False), 8192, 1),
    (evolve(SUPER, layer_pattern="M-*E" * 22, gated=True), 8192, 1),
    *((NEXT, seq, tp) for seq, tp in ((4096, 1), (32768, 2), (131072, 4))),
    (evolve(NEXT, mtp_layers=0, attention_gate=False, layers=46, linear_every=3, linear_key_dim=64), 8192, 1),
    (evolve(NEXT, layers=47, mtp_layers=2), 8192, 1),  # a gated delta net in the last layer, and so in MTP's
    (evolve(NANO, vocab=131_000, mamba_groups=2, mamba_state=64), 8192, 8),
)
"""Model, tokens and TP."""
ASK = """
import json, sys
from types import SimpleNamespace as Config
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.bridge.training.utils.flop_utils import num_floating_point_operations
said = [num_floating_point_operations(Config(model=Config(**m)), 16) for m in json.load(sys.stdin)]
print(json.dumps(said))
"""


def provider(m: Model, seq: int, tp: int) -> dict[str, Any]:
    """The fields of a provider that the function reads, as Bridge has them of this model."""
    fields: dict[str, Any] = {
        "seq_length": seq, "tensor_model_parallel_size": tp, "hidden_size": m.hidden, "num_layers": m.layers,
        "num_attention_heads": m.heads, "num_query_groups": m.query_groups, "kv_channels": m.head_dim,
        "ffn_hidden_size": m.ffn_hidden, "gated_linear_unit": m.gated, "num_moe_experts": m.experts,
        "moe_router_topk": m.topk, "moe_ffn_hidden_size": m.expert_hidden, "moe_latent_size": m.moe_latent or None,
        "moe_shared_expert_intermediate_size": m.shared_expert_hidden or None, "vocab_size": m.vocab,
        "moe_layer_freq": [0] * m.dense_layers + [1] * (m.layers - m.dense_layers),
        "mtp_num_layers": m.mtp_layers or None, "multi_latent_attention": m.attention == "mla",
        "make_vocab_size_divisible_by": 1280 if m.attention == "mla" else 128,
        "window_size": [m.window - 1, 0] if m.window else None, "window_attn_skip_freq": [int(i % m.window_every > 0) for i in range(1, m.layers + 1)] if m.window_every else None,
    }  # fmt: skip
    fields |= {"window_size": m.window, "window_attn_skip_freq": None} if m.windowed else {}
    fields |= {"window_size": None, "attention_output_gate": m.attention_gate} if m.window_heads else {}
    fields |= _linear(m) if m.linear else {}
    return fields | (_latent(m) if m.attention == "mla" else {}) | (_hybrid(m) if m.hybrid else {})


def _linear(m: Model) -> dict[str, Any]:
    return {
        "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": m.linear_every,
        "attention_output_gate": m.attention_gate, "linear_key_head_dim": m.linear_key_dim,
        "linear_value_head_dim": m.linear_value_dim, "linear_num_key_heads": m.linear_key_heads,
        "linear_num_value_heads": m.linear_value_heads, "linear_conv_kernel_dim": 4,
    }  # fmt: skip


def _latent(m: Model) -> dict[str, Any]:
    return {
        "q_lora_rank": m.q_lora_rank or None, "kv_lora_rank": m.kv_lora_rank, "qk_head_dim": m.qk_nope_dim,
        "qk_pos_emb_head_dim": m.qk_rope_dim, "v_head_dim": m.v_head_dim,
    }  # fmt: skip


def _hybrid(m: Model) -> dict[str, Any]:
    """The whole pattern has MTP's, once for each depth (bridge models/hybrid/hybrid_provider.py:207)."""
    return {
        "hybrid_layer_pattern": "/".join([m.layer_pattern, *[m.mtp_pattern] * m.mtp_layers]),
        "mamba_state_dim": m.mamba_state, "mamba_head_dim": m.mamba_head_dim, "mamba_num_groups": m.mamba_groups,
        "mamba_num_heads": m.mamba_heads, "mtp_num_layers": m.mtp_layers,
    }  # fmt: skip


@pytest.mark.bridge
def test_bridge_counts_the_same():
    """In a process of its own."""
    asked = [provider(*case) for case in CASES]
    ran = bridge_process.run("-c", ASK, text=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said) == len(CASES)
    for (m, seq, tp), theirs in zip(CASES, said, strict=True):
        assert of_step(m, seq, 16, tp) == pytest.approx(theirs, rel=1e-12), (m.name, seq, tp)


# Tokens/s/GPU and TFLOPS/GPU of published runs at 8K; NVIDIA's recipes for Super and Lightning train two depths of MTP.
PUBLISHED = (
    (NANO, 0, 39749, 885), (NANO, 0, 33522, 747), (NANO, 0, 14719, 328), (NANO, 0, 42094.107, 937.77),
    (SUPER, 2, 9652, 817), (SUPER, 2, 6742, 571), (SUPER, 2, 9243, 783), (SUPER, 2, 10307.741, 873.33),
    (LIGHTNING, 2, 28672, 807), (LIGHTNING, 2, 7110.095, 200.18), (LIGHTNING, 2, 24404.07, 686.92),
)  # fmt: skip


@pytest.mark.parametrize("m, depths, tokens, tflops", PUBLISHED)
def test_published_throughput_agrees(m: Model, depths: int, tokens: float, tflops: float):
    said = of_token(evolve(m, mtp_layers=depths), 8192) * tokens / 1e12
    assert said == pytest.approx(tflops, rel=0.002)
