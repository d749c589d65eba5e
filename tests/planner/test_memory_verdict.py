"""What a TIGHT plan says of the layouts that FIT: there is one wherever a pin of it gives one."""

import re
from typing import Any

import pytest

from moedsl.compiler import compile_source
from moedsl.cost import pipeline
from moedsl.facts import axes, machines
from moedsl.facts.axes import show
from moedsl.planner.estimate import Certain
from moedsl.planner.other_layouts import WORTH, Alternative
from moedsl.planner.plan import Plan
from moedsl.planner.report import page
from moedsl.planner.text import page_text, plan_text
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.cost_models import model
from tests.helpers.programs import compiled, diagnosed, plan_of, solved
from tests.helpers.tables import table_of


@pytest.mark.parametrize("text", table_of("planner", "verdict: the one that fits"))
def test_the_one_that_fits_does_when_it_is_pinned(text: str) -> None:
    tight = plan_of(text)
    memory = tight.estimate.memory
    assert memory.verdict == "TIGHT"
    found = memory.certain.layout
    assert "nearest layout that FITS" in plan_text(tight)
    fits = plan_of(f"{text}; pin {pins(tight, found.changes)}").estimate
    assert fits.memory.verdict == "FITS"
    assert fits.step_time_s == pytest.approx(found.step_time_s)


def test_nothing_that_fits_is_said_as_such() -> None:
    """Of a run that leaves nothing open."""
    text = "qwen3_next_80b_a3b; h100 x 128; seq 32k; risk oom"
    tight = plan_of(f"{text}; pin {pins(plan_of(text), {})}")
    assert tight.estimate.memory.certain == Certain(within=None, layout=None)
    assert "no layout of this run FITS\n" in plan_text(tight)


def pins(p: Plan, changes: dict[str, Any]) -> str:
    """A plan's whole layout as pins, with some of it changed."""
    kept = {n: getattr(p.layout, n) for n in ("tp", "cp", "pp", "vpp", "ep", "etp")}
    kept |= {n: getattr(p.policy, n) for n in ("recompute", "dispatcher", "cuda_graph", "ep_overlap", "offload")}
    kept |= {"micro_batch": p.batch.micro_batch, "delay_wgrad": p.policy.delay_wgrad}
    return " ".join(f"{n}={axes.written(v) or 'none'}" for n, v in (kept | changes).items())


# What a pin costs: the plan of the same program without it, compiled on its own.

PROGRAMS = table_of("planner", "verdict: programs")


@pytest.mark.parametrize("head", rotation.some("pinned", [*PROGRAMS], 1))
def test_a_pin_has_the_price_of_its_absence(head: str) -> None:
    pins = PROGRAMS[head]
    (plan,) = compiled(f"{head}; pin {' '.join(pins)}").plans
    decisions = {d.name: d for d in plan.decisions}
    for pin in pins:
        name = pin.split("=")[0]
        rest = " ".join(p for p in pins if p != pin)
        (free,) = solved(f"{head}; pin {rest}").chosen
        row = free.solution.rows[0]
        value = row.layout[name]
        mine = decisions[name]
        assert mine.origin == "pinned"
        if value == mine.value:
            assert not mine.alternatives
            continue
        (other,) = mine.alternatives
        assert other.value == value
        assert other.step_time == pytest.approx(row.step_time / plan.estimate.step_time_s - 1)
        assert f"without the pin {show(value)}, {other.effect}" in page([plan])


def test_what_a_run_varies_or_learns_from_has_no_price() -> None:
    """The value of a sweep is compared in its table, and another number format is another experiment."""
    result = compiled("qwen3_30b_a3b; h100 x 16; throughput first; sweep tp in 1, 2; pin moments=bf16")
    for plan in result.plans:
        assert not [d for d in plan.decisions if d.origin == "pinned" and d.alternatives]


def test_a_page_names_the_pins_that_cost() -> None:
    result = compiled("qwen3_30b_a3b; h100 x 16; throughput first; pin dispatcher=alltoall ep=16")
    text = page_text(result.plans[0], (), (), 100)
    assert "\nPinned        dispatcher alltoall: hybridep is -" in text


# A batch that divides badly is told so, with what near batches buy; each figure is that of a compile of its own.

RUN = "qwen3_30b_a3b; h100 x 64; seq 4k; "


def warned(text: str) -> list[Diagnostic]:
    return [d for d in diagnosed(RUN + text) if d.id == "plan.uneven_batch"]


