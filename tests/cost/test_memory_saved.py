"""What the estimate keeps of a layer against what Megatron-Core's own modules save for backward, to the byte.

`count_saved.py` runs real layers on a CPU and counts the tensors that autograd packs. They are the local modules, not
Transformer Engine's; each difference that this makes is a line of `LOCAL`, and nothing else may differ. The norm and the
attention are replaced by ones that save what fused kernels do.
"""

import json
from functools import cache

import numpy as np
import pytest
from attrs import evolve, fields

from moedsl.cost import activations, compute, rows
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Model
from tests.helpers import bridge_process, rotation
from tests.helpers.cost_models import hardware, model
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

SEQ, HIDDEN, EXPERTS, TOPK = 256, 128, 16, 4
SIZES = {"hidden": HIDDEN, "heads": 8, "ffn_hidden": 320, "experts": EXPERTS, "topk": TOPK, "expert_hidden": 96}
ATTENTION = {
    "gqa": evolve(model("qwen3_30b_a3b"), query_groups=2, head_dim=32, **SIZES),
    "unfused": evolve(model("qwen3_30b_a3b"), query_groups=2, head_dim=32, **SIZES),
    "split": evolve(
        model("qwen3_30b_a3b"), query_groups=2, head_dim=32, qk_norm_over="split_heads", **SIZES,
    ),
    "gated": evolve(model("qwen3_30b_a3b"), query_groups=2, head_dim=32, attention_gate=True, **SIZES),
    "delta": evolve(
        model("qwen3_30b_a3b"), query_groups=2, head_dim=32, attention_gate=True, linear_every=100, linear_key_heads=4,
        linear_key_dim=16, linear_value_heads=8, linear_value_dim=24, **SIZES,
    ),
    "mla": evolve(
        model("deepseek_v3"), q_lora_rank=48, kv_lora_rank=40, qk_nope_dim=24, qk_rope_dim=16, v_head_dim=40,
        shared_expert_hidden=112, **SIZES,
    ),
}  # fmt: skip
"""The models of `count_saved.py`."""
NORMS = {
    "gqa": 4 * (8 + 2 + 1 + 1),
    "unfused": 4 * (8 + 2 + 1 + 1),
    "split": 4 * (1 + 1 + 1 + 1),
    "gated": 4 * (8 + 2 + 1 + 1),
    "delta": 4 * (2 * 4 + 8 + 1 + 1),
    "mla": 4 * 4,
}
"""Bytes a token: one FP32 number for each row of each norm, which the estimate leaves out."""
ROPE = {
    "gqa": 4 * 32 * 2,
    "unfused": 4 * 32 * 2,
    "split": 4 * 32 * 2,
    "gated": 4 * 32 * 2,
    "delta": 0,
    "mla": 4 * 16 * 2,
}
"""Cosines and sines for q and for k, made anew where the rotary embedding is not fused; NVIDIA's recipes fuse it."""
ROUTER = 4 * EXPERTS + 4 * TOPK - 9 * EXPERTS
"""The unfused router's softmax and weights, over the 9 bytes for each expert of the fused one."""
LSE = 4 * 8
"""Attention's log-sum-exp, which moves with `core_attn` here; real ones are often below Megatron's smallest size."""
LOCAL = table_of("cost", "saved by local layers")
"""Bytes a token that a case saves above the estimate, norms and rotary tables aside."""
TAKEN = rotation.one_of_each("saved layers", [*LOCAL], lambda case: case.split()[0])
FULL = ["gqa moe full", "mla moe full"]


@cache
def answered() -> dict[str, dict[str, dict[str, int]]]:
    """What the script prints."""
    alone = {case.partition(" offload ")[0] for case in TAKEN}  # without what a case offloads
    done = bridge_process.run(
        str(ROOT / "tests/oracles/count_saved.py"), *sorted({*TAKEN, *FULL, *alone}), stage="torch"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def counted() -> dict[str, dict[str, int]]:
    """Bytes that one more layer saves in each case."""
    return answered()["saved"]


def estimated(case: str) -> float:
    """The same by the estimate."""
    said, _, moved = case.partition(" offload ")
    attention, kind, *recompute = said.split()
    m: Model = ATTENTION[attention]
    codes = {"recompute": recompute, "offload_modules": moved.split()}
    full = rows.complete({name: BY_NAME[name].encode(words) for name, words in codes.items()})
    table = rows.Levels.of(full, tuple(full)).table(tuple(full), 1)
    kept = activations.layers(m, evolve(activations.sizes(m, table, SEQ), unfused=attention == "unfused"))
    return float(kept["delta" if m.linear else kind][0])


@pytest.mark.bridge
@pytest.mark.parametrize("case", TAKEN)
def test_a_layer_saves_what_the_estimate_says(case: str) -> None:
    attention = case.split()[0]
    known = SEQ * (LOCAL[case] + NORMS[attention] + ROPE[attention])
    assert counted()[case]["float"] == pytest.approx(estimated(case) + known, abs=40)  # a number or so for each head


@pytest.mark.bridge
@pytest.mark.parametrize("case", FULL)
def test_full_recompute_saves_the_layers_input_alone(case: str) -> None:
    assert counted()[case]["float"] == estimated(case) == SEQ * HIDDEN * 2


@pytest.mark.bridge
def test_indices_are_small_beside_what_is_counted() -> None:
    """Integers that Megatron saves for the permutation, which the estimate leaves out."""
    for case, found in counted().items():
        whole = counted()[case.partition(" offload ")[0]]
        assert found["other"] <= 0.04 * whole["float"], case


@pytest.mark.bridge
def test_nested_checkpoints_compute_as_often_as_the_estimate_says() -> None:
    """Forwards of a shared expert and of the experts' activation in Megatron-Core, with backward's repetition."""
    forwards = answered()["forwards"]
    assert forwards == {words: repeated(words) + 1 for words in forwards}
    assert forwards["moe shared_experts"] == forwards["moe moe_act"] == 3


def repeated(words: str) -> float:
    """How often the estimate computes the activation again, or the shared expert."""
    m, part = model("deepseek_v3"), "activation" if "moe_act" in words else "shared"
    full = rows.complete({"recompute": BY_NAME["recompute"].encode(words.split())}) | {"captured": np.zeros(1, int)}
    table = rows.Levels.of(full, tuple(full)).table(tuple(full), 1)
    work = compute.work(m, hardware("h100"), table, SEQ, 1.0)
    alone = compute.Work(**{f.name: getattr(work, f.name) * (f.name == part) for f in fields(compute.Work)})
    return float((compute.recomputed(m, alone, table)["moe"] / getattr(work, part))[0])
