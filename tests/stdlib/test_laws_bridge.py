"""The laws against the real Megatron Bridge: what it refuses they refuse, by name, and what it accepts they accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.compiler import load_stdlib
from moedsl.cost import pipeline
from moedsl.emit.bridge import function_name, recipe_text
from moedsl.verify import Server
from moedsl.verify import case as cases
from moedsl.verify.report import Report
from tests.helpers.layouts import broken
from tests.helpers.plans import plan
from tests.helpers.rule_cases import ALSO, CASES, EVERY, Case

pytestmark = pytest.mark.bridge

_SIZES = ("tp", "cp", "pp", "vpp", "ep", "etp")
_POLICY = (
    "precision", "dispatcher", "recompute", "offload", "offload_modules", "cuda_graph", "ep_overlap", "delay_wgrad", "sharding",
    "moments", "grad_reduce",
)  # fmt: skip
_FIELDS = {
    "heads": "num_attention_heads", "query_groups": "num_query_groups", "ffn_hidden": "ffn_hidden_size",
    "shared_expert_hidden": "moe_shared_expert_intermediate_size", "expert_hidden": "moe_ffn_hidden_size",
    "vocab": "vocab_size", "mtp_layers": "mtp_num_layers", "mamba_heads": "mamba_num_heads",
    "linear_key_heads": "linear_num_key_heads", "linear_value_heads": "linear_num_value_heads",
}  # fmt: skip
"""A fact of a model that a case changes, and Megatron's field for it."""


_OFFLOADING = {
    "env": {"NVTE_CPU_OFFLOAD_V1": 1},
    "derived": {"model.fine_grained_offloading_max_inflight_offloads": 1},
}
"""What the rules give a plan that offloads modules, so that nothing else is refused."""
_GRAPHS = {"env": {"NCCL_GRAPH_REGISTER": 0}}
"""And one with graphs of modules: expandable segments, which every plan has, go with no registration by NCCL."""


@pytest.mark.parametrize("name", EVERY)
def test_the_law_that_a_layout_breaks(name: str) -> None:
    case = EVERY[name]
    expected = ALSO.get(name) or ([case.law] if case.law else [])
    assert broken(case.layout, case.facts) == sorted(expected, key=expected.index)


@pytest.mark.parametrize("name", EVERY)
def test_bridge_refuses_what_the_laws_refuse(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    assert report.verdict != "failed", report.message
    expected = "refused" if name in CASES and CASES[name].law else "accepted"
    assert report.verdict == expected, [(r.where, r.question, r.message) for r in report.refusals]


@pytest.fixture(scope="module")
def reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Bridge's word on every case, from the one warm process."""
    folder = tmp_path_factory.mktemp("rules")
    wanted = [asked(folder / str(i), c) for i, c in enumerate(EVERY.values())]
    return dict(zip(EVERY, server.judge(wanted), strict=True))


def asked(folder: Path, case: Case) -> cases.Case:
    folder.mkdir()
    made = _plan(case)
    (folder / "recipe.py").write_text(recipe_text(made), encoding="utf-8")
    read = cases.read(
        f"{folder / 'recipe.py'}:{function_name(made)}", gpu=case.layout["hardware"], world=case.layout["gpus"]
    )
    assert isinstance(read, cases.Case), read
    return evolve(read, stages=case.build)


def _plan(case: Case) -> dict[str, Any]:
    """The plan that the emitter would get, were the layout legal."""
    w = case.layout
    sizes = {k: w[k] for k in _SIZES}
    policy = {k: w[k] for k in _POLICY}
    ranks = w["tp"] * w["cp"] * w["pp"] * w["ep"] * w["etp"]
    made = plan(
        w["model"], w["hardware"], ranks, {**sizes, "pipeline_layout": w["pipeline_layout"] or _layout(w)}, policy,
        (w["global_batch"], w["micro_batch"], w["seq"]), set={f"model.{_FIELDS[k]}": v for k, v in case.facts.items()},
    )  # fmt: skip
    more = _OFFLOADING if w["offload_modules"] else _GRAPHS if w["cuda_graph"] else {}
    return {**made, "gpus": w["gpus"], **more}


def _layout(w: dict[str, Any]) -> str | None:
    model, _ = load_stdlib().model(w["model"])
    assert model is not None
    return pipeline.layout_string(model, w["pp"], w["vpp"])
