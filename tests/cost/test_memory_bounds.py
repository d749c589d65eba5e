"""The lower and upper figures of memory, what lies outside torch, and the verdict, against what others have run."""

import json
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import devices
from moedsl.compiler import load_stdlib
from moedsl.cost import Cost, memory, parameters, pipeline, rows
from moedsl.cost.estimate import FITS, NOT, TIGHT, Bounds, bounds
from moedsl.cost.rows import complete
from moedsl.facts.axes import AXES, BY_NAME
from moedsl.planner.estimate import chance
from tests.helpers import bridge_process
from tests.helpers.cost_models import hardware, model
from tests.helpers.paths import DATA
from tests.helpers.programs import plan_of

GIB = 2**30
_ALL = [json.loads(line) for line in (DATA / "recipe_layouts.jsonl").open()]
WORDS = {a.name: {*a.words} for a in AXES if a.words}


def sayable(recipe: dict[str, Any]) -> bool:
    """Whether the language has words for the recipe's values."""
    said = {n: recipe.get(n, []) for n in WORDS}
    return all({*(v if isinstance(v, list) else [v])} <= WORDS[n] for n, v in said.items())


_KNOWN = load_stdlib().hardware
RECIPES = [r for r in _ALL if r["hardware"] in _KNOWN and sayable(r)]
FROZEN = frozenset({"freeze_language", "freeze_vision"})
"""Qwen3-VL's recipes train the projector alone (bridge recipes/qwen_vl/h100/qwen3_vl.py:107 and :157; perf_recipes/
qwen_vl/common.py:95 leaves it so)."""


def codes(words: dict[str, Any]) -> dict[str, int]:
    """Every axis as its code."""
    return {n: int(v) for n, v in complete({n: BY_NAME[n].encode(v) for n, v in words.items()}).items()}


def bounded(recipe: dict[str, Any]) -> Bounds | None:
    """The bounds of one of NVIDIA's recipes; None where its mesh does not fit the GPUs that its name says."""
    words = {a.name: recipe[a.name] for a in AXES if a.name in recipe}
    mesh = {n: words.get(n, 1) for n in ("tp", "cp", "pp", "ep", "etp")}
    if mesh["etp"] * mesh["ep"] * mesh["pp"] > recipe["gpus"]:
        return None
    m = model(recipe["model"])
    m = evolve(m, mtp_layers=recipe.get("mtp", m.mtp_layers))
    pinned = recipe.get("pipeline_layout")
    exists = pinned and pipeline.parse_layout(pinned, m, mesh["pp"], words.get("vpp", 1))[0] is not None
    freeze = FROZEN if recipe["model"].startswith("qwen3_vl") else frozenset[str]()
    cost = Cost(
        m, hardware(recipe["hardware"]), recipe["gpus"], recipe["seq"], recipe["global_batch"],
        freeze=freeze, layout=pinned if exists else None, routing="balanced",
    )  # fmt: skip
    return bounds(cost, codes(words)) if cost.has_layout(mesh["pp"], words.get("vpp", 1)).all() else None


def perf() -> list[dict[str, Any]]:
    return [r for r in RECIPES if r["kind"] == "perf"]


UNTRIED = "qwen35_vl"
"""Recipes of these models have the meshes and microbatches of Qwen3-VL's, which train the projector alone, and train
everything. No rate of them is published, and many are refused by Megatron-Core (layers that do not divide, expert
overlap), so nothing says that they ran."""


def test_no_published_performance_recipe_is_refused() -> None:
    """NVIDIA publishes rates of these, so each fits its GPU."""
    tried = [r for r in perf() if not r["model"].startswith(UNTRIED)]
    judged = {r["function"]: b for r in tried if (b := bounded(r)) is not None}
    assert len(judged) > 120
    assert not [f for f, b in judged.items() if b.verdict == NOT]
    assert sum(b.verdict == FITS for b in judged.values()) > 0.9 * len(judged)


def test_the_bounds_hold_the_best_figure() -> None:
    for recipe in RECIPES[::7]:
        b = bounded(recipe)
        if b is not None:
            assert b.least < b.best < b.most, recipe["function"]
            assert b.least == pytest.approx(b.best, rel=0.35)
            assert b.most < 1.5 * b.best, recipe["function"]


