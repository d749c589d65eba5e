"""What a step costs beside its products: overlap in the passes that have a partner, MTP's own logits, weights moved."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from moedsl.compiler import compile_source
from moedsl.cost import Cost, compute
from moedsl.cost.communication import Skew
from moedsl.cost.rows import Levels, Table, complete
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Model
from moedsl.rules.check.program import Program
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.cost_models import hardware, model
from tests.helpers.programs import compiled

QWEN = {"ep": 16, "micro_batch": 1, "dispatcher": 0, "cuda_graph": 0, "grad_reduce": 1}
"""Qwen3-30B as NVIDIA compared it with and without overlap (seed "expert-parallel overlap"): alltoall, EP 16."""


def overlapped_cost(run: str) -> Cost:
    """The prices of a run."""
    (program,) = compile_source(Source("run.moe", f"{run}; throughput first; routing balanced"), "check").programs
    assert isinstance(program, Program) and program.gpus
    return make_cost(lower(program, program.gpus))


def seconds(c: Cost, row: dict[str, Any]) -> float:
    return float(c.time(row)[0])


def test_overlap_and_delayed_gradients_save_what_was_measured() -> None:
    """41.25 s a step without overlap, 31.31 with it, 31.20 with delayed weight gradients too."""
    c = overlapped_cost("qwen3_30b_a3b; h100 x 16; seq 4096; batch 1024; precision bf16")
    off, on, delayed = (
        seconds(c, {**QWEN, "ep_overlap": overlap, "delay_wgrad": delay}) for overlap, delay in ((0, 0), (1, 0), (1, 1))
    )
    assert off == pytest.approx(41.25, rel=0.15)
    assert on == pytest.approx(31.31, rel=0.15)
    assert on / delayed == pytest.approx(31.31 / 31.20, rel=0.01)


@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_the_first_forward_and_the_last_backward_have_no_partner(microbatches: int) -> None:
    """core pipeline_parallel/combined_1f1b.py:51-56: of n microbatches n - 1 overlap."""
    c = overlapped_cost(f"qwen3_30b_a3b; gb200 x 8; seq 4096; batch {8 * microbatches}; precision bf16")
    row = {"ep": 8, "dispatcher": 2, "micro_batch": 1, "cuda_graph": 7}
    saved = seconds(c, row) - seconds(c, {**row, "ep_overlap": 1})
    many = evolve(c, global_batch=8 * 64)
    each = (seconds(many, row) - seconds(many, {**row, "ep_overlap": 1})) / 63
    assert saved == pytest.approx(each * (microbatches - 1), rel=0.02, abs=1e-6)


def test_a_layer_of_multi_token_prediction_has_logits_of_its_own() -> None:
    """core transformer/multi_token_prediction.py:841-855: a product with the vocabulary and a loss for each."""
    c = overlapped_cost("deepseek_v3; gb200 x 256; seq 4096; batch 4096; precision bf16")
    row = {"ep": 64, "dispatcher": 2, "micro_batch": 1}
    without = evolve(c, model=evolve(c.model, mtp_layers=0))
    flops = 6 * 4096 * 16 * c.model.hidden * c.model.vocab
    least = flops / (c.hardware.tflops["bf16"] * 1e12)
    layer = (seconds(without, row) - least) / (c.model.layers + 1)
    assert seconds(c, row) - seconds(without, row) > layer + least


def test_fewer_tokens_for_each_expert_make_a_token_dearer() -> None:
    """Every microbatch moves a rank's weights and their gradients once, however many tokens it has."""
    c = overlapped_cost("qwen3_235b_a22b; gb300 x 64; seq 4096; batch 2048; precision mxfp8")
    few, many = (c.work_report({"ep": ep, "dispatcher": 2, "micro_batch": 2})["matrix"] for ep in (4, 32))
    assert few > 1.02 * many
    wide, narrow = (
        c.work_report({"ep": 4, "dispatcher": 2, "micro_batch": 2, "grad_reduce": bits})["matrix"] for bits in (0, 1)
    )
    assert wide > narrow


# What the machine adds to a roofline: power, hosts, messages that start, ports that are faster than NCCL,
# stragglers.

MACHINE_ROW = {"ep": 8, "micro_batch": 1, "cuda_graph": 0}
ALLTOALL, HYBRIDEP = (BY_NAME["dispatcher"].encode(w) for w in ("alltoall", "hybridep"))
MOE = 1 << BY_NAME["recompute"].words.index("moe")


