"""What quantisation, the joining of a CP ring and the host add to a step: numbers against real linears, and when."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from moedsl.cost import Cost, compute
from moedsl.cost.rows import Levels, complete
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Model
from tests.helpers import bridge_process
from tests.helpers.cost_models import hardware, model

ROW = {"ep": 8, "dispatcher": 2}
WHOLE = BY_NAME["cuda_graph"].encode(["full_iteration"])


def cost(name: str = "qwen3_30b_a3b", gpu: str = "h100") -> Cost:
    return Cost(model(name), hardware(gpu), 8, 4096, 64, routing="balanced")


def passes(precision: str, **more: int) -> float:
    row = {**ROW, "precision": BY_NAME["precision"].encode(precision), **more}
    return cost().work_report(row)["passes"]


LINEARS = """
import json, sys, torch
from transformers import DeepseekV3Config, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeAttention

found = {}
for name, (is_mla, sizes) in json.load(sys.stdin).items():
    with torch.device("meta"):
        layer = DeepseekV3Attention(DeepseekV3Config(**sizes), 0) if is_mla else Qwen3MoeAttention(Qwen3MoeConfig(**sizes), 0)
    parts = ((name, part) for name, part in layer.named_modules() if isinstance(part, torch.nn.Linear))
    found[name] = {name: (part.in_features, part.out_features) for name, part in parts}
print(json.dumps(found))
"""
MODELS = ("qwen3_30b_a3b", "qwen3_235b_a22b", "deepseek_v3")


@cache
def linears() -> dict[str, dict[str, tuple[int, int]]]:
    """(in, out) of attention's linears as Hugging Face builds them, on the meta device."""
    ran = bridge_process.run(
        "-c", LINEARS, text=json.dumps({name: sizes(model(name)) for name in MODELS}), stage="transformers"
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def sizes(m: Model) -> tuple[bool, dict[str, Any]]:
    """Whether a model has MLA, and its configuration of Hugging Face."""
    shape: dict[str, Any] = {
        "hidden_size": m.hidden,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.query_groups,
    }
    mla: dict[str, Any] = {
        "q_lora_rank": m.q_lora_rank,
        "kv_lora_rank": m.kv_lora_rank,
        "qk_nope_head_dim": m.qk_nope_dim,
        "qk_rope_head_dim": m.qk_rope_dim,
        "v_head_dim": m.v_head_dim,
    }
    is_mla = m.attention == "mla"
    return is_mla, shape | (mla if is_mla else {"head_dim": m.head_dim})


@pytest.mark.bridge
@pytest.mark.parametrize("name", MODELS)
def test_each_input_and_each_gradient_is_quantised_once(name: str) -> None:
    """Linears that read the hidden state share its copy; the last one's gradient is the hidden state's."""
    m = model(name)
    entering, leaving = compute.quantised(m)
    found = linears()[name]
    assert entering == sum(n for n, _ in found.values() if n != m.hidden)
    assert leaving == sum(n for part, (_, n) in found.items() if part != "o_proj")


def test_current_scaling_reads_once_more() -> None:
    bf16, block, current = (passes(p) for p in ("bf16", "fp8_blockwise", "fp8_current"))
    assert (current - bf16) / (block - bf16) == pytest.approx(1.5)


def test_a_graph_of_the_whole_iteration_does_not_wait_for_the_host() -> None:
    asked = cost()
    passes, k = asked.model.layers * 8, asked.hardware.constants
    assert asked.time_report({**ROW, "cuda_graph": WHOLE})["launch"] == pytest.approx(k.gaps * passes)
    assert asked.time_report(ROW)["launch"] == pytest.approx((k.gaps + k.host_wait) * passes)


def test_joining_starts_with_the_second_rank_of_a_ring_and_does_not_shrink_with_more() -> None:
    m, hw = model("deepseek_v3"), hardware("h100")
    cols = complete({"cp": np.array([1, 2, 4, 8]), "micro_batch": np.ones(4, np.int64)})
    t = Levels.of(cols, tuple(cols)).table(tuple(cols))
    seconds = compute.joined(m, hw, t, 32768)[t.inverse]
    assert seconds[0] == 0
    assert (np.diff(seconds[1:]) > 0).all()
    assert seconds[3] < 3 * seconds[1]