def qwen(gpu: str = "h100", gpus: int = 16, routing: str = "balanced", **words: Any) -> Bounds:
    cost = Cost(model("qwen3_30b_a3b"), hardware(gpu), gpus, 4096, 1024, routing=routing)
    return bounds(cost, codes({"ep": 16, **words}))


MEASURED: dict[str, Any] = {
    "dispatcher": "hybridep",
    "cuda_graph": ["moe_router", "moe_preprocess"],
    "ep_overlap": True,
    "grad_reduce": "bf16",
}


def test_a_published_peak_is_in_the_range() -> None:
    """Qwen3-30B on 16 H100, forced balance: 62.166 GiB allocated on rank 0 (measured.jsonl m0234), 6% above the best
    figure."""
    b = qwen(**MEASURED)
    assert b.least < b.best < 62.166 * GIB < b.most
    assert b.verdict == FITS


@pytest.mark.parametrize("share, left", [(0.0, 47.2), (0.25, 43.4), (0.5, 39.6), (0.75, 35.6), (1.0, 32.0)])
def test_offloaded_moments_leave_what_was_measured(share: float, left: float) -> None:
    """The ladder of optimizer offload on 16 H100, TP2 PP2 EP4, GB allocated (measured.jsonl m0248 to m0252)."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 16, 4096, 32)
    row = {"tp": 2, "pp": 2, "ep": 4}
    kept, gone = (
        max(s.weights + s.gradients + s.optimizer for s in cost.memory_report({**row, "offload": o})) for o in (0, 1)
    )
    assert kept == pytest.approx(47.2e9, rel=0.01) and kept - gone == pytest.approx(15.3e9, rel=0.01)
    assert kept - share * (kept - gone) == pytest.approx(left * 1e9, rel=0.012)


def test_balanced_routing_has_no_fullest_rank() -> None:
    """Natural routing may give one rank half as much again of what its experts keep."""
    balanced, natural = (qwen(routing=r, **MEASURED) for r in ("balanced", "natural"))
    copies = 4096 * 8
    kept, at_work = copies * (2048 * 2 + 4 + 768 * 6), copies * 2 * (4 * 2048 + 3 * 768)
    assert natural.best > balanced.best
    more = 48 * (0.5 - 0.05 / 48**0.5) * kept + 0.45 * at_work
    assert natural.most - balanced.most == pytest.approx(more, rel=1e-6)
    assert natural.least == balanced.least


def test_what_is_too_large_does_not_fit() -> None:
    b = qwen(gpus=8, ep=8)
    assert b.verdict == NOT
    assert b.least + b.outside_bytes[0] > b.visible
    assert f"; the GPU has {b.visible / GIB:.1f}: " in b.because


SHOWN = {"h100": 81559, "h200": 143771, "b200": 183359, "gb200": 189471, "b300": 275040, "gb300": 284208,
         "a100_40gb": 40960, "a100_80gb": 81920, "h100_nvl": 95830, "h20": 97871, "h200_nvl": 143771, "gh200": 97871,
         "gh200_nvl2": 146831, "vr200": 286524}  # fmt: skip
"""MiB of each GPU in nvidia-smi."""


@pytest.mark.parametrize("name, mib", SHOWN.items())
def test_a_gpu_shows_more_than_its_data_sheet_and_gives_less_than_it_shows(name: str, mib: int) -> None:
    hw = hardware(name)
    assert hw.visible == pytest.approx(mib * 2**20, rel=1e-4)
    assert hw.memory < hw.torch_total < hw.visible
    assert devices()[name].memory == int(hw.total)
    kept, known = memory.reserved(hw)["best"], hw.constants.ends("driver")
    assert known["low"] < kept < known["high"]
    assert memory.outside_parts(hw, model("qwen3_30b_a3b"), codes({}), 1, 4096)[0].least == kept


def test_what_the_driver_keeps_of_other_hardware_is_a_range_or_nothing() -> None:
    shown, sheet = evolve(hardware("h100"), torch_total=0.0), evolve(hardware("h100"), torch_total=0.0, visible=0.0)
    assert memory.reserved(shown) == shown.constants.ends("driver")
    assert set(memory.reserved(sheet).values()) == {0.0}


def test_hybridep_keeps_a_place_for_every_token_of_the_group() -> None:
    """DeepSeek-V3 over EP 64: 64 x 4096 tokens of 7168 in BF16 are 3.5 GiB, once or twice."""
    row = codes({"ep": 64, "pp": 4, "dispatcher": "hybridep"})
    found = memory.outside_parts(hardware("gb200"), model("deepseek_v3"), row, 256, 4096)
    buffers = {p.name: p for p in found}["HybridEP buffers"]
    assert buffers.least == 64 * 4096 * 7168 * 2 == 3.5 * GIB
    assert buffers.most == 2 * buffers.least


def test_what_is_left_is_the_verdicts_sum() -> None:
    """By column for a search, by row for a plan: the same bytes, for layouts with every dispatcher."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 64, 4096, 512)
    words = BY_NAME["dispatcher"].words
    sizes = [(1, 1, 1, 8, 1), (2, 1, 1, 16, 1), (1, 2, 2, 32, 1), (4, 1, 2, 1, 4), (1, 1, 4, 16, 1)]
    rows = [
        {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "etp": etp, "vpp": 1, "micro_batch": 1 + i % 2, "dispatcher": d}
        for i, (tp, cp, pp, ep, etp) in enumerate(sizes)
        for d in range(len(words))
    ]
    columns = {n: np.array([r[n] for r in rows]) for n in rows[0]}
    found = [cost.spare(columns, case) for case in ("high", "best", "low")]
    for row, left, likely, most in zip(rows, *found, strict=True):
        whole = {a.name: 0 for a in AXES} | row
        b = bounds(cost, whole)
        assert left == pytest.approx(b.visible - b.needed[1], abs=2), row
        assert most == pytest.approx(b.visible - b.needed[0], abs=2), row
        assert left < likely < most
        assert (left >= 0) == (b.verdict == FITS) and (most < 0) == (b.verdict == NOT)


