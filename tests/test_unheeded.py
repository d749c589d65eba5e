"""What a run goes against whatever its layout is said before the plan, once, at the statement that says so."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.source import Source


def notes(text: str) -> dict[str, str]:
    """The ids of the notes on a run, and what each points at."""
    result = compile_source(Source("run.moe", text), "plan")
    assert not result.failed, result.diagnostics
    return {d.id: text[d.labels[0].span.start : d.labels[0].span.end] for d in result.diagnostics}


def test_a_model_beyond_its_published_length() -> None:
    found = notes("qwen3_30b_a3b; h100 x 16\nseq 64k")
    assert found == {"std.layout_advice.published_length": "seq 64k"}


@pytest.mark.parametrize("text", ["qwen3_30b_a3b; h100 x 16; seq 32k", "qwen3_30b_a3b; h100 x 16\npin tp=8"])
def test_advice_for_layouts_is_no_note(text: str) -> None:
    assert notes(text) == {}


def test_advice_that_the_run_allows_is_no_note() -> None:
    allowed = 'allow std.layout_advice.published_length because "YaRN is set"'
    assert notes(f"qwen3_30b_a3b; h100 x 16; seq 64k\n{allowed}") == {}
