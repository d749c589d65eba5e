"""What several runs have to say alike is said once, and names the runs that it concerns."""

from __future__ import annotations

from moedsl.support.diagnostics import Diagnostic
from tests.helpers.programs import diagnosed


def said(text: str, id: str) -> list[Diagnostic]:
    return [d for d in diagnosed(text) if d.id == id]


def test_a_sweep_says_once_what_holds_for_some_of_its_runs() -> None:
    text = "qwen3_30b_a3b; gb200 x 16; throughput first; sweep seq in 8k, 64k, 128k"
    (found,) = said(text, "std.layout_advice.published_length")
    assert found.values["seq"] == [65536, 131072]
    assert found.values["runs"] == ["main.seq_65536", "main.seq_131072"]
    (found,) = said(text, "std.long_context.short_of_new_kernels")
    assert (found.values["seq"], found.values["runs"]) == (131072, "main.seq_131072")


def test_what_holds_for_all_names_none() -> None:
    text = "qwen3_30b_a3b; gb200 x 16; seq 64k; throughput first; sweep micro_batch in 1, 2"
    (found,) = said(text, "std.layout_advice.published_length")
    assert "runs" not in found.values


def test_runs_of_other_words_are_not_named() -> None:
    """The span says which run it is."""
    text = "run a { qwen3_30b_a3b; gb200 x 16; seq 64k }; run b { qwen3_30b_a3b; gb200 x 16; seq 4k }"
    (found,) = said(text, "std.layout_advice.published_length")
    assert "runs" not in found.values


def test_the_variants_of_an_isolation_refuse_a_field_once() -> None:
    text = "qwen3_30b_a3b; h100 x 16; batch 64; throughput first; isolate overlap in off, on, delayed; "
    assert len(said(text + "set model.tensor_model_parallel_size = 4", "plan.set_decided")) == 1
