"""Where the groups of a plan are in the racks of its cluster, against the groups themselves, rank by rank."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.facts import machines
from moedsl.planner.page import page_text
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from moedsl.support.source import Source

RUN = "qwen3_30b_a3b; h100 x {gpus}; seq 4k; batch 96; pin {pins} recompute=[full]; risk oom"
CLUSTER = "cluster ours {{ executor slurm; hardware h100; {facts} }}"


def made(gpus: int, pins: str, facts: str) -> Plan:
    text = "\n".join([RUN.format(gpus=gpus, pins=pins), CLUSTER.format(facts=facts)])
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