def machine_cost(gpu: str = "b200", gpus: int = 64, name: str = "qwen3_30b_a3b", **more: Any) -> Cost:
    return Cost(model(name), hardware(gpu), gpus, 4096, 4096, **more)


def part(cost: Cost, name: str, **row: int) -> float:
    return cost.time_report({**MACHINE_ROW, **row})[name]


def test_the_clock_follows_the_power_of_equal_peaks() -> None:
    assert compute.clock(hardware("gb200")) == compute.clock(hardware("h100")) == 1
    assert 1.05 < compute.clock(hardware("gb300")) < 1.15
    capped = evolve(hardware("gb200"), watts=900.0)
    assert 0.75 < compute.clock(capped) < 0.9


def test_more_exponentials_help_attention_alone() -> None:
    one, two = hardware("gb200"), evolve(hardware("gb200"), exponentials=32.0)
    slow, fast = (Cost(model("qwen3_30b_a3b"), hw, 64, 4096, 4096).work_report(MACHINE_ROW) for hw in (one, two))
    assert fast["attention"] < 0.9 * slow["attention"]
    assert fast["matrix"] == slow["matrix"]


def test_launches_grow_with_the_experts_of_a_rank_under_alltoall() -> None:
    few, many = (part(machine_cost(), "launch", ep=ep, dispatcher=ALLTOALL) for ep in (64, 8))
    assert many > few
    assert part(machine_cost(), "launch", ep=8, dispatcher=HYBRIDEP) < many


def test_a_grace_host_launches_slower() -> None:
    x86, grace = (evolve(hardware("b200"), host=host) for host in ("x86", "grace"))
    slow, fast = (part(evolve(machine_cost(), hardware=hw), "launch", dispatcher=ALLTOALL) for hw in (grace, x86))
    assert slow > fast


def test_recompute_launches_again() -> None:
    without, again = (
        sum(machine_cost().time_report({**MACHINE_ROW, "dispatcher": ALLTOALL, "recompute": r}).values())
        for r in (0, MOE)
    )
    assert again > without


def test_recompute_repeats_the_messages_of_what_it_repeats() -> None:
    """Forward has two of the five messages of a block: attention and the shared expert are one each."""
    every = evolve(model("deepseek_v3"), dense_layers=0, mtp_layers=0)
    row = {**MACHINE_ROW, "tp": 2, "pp": 4}
    said = ([], ["shared_experts"], ["moe"], ["moe", "shared_experts"], ["full"], ["moe_act", "core_attn"])
    none, *again = (
        part(
            evolve(machine_cost("gb200"), model=every),
            "tensor_communication",
            **row,
            recompute=BY_NAME["recompute"].encode(r),
        )
        for r in said
    )
    assert [round((seconds / none - 1) * 10, 6) for seconds in again] == [2, 2, 4, 4, 0]


def test_a_faster_port_does_not_make_nccl_faster() -> None:
    """45 GB/s were measured on B200 with ports of 50, and 51 on B300 with ports of 100."""
    b200, b300 = (
        part(machine_cost(gpu), "expert_communication", ep=64, dispatcher=ALLTOALL) for gpu in ("b200", "b300")
    )
    assert b200 / b300 == pytest.approx(51 / 45, rel=0.05)
    b200, b300 = (
        part(machine_cost(gpu), "expert_communication", ep=64, dispatcher=HYBRIDEP) for gpu in ("b200", "b300")
    )
    assert b200 / b300 > 1.5


def test_a_message_takes_time_to_start() -> None:
    balanced = machine_cost(routing="balanced")
    near = part(balanced, "expert_communication", dispatcher=HYBRIDEP)
    slower = evolve(hardware("b200"), constants=evolve(hardware("b200").constants, exchange_start=1e-3))
    layers, microbatches = 48, 4096 // 64
    more = part(evolve(balanced, hardware=slower), "expert_communication", dispatcher=HYBRIDEP) - near
    assert more == pytest.approx(4 * layers * microbatches * (1e-3 - hardware("b200").constants.exchange_start))


def test_stragglers_grow_with_the_groups_and_shrink_with_microbatches() -> None:
    share = [part(machine_cost(gpus=n), "stragglers") / part(machine_cost(gpus=n), "compute") for n in (8, 64, 512)]
    assert share[0] == 0 < share[1] < share[2]
    larger = evolve(machine_cost(gpus=512), global_batch=65536)
    assert part(larger, "stragglers") / part(larger, "compute") < share[2]
    assert part(machine_cost(gpus=512, routing="balanced"), "stragglers") == 0


