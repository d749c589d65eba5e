"""The laws of overlap on versions and graphs: they refuse exactly what Bridge's own checks refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.solver.fits import violations
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.layouts import run_text, variant
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled, plan_of
from tests.oracles.ask_overlap import grid

OF_CORE = {"std.delay_wgrad.te_graph"}
"""Megatron-Core asks it when the model is made, not Bridge's set-up of the overlap."""
BASE = {"model": "moonlight_16b", "hardware": "h100", "gpus": 8, "ep": 8, "ep_overlap": True}


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """Bridge's word on the grid, from one process."""
    done = bridge_process.run(str(ROOT / "tests/oracles/ask_overlap.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def laws_broken(q: dict[str, Any]) -> set[str]:
    """What the layout of a question breaks here."""
    layout = {**BASE, "delay_wgrad": q["wgrad"], "cuda_graph": q["graphs"]}
    text = variant(layout, {"shared_expert_hidden": 0}) if not q["shared"] else run_text(layout)
    stands = f"target torch {q['torch']}\ntarget transformer_engine {q['te']}\n"
    (program,) = compile_source(Source("run.moe", text + stands), "check").programs
    return {r.id for r in violations(program, 8)} - OF_CORE


@pytest.mark.bridge
def test_the_laws_and_bridge_agree_on_every_question(answers: list[dict[str, Any]]) -> None:
    assert len(answers) == len(grid())
    wrong = [(q, laws_broken(q)) for q in answers if bool(laws_broken(q)) != bool(q["refused"])]
    assert not wrong
    assert {bool(q["refused"]) for q in answers} == {True, False}


@pytest.mark.bridge
def test_every_refusal_is_a_known_symptom(answers: list[dict[str, Any]]) -> None:
    known = [s for s in symptoms(load_stdlib()) if s.rule.id.startswith("std.")]
    for q in answers:
        assert q["refused"] is None or any(s.pattern.search(q["refused"]) for s in known), q["refused"]


RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first; pin ep=16 ep_overlap=on delay_wgrad=on "


def test_a_plan_lists_the_versions_that_it_needs() -> None:
    needs = {n.rule: (n.product, n.at_least) for n in plan_of(RUN + "cuda_graph=[attn]").needs}
    assert needs["std.ep_overlap.torch"] == ("torch", "2.6.0")
    assert needs["std.delay_wgrad.te_wgrad_in_graph"] == ("transformer_engine", "2.12.0")
    assert plan_of("qwen3_30b_a3b; h100 x 16; seq 4k; fit first").needs == ()


def test_a_graph_without_captured_weight_gradients_needs_less() -> None:
    rules = {n.rule for n in plan_of(RUN + "cuda_graph=[moe_router]").needs}
    assert "std.delay_wgrad.te_graph" in rules and "std.delay_wgrad.te_wgrad_in_graph" not in rules


def test_an_older_container_keeps_the_solver_from_overlap() -> None:
    run = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first; pin ep=16 dispatcher=alltoall; "
    assert plan_of(run).policy.ep_overlap is True
    old = plan_of(run + "target torch 2.5.1")
    assert old.policy.ep_overlap is False and old.target.to_json() == {"bridge": "0.6.2", "torch": "2.5.1"}


def test_fusion_comes_with_captured_weight_gradients() -> None:
    assert plan_of(RUN + "cuda_graph=[attn]").derived["gradient_accumulation_fusion"] is True
    assert "gradient_accumulation_fusion" not in plan_of(RUN + "cuda_graph=none").derived


@pytest.mark.parametrize("text", ["target cuda 12", "target torch x", "target torch 2.6.0.1", "target bridge 0.1"])
def test_targets_that_are_none(text: str) -> None:
    (found,) = [d for d in compiled(f"qwen3_30b_a3b; h100 x 16\n{text}").diagnostics if d.is_error]
    assert found.id == "check.target"


def test_a_version_compares_by_its_numbers() -> None:
    for text in ('require version("2.10.0") > version("2.9.1")', 'require version("2.6") == version("2.6.0")'):
        assert not compiled(f"qwen3_30b_a3b; h100 x 16; seq 4k\n{text}").failed
    (found,) = compiled('qwen3_30b_a3b; h100 x 16\nrequire te_version > version("two")').diagnostics
    assert found.id == "check.type"