def figures(text: str) -> tuple[int, float]:
    """Data parallelism, and tokens a second and GPU."""
    (plan,) = compiled(RUN + text).plans
    return plan.layout.dp, plan.estimate.tokens_per_s_per_gpu


@pytest.mark.parametrize("batch", rotation.some("near batches", [7, 63, 100], 1))
def test_near_batches_are_compiles_of_their_own(batch: int) -> None:
    (found,) = warned(f"batch {batch}")
    dp, speed = figures(f"batch {batch}")
    assert f"data parallelism to {dp}, the greatest common divisor of {batch} sequences and 64 GPUs" in found.message
    buys = {n: said for n, said in found.values.items() if n != "global_batch"}
    assert buys
    helps = [h.removeprefix("write `").rstrip("`") for h in found.help]
    gained: list[str] = []
    for other, said in buys.items():
        more, faster = figures(other)
        stated = re.fullmatch(r"dp (\d+) and ([\d.]+)x the tokens a second", str(said))
        assert stated and int(stated[1]) == more > dp
        assert float(stated[2]) == pytest.approx(faster / speed, abs=0.006)
        gained += [other] if faster >= 1.05 * speed else []
    assert gained == helps and found.severity == ("warning" if helps else "note")


def test_it_points_at_the_batch_and_says_what_to_write() -> None:
    text = RUN + "batch 63"
    (found,) = warned("batch 63")
    span = found.labels[0].span
    assert text[span.start : span.end] == "batch 63" and found.severity == "warning"
    assert any(fix.text == "batch 64" for fix in found.fixes)


@pytest.mark.parametrize("text", table_of("planner", "verdict: nothing is said of"))
def test_nothing_is_said_of(text: str) -> None:
    assert warned(text) == []


def test_a_pinned_microbatch_counts() -> None:
    """126 sequences in microbatches of 2 are 63 microbatches."""
    (found,) = warned("batch 126; pin micro_batch=2")
    assert "63 microbatches of 2 and 64 GPUs" in found.message
    assert "batch 128" in found.values


def test_the_phases_of_a_workflow_say_it_once() -> None:
    assert len({d.message for d in warned("batch 63; workflow")}) == len(warned("batch 63; workflow"))


# Where the groups of a plan are in the racks of its cluster, against the groups themselves, rank by rank.

ON_RACKS = "qwen3_30b_a3b; h100 x {gpus}; seq 4k; batch 96; pin {pins} recompute=[full]; risk oom"
CLUSTER = "cluster ours {{ executor slurm; hardware h100; {facts} }}"


def made(gpus: int, pins: str, facts: str) -> Plan:
    text = "\n".join([ON_RACKS.format(gpus=gpus, pins=pins), CLUSTER.format(facts=facts)])
    (plan,) = compile_source(Source("run.moe", text)).plans
    return plan


