"""Behind an error the statements that did parse are each kept once, as if the wrong ones were not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.lang.parser import parse
from moedsl.support.source import Source

GOOD = ("qwen3_30b_a3b", "h100 x 8", "seq 4k", "pin tp=4 cp=2", "require dp >= 2", "run a { fit first; seq 8k }")
WRONG = ("seq 128 k", "pin tp 4", "require tp = 2", "fit fast", "= 3", 'data "open')

statements = st.lists(
    st.tuples(st.sampled_from([*GOOD, *WRONG]), st.sampled_from(["\n", "; "])), min_size=1, max_size=8
)


def items(parts: list[tuple[str, str]]) -> tuple[list[object], int]:
    module, found = parse(Source("t.moe", "".join(s + end for s, end in parts)))
    assert module is not None
    return list(module.items), len(found)


@given(statements)
def test_good_statements_are_kept_once(parts: list[tuple[str, str]]) -> None:
    parts = [(s, "\n" if s.startswith("data") else end) for s, end in parts]
    kept, errors = items(parts)
    good = [p for p in parts if p[0] in GOOD]
    assert errors == len(parts) - len(good)
    assert kept == (items(good)[0] if good else [])


@pytest.mark.parametrize(
    ("machine", "help"),
    [
        ("h100 8", "no `x` before the number of GPUs: write `x 8`"),
        ("h100 8gpus", "no `x` before the number of GPUs: write `x 8`"),
        ("h100 80gb x 8", "leave out `80gb`"),
        ("h100 80GB", "leave out `80GB`"),
    ],
)
def test_a_number_after_the_hardware_is_of_gpus_or_of_their_memory(machine: str, help: str) -> None:
    (found,) = parse(Source("run.moe", f"qwen3_30b_a3b; {machine}"))[1]
    assert found.id == "parse.unexpected" and any(help in said for said in found.help)
