"""The attention masks of captured attention: as many bytes as Megatron-Core's own helper makes, and what they forbid."""

import json
from pathlib import Path

import numpy as np
import pytest

from moedsl.cost import Cost, activations, estimate, parameters
from moedsl.facts.axes import AXES
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process, rotation
from tests.helpers.cost_models import hardware, model
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled, plan_of, written
from tests.helpers.tables import table_of

GIB = 2**30
GRAPHS = "cuda_graph=[attn, moe_router, moe_preprocess]"
RUNS = table_of("cost", "masks: runs")
LONG = "deepseek_v3; gb200 x 512; seq 128k; throughput first"


def priced(plan: Plan) -> tuple[Cost, dict[str, int]]:
    """The prices of a plan's run, and its row."""
    batch, layout = plan.batch, plan.layout
    cost = Cost(
        model(plan.model), hardware(plan.hardware), plan.gpus, batch.seq, batch.global_batch,
        layout=layout.pipeline_layout,
    )  # fmt: skip
    said = {**layout.to_json(), **plan.policy.to_json(), "micro_batch": batch.micro_batch}
    return cost, {a.name: a.encode(said[a.name]) for a in AXES}


def mask_of(plan: Plan) -> int:
    batch = plan.batch
    return batch.micro_batch * (batch.seq // plan.layout.cp) * batch.seq


def without(monkeypatch: pytest.MonkeyPatch, cost: Cost, row: dict[str, int]) -> list[float]:
    """What the stages of a row would hold if graphs took no masks."""
    with monkeypatch.context() as patch:
        patch.setattr(activations, "mask", lambda t, seq: np.zeros(t.rows))
        return [s.total for s in cost.memory_report(row)]


@pytest.mark.bridge
def test_masks_are_those_of_megatrons_own_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte where all chunks of a stage have the same layers. Where the last is shorter, the most layers are
    alive when another chunk has its place, and the estimate is short of one chunk's difference at the most."""
    plans = {}
    for name in rotation.one_of_each("masks", [*RUNS], lambda name: name[:3]):
        run = RUNS[name]
        result = compiled(run, name)
        assert not result.failed, result.diagnostics
        written(result, tmp_path / name)
        (plans[str(tmp_path / name / "main")],) = result.plans
    ran = bridge_process.run(str(ROOT / "tests/oracles/ask_masks.py"), *plans)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(s["folder"], s["stage"]) for s in said} == {(f, i) for f, p in plans.items() for i in range(p.layout.pp)}
    even = 0
    for real in said:
        plan = plans[real["folder"]]
        cost, row = priced(plan)
        mask, stage = mask_of(plan), real["stage"]
        assert real["replay"] == mask
        assert real["bytes"] == real["masks"] * mask
        ours = cost.memory_report(row)[stage].total - without(monkeypatch, cost, row)[stage]
        layout = cost.layout_for(row["pp"], row["vpp"])
        assert layout is not None
        layers = [c.dense + c.moe + c.mtp for c in layout.stage(stage)]
        assert 0 <= real["masks"] - round(ours / mask) <= max(layers) - min(layers), (real, layers)
        assert ours == pytest.approx(round(ours / mask) * mask, rel=1e-9)
        even += len(set(layers)) == 1
    assert even >= (12 if rotation.ALL else 2)


def test_a_mask_for_each_layer_and_live_microbatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the columns, the stages and every bound alike, with attention captured and only then."""
    cost = Cost(model("deepseek_v3"), hardware("gb200"), 512, 32768, 1024)
    both = {"tp": 2, "cp": 4, "pp": 4, "vpp": 4, "ep": 64, "ep_overlap": 1}
    mask = 32768 // 4 * 32768
    layout = cost.layout_for(4, 4)
    assert layout is not None
    names = parameters.of_memory(cost.model)
    live = parameters.memory(cost.model, layout, 12)[:, [names.index(n) for n in ("dense_live", "moe_live")]]
    for graphs, each in ((7, mask), (6, 0), (1, mask), (8, 0)):
        row = {a.name: a.encode("none") if a.kind != "int" else 1 for a in AXES if a.kind in ("int", "set")}
        row |= {**both, "cuda_graph": graphs}
        more = np.array([s.total for s in cost.memory_report(row)]) - without(monkeypatch, cost, row)
        assert more == pytest.approx((live.sum(axis=1) + 1) * each)
        assert cost.memory(row)[0] == pytest.approx(max(s.total for s in cost.memory_report(row)), abs=1)
        found = estimate.bounds(cost, {a.name: 0 for a in AXES} | row)
        assert found.best == pytest.approx(cost.memory(row)[0], abs=1)
        assert found.least < found.best < found.most


def test_a_replay_makes_one_mask_more() -> None:
    """At 128k it is more than a layer's backward works with."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("gb200"), 64, 131072, 64)
    row = {"tp": 8, "ep": 8, "cuda_graph": 1}
    mask = 131072**2
    (with_mask,), (router,) = (cost.memory_report({**row, "cuda_graph": g}) for g in (1, 0))
    assert with_mask.activations - router.activations == pytest.approx(48 * mask + 131072 // 8 * 2048 * 2)
    assert 0 < with_mask.buffers - router.buffers < mask


def test_long_sequences_leave_attention_out_of_the_graphs() -> None:
    """DeepSeek-V3 at 128k on 512 GB200 had 132 GiB of masks in a plan that said 124 of 173 GiB. A plan that captures
    attention all the same holds them."""
    plan = plan_of(LONG)
    assert "attn" not in plan.policy.cuda_graph
    assert plan.estimate.memory.verdict == estimate.FITS
    cost, row = priced(plan)
    captured = cost.memory_report({**row, "cuda_graph": 7})
    masks = mask_of(plan) * plan.layout.pp  # at the least: live microbatches are as many on the first stage
    assert max(s.total for s in captured) > max(s.total for s in cost.memory_report(row)) + masks
    assert "attn" in plan_of("nemotron_3_nano; gb200 x 8; throughput first").policy.cuda_graph
