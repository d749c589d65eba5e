"""`isolate`: one layout for all variants, only the axis differs, and what stands in the way of that is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main
from moedsl.compiler import Result
from moedsl.emit.isolation_table import comparisons
from moedsl.emit.overrides import overrides_text
from moedsl.emit.settings import decided_fields
from moedsl.facts import axes
from moedsl.queries.explain import answer
from moedsl.queries.explain_text import text_of
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import example_path
from tests.helpers.programs import compiled, solved, written
from tests.helpers.tables import table_of

EXAMPLE = example_path("overlap_ab")
RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first; "
ARMS = ("off", "on", "delayed")
OVERLAP = {
    f"{where}.{name}"
    for where in ("model", "comm_overlap")
    for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
}


@pytest.fixture(scope="module")
def example() -> Result:
    return compiled(EXAMPLE.read_text(encoding="utf-8"), "examples/tuning/overlap_ab.moe")


def table(text: str) -> dict[str, Any]:
    result = compiled(RUN + text)
    assert not result.failed, result.diagnostics
    (one,) = comparisons(result.plans)
    return one


def error(text: str) -> Any:
    (found,) = [d for d in compiled(RUN + text).diagnostics if d.is_error]
    return found


def differing(a: str, b: str) -> set[str]:
    """The paths of the lines that two override files do not share."""
    lines = {line for line in set(a.splitlines()) ^ set(b.splitlines()) if not line.startswith("#")}
    return {line.lstrip("+").split("=", 1)[0] for line in lines}


def test_a_run_for_each_variant(example: Result) -> None:
    assert [p.name for p in example.plans] == [f"main.overlap_{arm}" for arm in ARMS]
    policies = [(p.policy.ep_overlap, p.policy.delay_wgrad) for p in example.plans]
    assert policies == [(False, False), (True, False), (True, True)]


def test_the_recipes_differ_in_the_axis_alone(example: Result) -> None:
    fields = [decided_fields(p, every=True) for p in example.plans]
    paths = {k for f in fields for k in f if any(f.get(k) != g.get(k) for g in fields)}
    assert paths == OVERLAP
    first, *others = [overrides_text(p) for p in example.plans]
    assert set().union(*(differing(first, other) for other in others)) == OVERLAP
    assert len({json.dumps([p.layout.to_json(), p.batch.to_json(), p.env, p.derived]) for p in example.plans}) == 1


@pytest.mark.bridge
def test_bridge_accepts_every_variant(example: Result, tmp_path: Path, server: Server) -> None:
    for report in server.judge(written(example, tmp_path)):
        assert report.ok, report.to_json()


def test_the_measured_case_stands_beside_the_table(example: Result) -> None:
    """The seed's own numbers, and estimates that order the variants as the machines did."""
    (one,) = comparisons(example.plans)
    assert any("41.25" in m.result and "31.31" in m.result and "31.20" in m.result for m in one.measured)
    off, on, delayed = (v.step_time_s for v in one.variants)
    assert off > on >= delayed


def test_the_table_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for words, plans in ((["--full"], 1), ([], 0)):
        assert main(["plan", str(EXAMPLE), *words]) == 0
        out = capsys.readouterr().out
        assert out.count("Meshes") == plans and out.count("overlap isolated") == 1
    assert all(f"main.overlap_{arm}" in out for arm in ARMS)


def test_compile_writes_every_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(EXAMPLE), "-o", str(tmp_path / "out")]) == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {f"main.overlap_{arm}" for arm in ARMS}
    assert capsys.readouterr().out


def test_the_layout_suits_every_variant() -> None:
    """What the fastest layout without overlap may not be: here with VPP, since `on` needs it, and memory for four."""
    text = "pin pp=2; isolate overlap in off, on"
    for chosen in solved(RUN + text).chosen:
        assert chosen.solution.rows[0].layout["vpp"] > 1
    largest = compiled(RUN + "isolate micro_batch in 1, 4").plans
    alone = compiled(RUN + "pin micro_batch=1").plans[0]
    assert largest[0].layout == evolve(largest[1].layout, dp=largest[0].layout.dp)
    assert largest[0].layout != alone.layout  # the best with micro_batch 1 does not fit with 4
    assert {p.estimate.memory.verdict for p in largest} == {"FITS"}


def test_the_common_layout_is_the_best_of_all_common_ones() -> None:
    """Against runs of their own: of what both variants may take alone, the best by the first's ranking."""
    pins = "pin pp=1 tp=1 cp=1 ep=16 etp=1 offload=none dispatcher=alltoall cuda_graph=none ep_overlap=off "
    isolated = solved(RUN + pins + "; isolate micro_batch in 1, 2").chosen[0]
    scores: list[float] = []
    for code in isolated.problem.domains["recompute"]:
        words = axes.BY_NAME["recompute"].decode(int(code))
        assert isinstance(words, list)
        recompute = f"recompute=[{', '.join(words)}]" if words else "recompute=none"
        alone = [solved(f"{RUN}{pins} {recompute} micro_batch={m}") for m in (1, 2)]
        scores += [] if any(r.failed for r in alone) else [alone[0].chosen[0].solution.rows[0].score]
    assert len(scores) > 1
    assert isolated.solution.rows[0].score == min(scores)


AXES = [
    ("isolate micro_batch in 1, 2, 4", ["1", "2", "4"], {"num_microbatches"}),
    ("isolate batch in 512, 1024", ["512", "1024"], {"num_microbatches"}),
    ("isolate pp in 1, 2", ["1", "2"], {"dp", "edp", "num_microbatches"}),
    ("isolate cuda_graph in none, [attn]; pin delay_wgrad=off", ["none", "attn"], set()),
    (
        "isolate cuda_graph in none, [attn]; pin delay_wgrad=on ep_overlap=on",
        ["none", "attn"],
        {"gradient_accumulation_fusion"},
    ),
    ("isolate precision in bf16, fp8_blockwise", ["bf16", "fp8_blockwise"], set()),
    ("isolate ep_overlap in on, off", ["on", "off"], set()),
]