def test_of_some_dispatchers_the_one_with_the_least_memory_outside_torch_counts() -> None:
    cost, codes_ = (
        Cost(model("qwen3_30b_a3b"), hardware("h100"), 64, 4096, 512),
        range(len(BY_NAME["dispatcher"].words)),
    )
    columns = {"ep": np.array([2, 8, 64]), "dispatcher": np.zeros(3, int)}
    each = [cost.spare({**columns, "dispatcher": np.full(3, d)}) for d in codes_]
    assert (cost.spare(columns, "high", codes_) >= np.max(each, axis=0)).all()


def test_communicators_are_those_of_megatron() -> None:
    sizes = memory.process_groups(codes({"tp": 2, "pp": 2, "ep": 4, "cp": 2}), 32)
    assert sizes == {"world": 32, "tp": 2, "cp": 2, "dp x cp": 8, "pp": 2, "ep": 4, "etp": 1, "edp": 4}


def test_a_number_of_memory_that_a_calibration_states_has_no_range() -> None:
    hw = hardware("h100")
    measured = evolve(hw, constants=evolve(hw.constants, context=0.6 * GIB, torch_other=0.02 * GIB))
    found = memory.outside_parts(measured, model("qwen3_30b_a3b"), codes({}), 1, 4096)[1]
    assert (found.least, found.most) == (0.6 * GIB, 0.6 * GIB)
    b = bounds(Cost(model("qwen3_30b_a3b"), measured, 16, 4096, 1024), codes({"ep": 16}))
    assert "workspaces" not in {s.name for s in b.spread}


def test_one_gpu_has_the_driver_and_the_context_outside() -> None:
    found = memory.outside_parts(hardware("h100"), model("qwen3_30b_a3b"), codes({}), 1, 4096)
    assert [p.name for p in found if p.most > 0] == ["driver", "CUDA context"]


def test_a_frozen_language_model_saves_no_input_of_a_linear() -> None:
    """Transformer Engine's linears save it for the weight's gradient alone: a layer then keeps its residuals, the
    router's input, q k v before and after their norms, attention's output, and both halves of the experts."""
    m = model("qwen3_vl_30b_a3b")
    whole, frozen = (
        Cost(m, hardware("gb200"), 8, 4096, 64, freeze=f, routing="balanced").memory_report(codes({"ep": 8}))[0]
        for f in (frozenset({"freeze_vision"}), FROZEN)
    )
    tokens, copies = 4096, 4096 * m.topk
    inputs = tokens * m.hidden * 2 + copies * (m.hidden + m.expert_hidden) * 2
    assert whole.activations - frozen.activations == pytest.approx(m.layers * inputs, rel=0.001)
    assert frozen.gradients == pytest.approx(4 * sum(parameters.mergers(m.vision, 1)))  # type: ignore[arg-type]