@pytest.mark.parametrize(
    ("gpus", "pins", "racks", "nodes"),
    [
        (64, "tp=1 cp=1 pp=2 ep=8", 6, [0, 4, 8]),  # four nodes of each rack: the largest part that divides eight
        (96, "tp=1 cp=1 pp=1 ep=32", 4, [0, 4, 8, 12]),
        (96, "tp=2 cp=1 pp=3 ep=32", 5, [0, 4, 8, 12]),
        (96, "tp=2 cp=1 pp=1 ep=32", 3, [0, 3, 6, 9, 12]),  # groups of four nodes in racks of three
    ],
)
def test_groups_are_counted_rank_by_rank(gpus: int, pins: str, racks: int, nodes: list[int]) -> None:
    """`nodes` has the first node of each rack."""
    plan = made(gpus, pins, f"nodes_per_rack {racks}; rails 4")
    assert plan.racks is not None
    rack = [sum(first <= rank // 8 for first in nodes) for rank in range(gpus)]
    groups = machines.rank_groups(plan.layout.to_json())
    for said in plan.racks.axes:
        of = groups[said.axis.upper()]
        assert said.size == len(of[0]) > 1
        assert said.racks == max(len({rack[r] for r in group}) for group in of)
        assert said.rails == max(len({r % 8 // 2 for r in group}) for group in of)
    inside = [len({rack[r] for r in group}) == 1 for group in groups["ETP_EP"]]
    assert (plan.racks.expert_groups, plan.racks.expert_groups_inside) == (len(inside), sum(inside))
    assert plan.racks.racks == len(nodes) - 1


def test_the_page_and_the_plan_say_what_crosses() -> None:
    plan = made(96, "tp=2 cp=1 pp=3 ep=32", "nodes_per_rack 5; rails 8")
    page = " ".join(page_text(plan, (), (), 200).split())
    assert "Racks 3 of 5 nodes each: every expert group is in one; a group of pp is on 3" in page
    section = plan_text(plan).split("Racks\n")[1].split("\n\n")[0]
    assert "the job takes 4 of 5 nodes in each; 8 rails of each node" in " ".join(section.split())
    rows = [line.split() for line in section.splitlines()]
    assert ["pp", "3", "3", "1"] in rows and ["tp", "2", "1", "2"] in rows


def test_groups_that_cross_are_counted() -> None:
    plan = made(96, "tp=2 cp=1 pp=1 ep=32", "nodes_per_rack 3")
    page = " ".join(page_text(plan, (), (), 200).split())
    assert "4 of 3 nodes each: 3 of 3 expert groups cross racks; a group of" in page


@pytest.mark.parametrize(("gpus", "facts"), [(96, ""), (8, "nodes_per_rack 4")])
def test_without_racks_or_on_one_node_nothing_is_said(gpus: int, facts: str) -> None:
    plan = made(gpus, "tp=1 cp=1 pp=1 ep=8", facts)
    assert plan.racks is None and "racks" not in plan.to_json() and "\nRacks" not in plan_text(plan)


# The layout that a plan shows beside Megatron's even split: it is better, it is what its pin gives, and it is legal.

RUNS = (
    "gpt_oss_120b; h100 x 64; routing balanced; pin pp=4 vpp=1 tp=1 cp=1 ep=8 micro_batch=1",
    "qwen3_30b_a3b; h100 x 16; scale first; routing balanced; pin pp=2 vpp=12 tp=1 cp=1 ep=8 micro_batch=1",
    "qwen3_next_80b_a3b; gb200 x 64; throughput first; pin pp=4 vpp=2 tp=1 cp=1 ep=16 micro_batch=1",
)


def shown(p: Plan) -> list[Alternative]:
    return [p.rebalanced] if p.rebalanced else []


@pytest.mark.parametrize("text", RUNS)
def test_its_pin_gives_its_figures(text: str) -> None:
    before = plan_of(text)
    assert before.layout.pipeline_layout is None
    (found,) = shown(before)
    policy = {n: v for n, v in before.policy.to_json().items() if n in ("recompute", "cuda_graph", "dispatcher")}
    words = " ".join(
        f"{n}=[{', '.join(v)}]" if isinstance(v, list) and v else f"{n}={v or 'none'}" for n, v in policy.items()
    )
    after = plan_of(f'{text} {words} pipeline_layout="{found.changes["pipeline_layout"]}"')
    assert after.estimate.step_time_s == pytest.approx(found.step_time_s)
    assert after.estimate.memory.peak_gib == pytest.approx(found.peak_gib)
    assert found.step_time_s <= (1 - WORTH) * before.estimate.step_time_s
    assert not shown(after)


@pytest.mark.parametrize("text", table_of("planner", "verdict: nothing to gain"))
def test_nothing_where_nothing_is_to_gain(text: str) -> None:
    assert not shown(plan_of(text))


def test_it_is_said_as_it_is_written() -> None:
    from moedsl.planner.text import plan_text

    said = plan_text(plan_of(RUNS[0]))
    assert re.search(r'^  pipeline_layout="Et\*9\|.*L": -\d', said, re.M)


@pytest.mark.parametrize("name", ["gpt_oss_120b", "qwen3_30b_a3b", "qwen3_next_80b_a3b"])
@pytest.mark.parametrize(("pp", "vpp"), [(2, 1), (4, 3), (6, 2)])
def test_no_stage_is_heavier_than_by_the_even_split(name: str, pp: int, vpp: int) -> None:
    m = model(name)
    mtp, loss = pipeline.weights(m)
    text = pipeline.balanced(m, pp, vpp)
    assert text is not None
    layout, wrong = pipeline.parse_layout(text, m, pp, vpp)
    assert layout is not None and not wrong
    loads = [sum(c.layers + mtp * c.mtp + loss * c.loss for c in layout.stage(s)) for s in range(pp)]
    assert max(loads) <= m.layers / pp + loss + mtp * m.mtp_layers
    assert max(loads) - min(loads) < 2 + loss + mtp * m.mtp_layers