@pytest.mark.parametrize(
    ("text", "values", "follows"), rotation.one_of_each("isolated axes", AXES, lambda case: frozenset(case[2]))
)
def test_any_axis(text: str, values: list[str], follows: set[str]) -> None:
    one = table(text)
    assert [v.value for v in one.variants] == values
    assert set(one.follows) == follows


def test_gpus_too() -> None:
    plans = compiled("qwen3_30b_a3b; h100; seq 4k; throughput first; isolate gpus in 16, 32").plans
    assert [p.gpus for p in plans] == [16, 32]
    assert len({p.batch.global_batch for p in plans}) == 1


def test_without_a_number_of_gpus_the_fewest_are_found() -> None:
    result = compiled("qwen3_30b_a3b; h100; seq 4k; fit first; isolate overlap in off, on")
    assert result.diagnostics[0].id == "plan.smallest"
    assert len({p.gpus for p in result.plans}) == 1


def test_a_second_difference_is_said() -> None:
    """On Hopper one launch queue is right for tensor parallelism without overlap, and wrong with it."""
    result = compiled(RUN + "pin dispatcher=alltoall tp=2; isolate overlap in off, on")
    (found,) = result.diagnostics
    assert (found.id, found.severity) == ("plan.second_difference", "warning")
    assert "CUDA_DEVICE_MAX_CONNECTIONS is off 1, on 8" in found.message
    (one,) = comparisons(result.plans)
    assert one.also == {"CUDA_DEVICE_MAX_CONNECTIONS": [1, 8]}


def test_several_second_differences_are_one_warning() -> None:
    """A flex dispatcher has an environment of its own: every variable with what each variant has, and why."""
    result = compiled(RUN + "isolate dispatcher in alltoall, deepep")
    (found,) = (d for d in result.diagnostics if d.id == "plan.second_difference")
    (one,) = comparisons(result.plans)
    assert found.values.keys() == one.also.keys() and len(found.values) > 1
    assert f"{len(found.values)} variables" in found.message
    first, other = one.also["NVTE_FWD_LAYERNORM_SM_MARGIN"]
    assert found.values["NVTE_FWD_LAYERNORM_SM_MARGIN"] == f"alltoall {first}, deepep {other}"
    assert "NVTE_FWD_LAYERNORM_SM_MARGIN, NVTE_BWD_LAYERNORM_SM_MARGIN" in str(found.because)


def test_a_variant_that_no_layout_suits() -> None:
    found, other = (d for d in compiled(RUN + "pin recompute=full; isolate overlap in off, on, delayed").diagnostics)
    assert other.message.startswith("with overlap delayed: ")
    assert found.id == "std.ep_overlap.no_full_recompute"
    assert found.message.startswith("with overlap on: ")
    assert found.help[0] == "write another value in place of `on`, or drop the isolation"
    assert not any("ep_overlap" in h for h in found.help)


def test_variants_that_no_layout_suits_are_left_out_at_once() -> None:
    found = compiled(RUN + "isolate precision in bf16, mxfp8, fp8_blockwise, nvfp4").diagnostics
    way = "isolate precision in bf16, fp8_blockwise"
    assert [d.help[0] for d in found] == [f"leave `mxfp8` and `nvfp4` out: `{way}`"] * 2
    assert not any(d.is_error for d in compiled(RUN + way).diagnostics)


def test_variants_that_share_no_layout() -> None:
    found = error("require ep == 16 or tp == 8; require ep == 1 or tp == 1; isolate ep in 1, 16")
    assert found.id == "solve.isolation"
    assert "`1` and `16`" in found.message
    assert any("breaks std.mesh.expert_mesh in `16`" in h for h in found.help)


@pytest.mark.parametrize(("text", "id"), table_of("isolate", "mistakes"))
def test_mistakes(text: str, id: str) -> None:
    assert error(text).id == id


def test_composites_name_axes() -> None:
    for words in axes.COMPOSITES.values():
        assert len({frozenset(parts) for parts in words.values()}) == 1
        assert all(a in axes.BY_NAME for parts in words.values() for a in parts)


def test_an_explanation_of_a_variant_keeps_the_others_legal() -> None:
    """An alternative of one run costs what pinning it for every variant gives."""
    text = f"{RUN}pin dispatcher=alltoall cuda_graph=none; isolate overlap in off, on"
    found = answer(Source("run.moe", text), ["micro_batch"])
    assert not found.failed and len(found.explanations) == 2
    alternatives = found.explanations[0]["alternatives"]
    assert len(alternatives) > 1
    for a in rotation.some("alternatives of a variant", alternatives, 1):
        pinned = solved(f"{text}; pin micro_batch={a['value']}").chosen
        best = a["best"]["step_time_s"] if a["best"]["layout"] else None
        assert best == (pinned[0].solution.rows[0].step_time if pinned else None)


def test_a_law_of_another_variant_is_named_where_it_refuses() -> None:
    found = answer(
        Source("run.moe", f"{RUN}pin dispatcher=alltoall cuda_graph=none; isolate overlap in off, on"), ["recompute"]
    )
    full = next(a for a in found.explanations[0]["alternatives"] if a["value"] == ["full"])
    assert [law["rule"] for law in full["same_otherwise"]["breaks"]] == ["std.ep_overlap.no_full_recompute"]
    assert "breaks ep_overlap.no_full_recompute" in text_of(found.explanations[0])
