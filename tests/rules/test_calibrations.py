"""The numbers of the machine: each is declared with its meaning, and a user may state any of them."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.diagnostics.source import Source
from moedsl.rules import stdlib
from moedsl.rules.calibrations import EVERY
from moedsl.schema import calibration
from moedsl.schema.calibration import Constant
from moedsl.support.resources import stdlib_dir

KNOWN = stdlib.load().constants(EVERY)[0]
assert KNOWN is not None
RUN = "qwen3_30b_a3b; h100 x 16; throughput first; seq 4096; batch 1024"


@pytest.mark.parametrize("constant", KNOWN.known.values(), ids=lambda c: c.name)
def test_each_number_says_what_it_is(constant: Constant) -> None:
    assert constant.low <= constant.value <= constant.high
    assert constant.unit in calibration.UNITS
    assert len(constant.about) > 10 and constant.measure and constant.source


def test_a_number_in_python_is_declared() -> None:
    assert {*KNOWN.known} == {*calibration.NAMES}


def seconds(text: str) -> float:
    (plan,) = compile_source(Source("main.moe", text), "plan").plans
    return plan.estimate.step_time_s


def test_a_user_states_one_number() -> None:
    own = (stdlib_dir() / "calibration/hopper.moe").read_text(encoding="utf-8")
    assert seconds(own + RUN) == seconds(RUN)
    assert seconds(own.replace("{", "{ host_wait 3", 1) + RUN) > seconds(RUN)


@pytest.mark.parametrize(
    "text, id, says",
    [
        ("calibration hopper { host_wait 30 }", "check.calibration", "is not between 0 and 3"),
        ("calibration hopper { host_weight 1 }", "check.unknown_fact", "host_weight"),
        ("calibration hopper { host_wait 1; host_wait 2 }", "check.twice", "host_wait"),
        ('calibration hopper { host_wait "long" }', "check.type", "a number, in ms"),
        ("calibration any { host_wait 1 }", "check.type", "a block"),
        ("calibration any { host_wait { value 1 } }", "check.missing_fact", "gemm"),
        ('calibration any { host_wait { value 1; unit "hours" } }', "check.unknown_word", "ms"),
    ],
)
def test_a_wrong_number_is_named(text: str, id: str, says: str) -> None:
    found = compile_source(Source("main.moe", f"{text}\n{RUN}"), "plan").diagnostics
    assert any(d.id == id and says in d.message for d in found), [(d.id, d.message) for d in found]