def test_a_step_has_a_least_time() -> None:
    small = Cost(model("moonlight_16b"), hardware("h100"), 8, 128, 8)
    assert float(small.time({"ep": 8})[0]) > small.hardware.constants.host_step == part(small, "step_overhead")


def test_a_scan_is_launched_from_python_in_any_precision_unless_a_graph_has_it() -> None:
    none, mamba = (1 << BY_NAME["cuda_graph"].words.index("mamba") if on else 0 for on in (False, True))
    few = Cost(model("nemotron_3_nano"), hardware("h100"), 8, 1024, 64)
    eager, graphed = (few.time_report({**MACHINE_ROW, "cuda_graph": g})["launch"] for g in (none, mamba))
    saved = eager - graphed
    assert saved > 0.5 * 8 * 23 * few.hardware.constants.host_scan
    fp8 = BY_NAME["precision"].encode("fp8_current")
    more = (
        few.time_report({**MACHINE_ROW, "precision": fp8})["launch"]
        - few.time_report({**MACHINE_ROW, "precision": fp8, "cuda_graph": mamba})["launch"]
    )
    assert more < 2 * saved


# What quantisation, the joining of a CP ring and the host add to a step: numbers against real linears, and when.

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


# How full the fullest rank of an expert group is under natural routing.

RANKS = np.array([1, 2, 8, 32, 128])
WHOLE_GRAPH = np.zeros(len(RANKS), np.int64)


def fullest(taste: float, captured: bool = False, luck: float = 0.0, micro_batch: int = 1) -> list[float]:
    one = np.ones_like(RANKS)
    columns = {"ep": RANKS, "captured": WHOLE_GRAPH + captured, "micro_batch": one * micro_batch, "cp": one, "tp": one}
    t = Table(columns, np.arange(len(RANKS)))
    return [float(x) for x in Skew(luck, taste, 1.5).fullest(model("qwen3_30b_a3b"), t, 4096)]


def test_one_rank_has_all_tokens_and_more_ranks_a_fuller_one() -> None:
    found = fullest(0.2)
    assert found[0] == 1 and found == sorted(found)
    assert 1.2 < found[2] < 1.6


def test_forced_balance_has_none() -> None:
    assert fullest(0.0) == [1.0] * len(RANKS)


def test_more_tokens_average_the_luck_of_texts_out() -> None:
    """Against drawing the deviations: of 8 and 32 ranks' tokens, the mean of the fullest."""
    draw = np.random.default_rng(0)
    few, many = fullest(0.0, luck=0.35), fullest(0.0, luck=0.35, micro_batch=4)
    assert few[0] == many[0] == 1
    assert np.allclose(np.subtract(few, 1), 2 * np.subtract(many, 1))
    for at, ranks in ((2, 8), (3, 32)):
        deviation = 0.35 * np.sqrt(16384 / (4096 * ranks))
        drawn = 1 + deviation * draw.standard_normal((4000, ranks)).max(axis=1).mean()
        assert 1 < (few[at] - 1) / (drawn - 1) < 1.5


def test_no_rank_has_more_than_all_tokens() -> None:
    """All choices of a token are different experts, so a rank with fewer experts than choices has a share of them."""
    assert fullest(1.0)[1] <= 2
    assert max(fullest(50.0)) == 128 / 8


def test_a_captured_iteration_stays_within_its_capacity() -> None:
    """Its router is balanced, because a fuller rank would run the iteration again without the graph."""
    assert fullest(1.0, captured=True) == [1.0] * len(RANKS)
    assert max(fullest(0.0, captured=True, luck=2.0)) == 1.5


@pytest.mark.parametrize(("said", "balanced"), [("", False), ('"none"', False), ('"aux_loss"', True)])
def test_a_run_may_balance_the_router(said: str, balanced: bool) -> None:
    more = f"set model.moe_router_load_balancing_type = {said}; " if said else ""
    run = compiled(f"gpt_oss_20b; h100 x 8; throughput first; {more}pin tp=1 cp=1 pp=1 ep=8").programs[0]
    assert make_cost(lower(run, 8)).model.router_balanced is balanced


def test_a_balanced_router_is_faster() -> None:
    free = Cost(model("gpt_oss_20b"), hardware("h100"), 8, 4096, 128)
    balanced = evolve(free, model=evolve(free.model, router_balanced=True))
    row = {"ep": 8, "micro_batch": 1}
    assert balanced.time(row)[0] < 0.9 * free.time(row)[0]
    assert evolve(free, routing="balanced").time(row)[0] < balanced.time(row)[0]
