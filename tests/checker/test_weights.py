"""`weights`: what a run starts from."""

from __future__ import annotations

import re

import pytest

from moedsl.compiler import compile_source
from moedsl.support.source import Source

RUN = "qwen3_30b_a3b; h100 x 16; task sft; "


def test_a_model_of_hugging_face_has_a_folder() -> None:
    (program,) = compile_source(Source("run.moe", RUN + 'weights hf "org/mine"'), "check").programs
    assert program.hub_weights == "org/mine"
    assert program.sets["checkpoint.pretrained_checkpoint"] == "nemo_experiments/weights/org--mine"


def test_a_path_is_the_field_of_bridge() -> None:
    (program,) = compile_source(Source("run.moe", RUN + 'weights "/c"'), "check").programs
    (same,) = compile_source(Source("run.moe", RUN + 'set checkpoint.pretrained_checkpoint = "/c"'), "check").programs
    assert program.hub_weights is None
    assert program.sets == same.sets


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (RUN + 'weights hub "org/mine"', "check.unknown_word"),
        (RUN + 'weights hf "mine"', "check.weights"),
        (RUN + 'weights hf "a/b/c"', "check.weights"),
        (RUN + 'weights ""', "check.weights"),
        (RUN + 'weights hf "Qwen/Qwen3-235B-A22B"', "check.weights"),
        ('qwen3_30b_a3b; h100 x 16; weights "/c"', "check.weights"),
        (RUN + 'weights "/c"; set checkpoint.pretrained_checkpoint = "/d"', "check.twice"),
        (RUN + 'weights "/c"; weights "/d"', "check.twice"),
        (RUN + "weights", "parse.unexpected"),
    ],
)
def test_mistakes(text: str, id: str) -> None:
    found = [d.id for d in compile_source(Source("run.moe", text), "check").diagnostics if d.is_error]
    assert found == [id]


def test_weights_of_a_sibling_are_a_warning_with_the_way_to_declare_it() -> None:
    """Nothing compares the rotary base or the tokenizer of another repository."""
    other = "Qwen/Qwen3-30B-A3B-Instruct-2507"
    (d,) = compile_source(Source("run.moe", f'{RUN}weights hf "{other}"'), "check").diagnostics
    assert (d.id, d.severity) == ("check.other_weights", "warning")
    assert other in d.message and f"--hf {other}" in " ".join(d.help)
    assert not compile_source(Source("run.moe", RUN + 'weights hf "Qwen/Qwen3-30B-A3B"'), "check").diagnostics


def test_pretraining_from_weights_is_told_the_field() -> None:
    (d,) = compile_source(Source("run.moe", 'qwen3_30b_a3b; h100 x 16; weights "/c"'), "check").diagnostics
    field = re.search(r"`(set \S+ = \S+)`", " ".join(d.help))
    assert field
    assert not compile_source(Source("run.moe", f"qwen3_30b_a3b; h100 x 16; {field[1]}"), "check").diagnostics
