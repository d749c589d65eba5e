"""Each fact of a cluster's machines, and of hardware declared from other hardware, acts on the plan."""

import numpy as np
import pytest
from attrs import evolve

from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost import communication
from moedsl.support.source import Source
from tests.helpers.programs import compiled, diagnosed
from tests.helpers.tables import table_of

PINNED = "qwen3_30b_a3b; {} x 64; seq 4k; batch 512; throughput first; pin tp=1 cp=1 etp=1 pp=4 {}\n"


def step(facts: str = "", pins: str = "ep=16 dispatcher=alltoall", gpu: str = "h200", declared: str = "") -> float:
    cluster = f"cluster c {{ executor slurm; hardware {gpu}; {facts} }}\n" if facts else ""
    (plan,) = compiled(declared + cluster + PINNED.format(gpu, pins)).plans
    return plan.estimate.step_time_s


@pytest.mark.parametrize(("facts", "other"), table_of("planner", "machines: the same"))
def test_these_facts_say_the_same(facts: str, other: str) -> None:
    assert step(facts) == step(other)


@pytest.mark.parametrize(("facts", "other", "pins"), table_of("planner", "machines: slower"))
def test_a_fact_slows_what_it_is_about(facts: str, other: str, pins: str) -> None:
    assert step(facts, pins) > 1.002 * step(other, pins)


def test_one_line_declares_a_machine_from_another() -> None:
    ours = 'hardware ours from h200 { network 25 GB/s cite ours "one port" }\n'
    assert step(gpu="ours", declared=ours) == step("network 25 GB/s")
    twice = ours + "hardware theirs from ours { host_speed 0.5 }\n"
    assert step("oversubscription 1; nodes_per_rack 2", gpu="theirs", declared=twice) > step(gpu="ours", declared=ours)


def test_a_smaller_nvlink_domain_takes_experts_off_nvlink() -> None:
    pins = "ep=16 dispatcher=alltoall"
    assert step("nvlink_domain 4", pins, "gb200") > 1.1 * step(pins=pins, gpu="gb200")


def test_the_memory_of_a_node_holds_an_offloaded_optimizer() -> None:
    """30.5e9 parameters of 16 bytes on 8 nodes are 61 GB a node."""
    text = "cluster c {{ executor slurm; hardware h200; node_memory {} GB }}\n" + PINNED
    said = [d.message for d in diagnosed(text.format(60, "h200", "ep=8 offload=optimizer")) if d.severity == "error"]
    assert len(said) == 1
    assert not any(d.severity == "error" for d in diagnosed(text.format(64, "h200", "ep=8 offload=optimizer")))


def test_rings_of_a_rack_share_its_uplinks() -> None:
    """Eight nodes below each leaf, 2:1: 64 ports have 32 uplinks. Rings of two ranks in two racks load all ports, so
    each has half an uplink. A ring crosses from a rack once: eight rings along the nodes of two racks need eight
    uplinks, as does one ring over whole nodes, and a ring inside a rack needs none."""
    h = load_stdlib().gpu("h200")[0]
    assert h is not None
    tree = evolve(h, rack_gpus=64, oversubscription=2.0)
    size, stride = np.array([2.0, 16.0, 128.0, 8.0]), np.array([64.0, 8.0, 1.0, 8.0])
    flat, oversubscribed = (communication.ring(m, size, stride) for m in (h, tree))
    assert (flat / oversubscribed).tolist() == [2.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("text", "id"), table_of("planner", "machines: mistakes"))
def test_mistakes(text: str, id: str) -> None:
    result = compile_source(Source("x.moe", text + "\nqwen3_30b_a3b; ours x 8"), "check")
    assert id in {d.id for d in result.diagnostics if d.severity == "error"}
