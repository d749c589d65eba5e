"""What the tests remember of a compile is what the compiler makes, and it is forgotten where it may be another."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.compiler import Result, compile_source
from moedsl.diagnostics.source import Source
from moedsl.solver import space
from moedsl.support import limits
from tests.helpers import compile_memory, rotation
from tests.helpers.paths import EXAMPLES

RULES = 'rules mine {{ require narrow: ep == {} because "a test" cite ours "here" }}'


def compiled(text: str, name: str = "memory.moe", **words: str) -> tuple[Result, list[str]]:
    said = list[str]()
    return compile_source(Source(name, text), progress=said.append, **words), said


@pytest.mark.parametrize("example", rotation.some("remembered", EXAMPLES, 1), ids=lambda p: p.stem)
def test_a_remembered_compile_is_the_compilers(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, name = example.read_text(encoding="utf-8"), f"examples/{example.name}"
    (first, before), (second, after) = compiled(text, name), compiled(text, name)
    reads = any(p.data != "mock" for p in first.programs)
    assert all((a is b) != reads for a, b in zip(first.chosen, second.chosen, strict=True))
    assert all(a is not b for a, b in zip(first.plans, second.plans, strict=True))
    monkeypatch.setattr(limits, "SECONDS", limits.SECONDS)
    made, now = compiled(text, name)
    assert all(a is not b for a, b in zip(first.chosen, made.chosen, strict=True))
    for found, said in ((first, before), (second, after)):
        assert [p.to_json() for p in found.plans] == [p.to_json() for p in made.plans]
        assert (found.diagnostics, said) == (made.diagnostics, now)


def test_a_refusal_is_remembered_too() -> None:
    text = "qwen3_30b_a3b; h100 x 16; pin tp=3"
    (first, _), (second, _) = compiled(text), compiled(text)
    assert first.failed and first.diagnostics == second.diagnostics


def test_the_same_text_beside_another_file_is_another_program(tmp_path: Path) -> None:
    for ranks in (4, 8):
        (tmp_path / "mine.moe").write_text(RULES.format(ranks))
        made, _ = compiled('use "mine.moe"\nqwen3_30b_a3b; h100 x 16', str(tmp_path / "run.moe"))
        assert [p.layout.ep for p in made.plans] == [ranks], made.diagnostics


def test_a_replacement_is_noticed_while_it_lasts() -> None:
    assert not compile_memory._replaced
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moedsl.solver.space.MOST", space.MOST)
        assert compile_memory._replaced
        patch.setattr("moedsl.cli.talk.QUIET_FOR", 1.0)
    assert not compile_memory._replaced
