"""The lower and upper figures of memory, what lies outside torch, and the verdict, against what others have run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import devices
from moedsl.compiler import load_stdlib
from moedsl.cost import Cost, memory, parameters, pipeline
from moedsl.cost.estimate import FITS, NOT, TIGHT, Bounds, bounds
from moedsl.cost.rows import complete
from moedsl.facts.axes import AXES, BY_NAME
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
        plan_of(RUN + "".join(sets[:n])).estimate.memory.stages[0].activations_gib for n in (1, 2, 3)
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
