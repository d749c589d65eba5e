"""A plan for each GPU of the stdlib, which the real Megatron Bridge accepts on that GPU; a run takes one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from moedsl.bridge.verify.cases import devices
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from tests.helpers import rotation
from tests.helpers.programs import compiled, written

pytestmark = pytest.mark.bridge
LIBRARY = load_stdlib()
DICE = rotation.dice("gpus")
GPUS = rotation.some("gpus", [*devices()], 1)
RUNS = {
    gpu: f"{DICE.choice(('moonlight_16b', 'qwen3_30b_a3b', 'gpt_oss_120b'))}; {gpu} x {DICE.choice((32, 64))}; "
    f"{DICE.choice(('fit', 'scale', 'throughput'))} first; seq {DICE.choice(('4k', '16k'))}"
    for gpu in GPUS
}


@pytest.mark.timeout(1200)
def test_bridge_accepts_a_plan_on_each(server: Server, tmp_path: Path) -> None:
    cases = {gpu: case for gpu, text in RUNS.items() for case in written(compiled(text), tmp_path / gpu)}
    assert {*cases} == {*RUNS}, "a run has no plan"
    assert {gpu: c.device for gpu, c in cases.items()} == {gpu: devices()[gpu] for gpu in GPUS}
    reports = dict(zip(cases, server.judge([*cases.values()]), strict=True))
    assert {gpu: r.to_json() for gpu, r in reports.items() if not r.ok} == {}


@pytest.mark.parametrize(
    ("gpu", "word", "law"),
    rotation.some(
        "lacks",
        [
            ("a100_80gb", "precision fp8_blockwise", "precision.fp8_gpu"),
            ("a100_80gb", "precision fp8", "precision.fp8_gpu"),
            ("a800", "precision mxfp8", "precision.mxfp8_gpu"),
            ("h20", "precision nvfp4", "precision.nvfp4_gpu"),
            ("a100_40gb", "pin dispatcher=hybridep", "dispatch.hybridep_copies"),
            ("a100_80gb", "pin dispatcher=deepep ep=16", "dispatch.deepep_network"),
            ("h100_pcie", "pin dispatcher=deepep ep=8", "dispatch.deepep_peers"),
            ("gh200_nvl2", "pin dispatcher=deepep ep=8", "dispatch.deepep_peers"),
            ("vr200", "pin dispatcher=deepep", "dispatch.deepep_gpu"),
        ],
        3,
    ),
)
def test_what_a_gpu_does_not_have_is_refused(gpu: str, word: str, law: str) -> None:
    (found,) = [d for d in compiled(f"qwen3_30b_a3b; {gpu} x 64; {word}").diagnostics if d.is_error]
    assert found.id == f"std.{law}" and any("drop" in h for h in found.help), found


@pytest.mark.parametrize("gpu", rotation.some("planned gpus", sorted(LIBRARY.hardware), 2))
def test_a_plan_keeps_to_its_gpu(gpu: str) -> None:
    """The queue of a GPU before Blackwell, no format that it does not have, and its NVLink domain."""
    (plan,) = compiled(f"moonlight_16b; {gpu} x 32; throughput first; precision auto").plans
    h, _ = LIBRARY.gpu(gpu)
    assert h is not None
    one_queue = int(plan.env["CUDA_DEVICE_MAX_CONNECTIONS"]) < 32
    assert not (one_queue and h.capability >= 10)
    assert plan.policy.precision in ("bf16", "fp8_blockwise" if h.arch == "hopper" else "mxfp8")
    assert plan.policy.precision == "bf16" or h.arch != "ampere"
    if plan.policy.dispatcher == "hybridep":
        assert h.capability >= 9 and int(plan.env["NVLINK_DOMAIN_SIZE"]) == h.nvlink_domain


def test_code_that_asks_for_the_current_device_is_no_refusal(server: Server, tmp_path: Path) -> None:
    """Megatron-Core asks for its number where it makes groups, and Transformer Engine makes a device of it."""
    runs = {
        "groups of SHARP": "qwen3_30b_a3b; h100 x 16; set dist.use_sharp = true\n"
        "set dist.sharp_enabled_group = dp_replica; set ddp.num_distributed_optimizer_instances = 2",
        "weights made on the CPU": "olmoe_7b; h100 x 16; set model.use_cpu_initialization = true",
    }
    asked = [(name, case) for name, text in runs.items() for case in written(compiled(text), tmp_path / name)]
    found = server.judge([evolve(case, stages=name == "weights made on the CPU") for name, case in asked])
    reports = dict(zip(runs, found, strict=True))
    assert {name: r.to_json() for name, r in reports.items() if not r.ok} == {}
