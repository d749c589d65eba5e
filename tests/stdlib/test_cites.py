"""Every rule of the stdlib says why and on whose word, and a cited line of NVIDIA's code is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from moedsl.compiler import load_stdlib
from moedsl.rules import collect
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import NEEDS

RULES: tuple[Rule, ...] = collect.collect(load_stdlib().rules)[0]
_ROOTS = {"core": "megatron/core", "bridge": "megatron/bridge", "te": "transformer_engine"}


def lines_cited() -> list[tuple[str, str, str, int]]:
    """(rule, whose, file, line) of each cite that names a line."""
    found = [(r.id, re.fullmatch(r"(core|bridge|te) ([\w/]+\.py):(\d+)\b.*", c)) for r in RULES for c in r.cites]
    return [(rule, m[1], m[2], int(m[3])) for rule, m in found if m]


def test_every_rule_says_why() -> None:
    assert [r.id for r in RULES if not r.because] == []
    own = ("let", "default")  # a default may be our own choice
    assert [r.id for r in RULES if not r.cites and r.kind not in own] == []


def test_most_laws_cite_a_line() -> None:
    """A law of an older release cites a file of that release, by its version."""
    older = {r.id for r in RULES if all(re.match(r"(core|bridge) \d+\.\d+\.\d+ ", c) for c in r.cites)}
    cited = {rule for rule, *_ in lines_cited()} | older
    assert {r.id for r in RULES if r.kind == "require"} - cited == {*NEEDS}


@pytest.mark.bridge
def test_every_cited_line_exists() -> None:
    spec = importlib.util.find_spec("attrs")
    assert spec is not None and spec.origin is not None
    packages, texts = Path(spec.origin).parents[1], dict[Path, list[str]]()
    missing: list[tuple[str, str, int]] = []
    for rule, whose, file, line in lines_cited():
        path = packages / _ROOTS[whose] / file
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not "".join(texts[path][line - 1 : line]).strip():
            missing.append((rule, file, line))
    assert missing == []
