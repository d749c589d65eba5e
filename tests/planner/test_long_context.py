"""Long sequences: what they need, what they change against 4K, and the words of NVIDIA's document."""

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from moedsl.cli.main import main
from moedsl.facts.common import batch_shapes as shapes
from moedsl.planner import other_layouts
from moedsl.planner.experiment import settings
from moedsl.queries import pareto
from moedsl.rules.check.program import Program
from moedsl.solver.solve import solve
from tests.helpers.layouts import checked
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of

QWEN = "model qwen3_235b_a22b; gb200 x 256; seq 128k; fit first"
DEEPSEEK = "model deepseek_v3; h100 x 256; seq 256k; fit first; pin tp=1 cp=64 pp=8"


def program(text: str) -> Program:
    (found,) = checked(text).programs
    return found


# ---------------------------------------------------------------- against 4K


def test_a_long_plan_says_what_its_dp_does_to_the_batch() -> None:
    p = plan_of(QWEN)
    a, dp = p.batch.against_4k, p.layout.dp
    assert a.dp > dp
    assert a.global_batch * 4096 == p.batch.global_batch * p.batch.seq
    assert a.accumulation_for_same_batch == a.global_batch // dp > a.num_microbatches
    assert a.batch_for_same_accumulation == a.num_microbatches * dp < a.global_batch
    for n in (a.dp, dp, a.global_batch, a.accumulation_for_same_batch, a.batch_for_same_accumulation):
        assert f" {n}" in a.text


def test_the_twin_is_the_plan_of_the_run_at_4k() -> None:
    """What it says of 4K is what a run at 4K with the same tokens a step gets."""
    long, short = plan_of(QWEN), plan_of(QWEN.replace("seq 128k", "seq 4k"))
    a = long.batch.against_4k
    assert (a.dp, a.num_microbatches, a.global_batch) == (
        short.layout.dp,
        short.batch.num_microbatches,
        short.batch.global_batch,
    )
    values = settings(long.layout, long.policy)
    before = settings(short.layout, short.policy)
    for c in long.against_4k.changes:
        assert c.here == values[c.name] != c.at_4k == before[c.name]
    assert {"cp", "recompute"} <= {c.name for c in long.against_4k.changes}


def test_a_short_plan_is_not_compared() -> None:
    assert plan_of("qwen3_30b_a3b; h100 x 16; seq 16k").batch.against_4k is None


def test_pins_of_the_length_do_not_bind_its_twin() -> None:
    p = program(DEEPSEEK.replace("h100 x 256", "h100 x 512"))
    codes = solve(p, 512, keep=1).solution.rows[0].codes
    found = other_layouts.twin(p, 512, codes, SimpleNamespace(global_batch=16, seq=262144))
    assert found is not None
    short = found.solution.rows[0].codes
    assert short["cp"] < 64 == codes["cp"] and short["precision"] == codes["precision"]


# ---------------------------------------------------------------- GPUs


def test_256k_of_the_published_layout_needs_512_gpus() -> None:
    """TP 1 x CP 64 x PP 8 is one replica on 512 GPUs: the document's EDP 2 x EP 32 x PP 8."""
    first = pareto.fewest(program(DEEPSEEK), 262144)
    assert first.text == "at 256k this needs 512 h100"
    (found,) = compiled(DEEPSEEK).diagnostics
    assert any("at 256k this needs 512 h100" in h for h in found.help)


@pytest.mark.parametrize("text", [QWEN, "model deepseek_v3; h100; seq 64k; fit first; pin moments=bf16"])
def test_the_fewest_gpus_fit_and_fewer_do_not(text: str) -> None:
    p = program(text)
    found = pareto.lengths(p, None, p.seq).needs
    assert [n.seq for n in found] == [p.seq, 2 * p.seq, 4 * p.seq]
    assert all(a.gpus <= b.gpus for a, b in pairwise(found))
    node = p.hardware.gpus_per_node
    for n in found:
        assert n.layout is not None and solve(p, n.gpus, keep=1, seq=n.seq, must_fit="high").solution.rows
        assert n.gpus <= node or not solve(p, n.gpus - node, keep=1, seq=n.seq, must_fit="high").solution.rows


def test_the_longest_sequence_fits_and_twice_it_does_not() -> None:
    p = program("model deepseek_v3; h100 x 128; seq 64k; fit first; pin moments=bf16 grad_reduce=bf16 cp=16")
    found = pareto.longest(p, 128, 65536)
    assert found is not None and solve(p, 128, keep=1, seq=found.seq, must_fit="high").solution.rows
    assert not solve(p, 128, keep=1, seq=2 * found.seq, must_fit="high").solution.rows


def test_lengths_are_printed_and_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--lengths", "-e", DEEPSEEK]) == 0
    assert "at 256k this needs 512 h100: cp=64 pp=8" in capsys.readouterr().out
    assert main(["plan", "--lengths", "--json", "-e", DEEPSEEK]) == 0
    table = json.loads(capsys.readouterr().out)["lengths"]["main"]
    assert table["needs"][0]["gpus"] == 512 and table["needs"][0]["layout"]["cp"] == 64
    assert table["holds"] is None  # 256 GPUs hold no length with these pins


# ---------------------------------------------------------------- words, ladders, shapes


def test_the_documents_words_lead_to_megatrons() -> None:
    found = compiled("deepseek_v3; h100 x 256; pin recompute=[up_proj, norm, moe, mlp]").diagnostics
    helps = [" ".join(d.help) for d in found if d.id == "check.unknown_word"]
    assert len(helps) == 2 and "`mla_up_proj`" in helps[0] and "`layernorm`" in helps[1]


@pytest.mark.parametrize("seq, there", [("32k", True), ("64k", False)])
def test_the_long_ladder_has_no_attention(seq: str, there: bool) -> None:
    problem = solve(program(f"qwen3_30b_a3b; h100 x 64; seq {seq}"), 64, keep=0).problem
    attention = 1 << 4
    assert any(int(v) & attention for v in problem.domains["recompute"]) is there


SHAPES = table_of("planner", "long context: shapes")


@pytest.mark.parametrize("sets, word", SHAPES)
def test_what_a_run_sets_makes_its_shapes_vary(sets: dict[str, bool], word: str) -> None:
    assert shapes(sets) == word


def test_packed_images_leave_graphs_to_one_stage() -> None:
    run = (
        "qwen3_vl_30b_a3b; gb200 x 16; seq 32k; batch 64; throughput first; set dataset.enable_in_batch_packing = true"
    )
    assert plan_of(run).batch.micro_batch > 1
    refused = compiled(f"{run}; pin pp=2 cuda_graph=[moe_router, moe_preprocess]").diagnostics
    assert [d.id for d in refused if d.is_error] == ["std.variable_shapes.image_graphs"]
