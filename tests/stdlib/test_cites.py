"""Every rule of the stdlib says why and on whose word, and a cited line of NVIDIA's code is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from moedsl.compiler import load_stdlib
from moedsl.rules import collect
from moedsl.rules.ids import NEEDS
from moedsl.rules.rule import Rule

RULES: tuple[Rule, ...] = collect.collect(load_stdlib().rules)[0]
_ROOTS = {"core": "megatron/core", "bridge": "megatron/bridge", "te": "transformer_engine"}


def lines_cited() -> list[tuple[str, str, str, int]]:
    """(rule, whose, file, line) of each cite that names a line."""
    found = [(r.id, re.fullmatch(r"(core|bridge|te) ([\w/]+\.py):(\d+)\b.*", c)) for r in RULES for c in r.cites]
    return [(rule, m[1], m[2], int(m[3])) for rule, m in found if m]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.kind}-{r.id}-{r.span.start}")
def test_a_rule_says_why(rule: Rule) -> None:
    assert rule.because
    assert rule.cites or rule.kind in ("let", "default")  # a default may be our own choice


def test_most_laws_cite_a_line() -> None:
    cited = {rule for rule, *_ in lines_cited()}
    assert {r.id for r in RULES if r.kind == "require"} - cited == {*NEEDS}


@pytest.mark.bridge
@pytest.mark.parametrize("cite", lines_cited(), ids=lambda c: f"{c[0]}-{c[2]}:{c[3]}")
def test_a_cited_line_exists(cite: tuple[str, str, str, int]) -> None:
    _, whose, file, line = cite
    spec = importlib.util.find_spec("attrs")
    assert spec is not None and spec.origin is not None
    text = (Path(spec.origin).parents[1] / _ROOTS[whose] / file).read_text(encoding="utf-8").splitlines()
    assert text[line - 1].strip()