def test_a_plan_says_its_verdict_and_why() -> None:
    memory = plan_of("model moonlight_16b; h100 x 8; seq 4k; batch 256; fit first").estimate.memory
    assert memory.lower_gib < memory.peak_gib < memory.upper_gib
    assert memory.verdict in (FITS, TIGHT, NOT)
    total = memory.upper_gib + memory.unused_gib + memory.outside.upper_gib
    assert (total <= memory.visible_gib) == (memory.verdict == FITS)
    assert all(u.because for u in (*memory.unknown, *memory.outside.parts))


RUN = (
    "model moonlight_16b; h100 x 8; seq 4k; batch 256; fit first; pin tp=1 cp=1 pp=1 ep=8 micro_batch=1 recompute=none"
)


def test_separate_kernels_of_attention_keep_a_number_for_each_score() -> None:
    """BF16 probabilities; with dropout also a mask of a byte, and what is left of them."""
    sets = ("", '; set model.attention_backend = "unfused"', "; set model.attention_dropout = 0.1")
    fused, separate, dropped = (
        plan_of(RUN + "; risk oom" + "".join(sets[:n])).estimate.memory.stages[0].activations_gib for n in (1, 2, 3)
    )
    scores = 27 * 16 * 4096**2
    assert (separate - fused) * GIB == pytest.approx(2 * scores, rel=1e-6)
    assert (dropped - fused) * GIB == pytest.approx(5 * scores, rel=1e-6)


def test_the_loss_and_the_products_are_those_that_the_run_sets() -> None:
    """Without fusion the loss has 6 bytes a logit instead of 4; without accumulation there are no empty gradients."""
    logits, table = 4096 * 163840, 2.0 * 163840 * 2048
    default, unfused, alone = (
        plan_of(f"{RUN}; {text}").estimate.memory.stages[0].buffers_gib * GIB
        for text in (
            "set model.attention_dropout = 0.0",
            "set model.cross_entropy_loss_fusion = false",
            "set model.gradient_accumulation_fusion = false",
        )
    )
    assert unfused - default == pytest.approx(2 * logits, rel=1e-6)
    assert default - alone > table


# What stays on a rank beside weights, gradients and activations: FP32 masters, the step's copy of BF16 gradients,
# and Transformer Engine's empty weight gradients.

EXPERT, DENSE = 1_811_939_328, 1_541_093_376
"""Parameters of Qwen3-30B on a rank of EP 16 (design: 3,353,032,704 together)."""


def table(**words: Any) -> rows.Table:
    """One row, as the estimates take it."""
    full = rows.complete({name: BY_NAME[name].encode(word) for name, word in words.items()})
    return rows.Levels.of(full, tuple(full)).table(tuple(full), 1)


