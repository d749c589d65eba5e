"""Statements in the manner of other tools: one error each, and what it says to write is accepted."""

import pytest

from moedsl.compiler import compile_source
from moedsl.lang import foreign_statements, text_edits
from moedsl.lang.parser import parse
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers.paths import DATA, ROOT

HEAD = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n"


def errors(text: str) -> list[Diagnostic]:
    return [d for d in compile_source(Source("run.moe", text), "check").diagnostics if d.is_error]


def read() -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """What each text with a fix means, and of each statement with help what is pointed at and said."""
    _, fixed, helped = (DATA / "foreign_syntax.txt").read_text(encoding="utf-8").rsplit("\n\n", 2)
    texts = [line[2:].replace("... ", HEAD, 1).replace("\\n", "\n") for line in fixed.splitlines()]
    rows = (line.split("\t") for line in helped.splitlines())
    return dict(zip(texts[::2], texts[1::2], strict=True)), {line: (at, help) for line, at, help in rows}


FIXED, HELPED = read()
HELPED[f"batch {'9' * 400}"] = ("9" * 400, "units are")


@pytest.mark.parametrize("text", FIXED)
def test_one_error_whose_fix_is_what_was_meant(text: str) -> None:
    source = Source("run.moe", text)
    found = errors(text)
    assert len(found) == 1, [d.message for d in found]
    fixed = text_edits.applied(text, text_edits.edits(found[0].fixes[0], source, parse(source)[0]))
    assert fixed == FIXED[text]
    assert not errors(fixed), errors(fixed)


@pytest.mark.parametrize("line", HELPED)
def test_one_error_says_what_to_write(line: str) -> None:
    text = HEAD.replace("h100 x 16\n", "") + line if line.startswith("gb200") else HEAD + line
    found = [d for d in errors(text) if d.id != "check.no_hardware"]
    assert len(found) == 1, [d.message for d in found]
    span, (at, help) = found[0].labels[0].span, HELPED[line]
    assert text[span.start : span.end] == at
    assert any(help in h for h in found[0].help), found[0].help


@pytest.mark.usefixtures("compiles_anew")
def test_more_arguments_than_a_person_types_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    ours = foreign_statements.ours
    monkeypatch.setattr(foreign_statements, "ours", lambda *words: calls.append(words[0]) or ours(*words))
    assert errors(HEAD + "--a" * 20_000) and errors(HEAD + "--ab " * 20_000)
    assert len(calls) <= foreign_statements.MOST


@pytest.mark.parametrize("machines", ["dgx h100 x 2", "2 nodes h100", "2 nodes of H100"])
def test_nodes_are_told_in_gpus(machines: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{machines}\n")
    assert "`h100 x 8` or `h100 x 16`" in found.help[0]


def test_what_a_rule_of_a_block_may_say_is_no_slip() -> None:
    (found,) = errors("rules r { require a 4 }\n" + HEAD)
    assert "statement" not in found.message


@pytest.mark.parametrize("statement", ["v100 x 64", "hardware v100 x 64", "l40 x 8", "mi300 x 8"])
def test_another_gpu_is_no_spelling_of_a_known_one(statement: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{statement}\n")
    assert not found.fixes
    assert "the known hardware is a100_40gb, a100_80gb, " in found.help[0]


@pytest.mark.parametrize("machines", ["a100 x 64", "a100"])
def test_a_gpu_of_several_kinds_is_told_of_each(machines: str) -> None:
    (found,) = errors(f"qwen3_30b_a3b\n{machines}\n")
    assert [f.text for f in found.fixes] == ["a100_40gb", "a100_80gb", "a100_pcie"]


def test_a_model_that_does_not_exist_is_known_after_one_correction() -> None:
    (found,) = errors('model = "x"\nh100 x 8\n')
    (fix,) = found.fixes
    (then,) = errors("model x\nh100 x 8\n")
    assert fix.text in ("model x", "x") and "`moedsl models add config.json` declares another" in then.help[0]


@pytest.mark.parametrize("unit", ["Gb/s", "Gbps", "Gbit/s", "Gbits / s"])
def test_a_bandwidth_in_bits_is_told_in_bytes(unit: str) -> None:
    right = (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8")
    wrong = right.replace("network 25 GB/s", f"network 200 {unit}")
    found = errors(wrong)[0]
    assert found.id == "parse.unexpected" and "8 bits" in found.message
    assert text_edits.applied(wrong, text_edits.edits(found.fixes[0], Source("run.moe", wrong), None)) == right