def peak(**words: Any) -> float:
    """Of Qwen3-30B on 16 H100 with all experts spread, bytes."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 16, 4096, 1024, routing="balanced")
    row = {name: BY_NAME[name].encode(word) for name, word in {"ep": 16, **words}.items()}
    report = cost.memory_report(row)
    assert float(cost.memory(row)[0]) == pytest.approx(max(s.total for s in report), abs=1)
    return report[0].total


def kept(share: float) -> float:
    """Empty gradients of every shape, bytes; `share` of the 224 MiB of workspaces, and 10 of the rest, with them."""
    shapes = 151936 * 2048 + 2048 * 128 * (32 + 2 * 4 + 32) + 3 * 2048 * 768 + 2048 + 2 * 128
    return 2.0 * shapes + share * 234 * 2**20


def test_the_step_holds_bf16_gradients_a_second_time() -> None:
    """Whole layers recomputed leave less than the FP32 copy of the gradients that this rank steps."""
    stepped = EXPERT + DENSE / 16
    held = (2 + 2) * (EXPERT + DENSE) + (12 + 4) * stepped
    assert peak(recompute=["full"], grad_reduce="bf16") == pytest.approx(held + kept(1.0), rel=1e-6)


def test_fp32_gradients_are_stepped_where_they_are() -> None:
    """Neither they, nor those of Megatron FSDP, nor those that the host steps."""
    for words in ({"grad_reduce": "fp32"}, {"grad_reduce": "bf16", "sharding": "fsdp"}):
        assert memory.copied(table(**words)).tolist() == [0.0]
    assert memory.copied(table(grad_reduce="bf16", offload="optimizer")).tolist() == [0.0]
    assert memory.copied(table(grad_reduce="bf16", moments="bf16")).tolist() == [4.0]


def test_empty_gradients_are_there_once_for_each_shape() -> None:
    m = model("qwen3_30b_a3b")
    found = memory.empty_gradients(m, table(), True)
    assert found["one"] + found["loss"] == pytest.approx(kept(0.0))
    assert all((size == 0).all() for size in memory.empty_gradients(m, table(), False).values())


FLAGS = """
import json, logging, sys
from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import devices
stand_ins.install_engine()
stand_ins.answer(devices()["gb200"], 8, 0)
logging.disable(logging.CRITICAL)
import torch
from megatron.bridge.training import mixed_precision
from megatron.bridge.training.config import OptimizerConfig

def whole(name, **more):
    adam = OptimizerConfig(
        optimizer="adam", use_distributed_optimizer=True, use_precision_aware_optimizer=True,
        main_params_dtype=torch.float32, exp_avg_dtype=torch.bfloat16, exp_avg_sq_dtype=torch.bfloat16, **more,
    )
    mixed_precision.update_config_with_precision_overrides(getattr(mixed_precision, name)(), adam)
    adam.finalize()
    return not adam.use_precision_aware_optimizer_no_fp8_or_ds_fp8

print(json.dumps({name: whole(name) for name in sys.argv[1:]} | {"offload": whole("bf16_mixed", optimizer_cpu_offload=True)}))
"""
MIXED = (
    "bf16_mixed",
    "bf16_with_mxfp8_mixed",
    "bf16_with_nvfp4_mixed",
    "bf16_with_fp8_current_scaling_mixed",
    "bf16_with_fp8_subchannel_scaling_mixed",
)
"""What `emit/fields.py` writes for each precision."""


@pytest.mark.bridge
def test_megatron_keeps_fp32_masters_in_every_precision_of_bridge() -> None:
    """Real OptimizerConfigs: only the optimizer that offloads leaves masters and gradients to Transformer Engine."""
    done = bridge_process.run("-c", FLAGS, *MIXED)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {**dict.fromkeys(MIXED, True), "offload": False}


# Activations of a long sequence, counted by hand from what Megatron-Core and Transformer Engine save.

QWEN: dict[str, Any] = {"tp": 4, "cp": 4, "pp": 4, "vpp": 12, "ep": 32, "recompute": ["moe_act", "layernorm"]}
GRAPHS = ["attn", "moe_router", "moe_preprocess"]


def kept_of_sequence(gpu: str = "gb200", batch: int = 1024, **row: Any) -> float:
    """Saved activations of the first stage of Qwen3-235B at 128k on 256 GPUs, bytes."""
    cost = Cost(model("qwen3_235b_a22b"), hardware(gpu), 256, 131072, batch)
    coded = {**QWEN, "dispatcher": "alltoall", "cuda_graph": [], "precision": "bf16", **row}
    axes = {n: BY_NAME[n].encode(v) if n in BY_NAME and not isinstance(v, int) else v for n, v in coded.items()}
    return cost.memory_report(axes)[0].activations


CHUNKS, LAYERS, TOKENS = 51, 102, 8192
"""2 (pp - 1) + (vpp - 1) pp + 1 chunks of two layers (the first chunk of the embedding has two as well), and a rank's
tokens after CP 4 and TP 4."""


def test_a_layer_keeps_what_its_modules_save() -> None:
    """Two residuals, the norm's output, q k v before and after their norms, the attention output, the permuted input
    of 8 experts a token, both halves of their first product: 1.47 GiB, and what uneven routing adds."""
    residuals, norm = 2 * 4096 * 2, 4096 * 2
    q, kv = 64 * 128, 4 * 128
    attention = norm + 2 * (q + 2 * kv) + 2 * (q + kv) + 2 * q + 4 * 64
    experts = 8 * (2 * 4096 + 4 + 2 * 2 * 1536)
    router = 9 * 128
    layer = TOKENS * (residuals + attention + experts + router)
    uneven = LAYERS / 24**0.5 * 0.1 * TOKENS * experts
    assert layer == pytest.approx(1.472 * 2**30, rel=0.01)
    assert kept_of_sequence() == pytest.approx(LAYERS * layer + uneven, rel=0.005)


def test_the_norm_that_leaves_a_graph_is_kept_whatever_is_recomputed() -> None:
    """core transformer/transformer_layer.py:458: only alltoall's preprocessing keeps it inside."""
    norm = LAYERS * TOKENS * 4096 * 2
    without = {"recompute": ["moe_act"]}
    for dispatcher, graph, freed in (
        ("alltoall", [], norm),
        ("alltoall", GRAPHS, norm),
        ("hybridep", [], norm),
        ("hybridep", GRAPHS, 0),
        ("alltoall", ["moe_router"], 0),
    ):
        row: dict[str, Any] = {"dispatcher": dispatcher, "cuda_graph": graph}
        assert kept_of_sequence(**row, **without) - kept_of_sequence(**row) == pytest.approx(freed, abs=1e6), row


def test_a_graph_copies_the_input_of_a_chunk_and_has_a_mask_for_each_layer() -> None:
    """A mask of a CP rank's tokens times all of them, whole on each TP rank: 4 GiB."""
    row: dict[str, Any] = {"dispatcher": "alltoall"}
    copies = kept_of_sequence(**row, cuda_graph=GRAPHS) - kept_of_sequence(**row)
    mask = 131072 // 4 * 131072
    assert copies == pytest.approx(CHUNKS * TOKENS * 4096 * 2 + LAYERS * mask, rel=1e-6)


def test_four_microbatches_keep_48_chunks() -> None:
    assert kept_of_sequence(batch=16) / kept_of_sequence() == pytest.approx(48 / CHUNKS, rel=0.01)


# Published: 10.361 s a step and no out-of-memory on 16 H800, without recompute and graphs, and a capacity factor of 1.
DROPPING = """qwen3_30b_a3b; h800 x 16; seq 8192; batch 128; throughput first
pin tp=1 cp=1 pp=2 vpp=1 ep=8 etp=1 micro_batch=1 dispatcher=alltoall recompute=none cuda_graph=none ep_overlap=off
pin offload=none
"""
FACTOR = "set model.moe_expert_capacity_factor = {}\n"
PADS = "set model.moe_pad_expert_input_to_capacity = true\n"


def test_a_capacity_factor_limits_what_the_fullest_rank_keeps() -> None:
    plan = plan_of(DROPPING + FACTOR.format(1.0))
    assert abs(plan.estimate.step_time_s / 10.361 - 1) < 0.05
    assert plan.estimate.memory.peak_gib < 79.6


def test_padded_experts_compute_and_keep_their_whole_capacity() -> None:
    run = DROPPING.replace("h800", "h200")
    one, two = (plan_of(run + PADS + FACTOR.format(factor)) for factor in (1.0, 2.0))
    routed = plan_of(run + "routing balanced\n")
    assert abs(one.estimate.memory.peak_gib / routed.estimate.memory.peak_gib - 1) < 0.01
    assert two.estimate.memory.peak_gib > 1.2 * one.estimate.memory.peak_gib
    assert two.estimate.step_time_s > 1.3 * one.estimate.step_time_s


@pytest.mark.parametrize("limit", [0.5, 1.0, 1.7, 2.0, 2.6, 4.0, 4.5])
def test_the_chance_to_run_out_is_that_of_a_triangle(limit: float) -> None:
    """Against drawing from it: memory from 1 over 2 to 4."""
    spares = dict(zip(("low", "best", "high"), limit - np.array([1.0, 2.0, 4.0]), strict=True))
    cost = Mock(spare=lambda row, case: [spares[case]])
    drawn = np.random.default_rng(0).triangular(1, 2, 4, 100_000)
    assert abs(chance(cost, {}) - np.mean(drawn > limit)) < 0.01
