"""`moedsl explain` knows the words that a plan's page prints."""

from __future__ import annotations

import re

import pytest

from moedsl.cli.main import main
from moedsl.cli.reference.page import page, words
from moedsl.compiler import load_stdlib
from moedsl.cost import estimate
from moedsl.facts import axes
from moedsl.planner.text import KINDS, SECTIONS
from tests.helpers import rotation
from tests.helpers.paths import ROOT


@pytest.mark.parametrize("word", rotation.some("words of plans", [*words()], 12))
def test_a_word_has_an_entry(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word.upper()]) == 0
    assert f"{word.upper()} in a plan" in capsys.readouterr().out


def test_every_verdict_and_origin_is_a_word() -> None:
    verdicts = (estimate.FITS, estimate.TIGHT, estimate.NOT)
    assert {*map(str.casefold, verdicts), "pinned", "chosen", "defaulted", "derived"} <= words().keys()


def test_every_label_of_a_page_is_a_word() -> None:
    """The pages that the documents show."""
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    label = re.compile(r"^([A-Za-z][a-zA-Z ]{2,13})(?=  +\S| \[[#.])|^(Decisions),", re.MULTILINE)
    shown = "\n".join(
        block for d in documents for block in re.findall(r"^FITS  .*?^Next  ", d.read_text("utf-8"), re.M | re.S)
    )
    labels = {(a or b).strip().casefold() for a, b in label.findall(shown)}
    assert len(labels) > 18 and labels <= words().keys(), labels - words().keys()


def test_a_misspelt_word_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TIHGT"]) == 1
    assert "did you mean `tight`?" in capsys.readouterr().err


def test_sections_parts_of_compute_and_values_of_axes_have_a_page() -> None:
    library = load_stdlib()
    compute = [KINDS[k] for k in ("matrix", "attention", "scan", "passes", "vision", "optimizer")]
    printed = [
        *(s.replace("-", " ") for s in SECTIONS),
        *compute,
        *(w for a in axes.AXES for w in a.words),
        "Walls",
        "Next best",
        "fingerprint",
    ]
    assert not [word for word in printed if not page(word, library)]


def test_words_of_a_page_are_explained_with_a_file_as_without(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["rests on", "Faster", "FITS", "Goodput", "batch", "passes over memory", "std.mesh.heads"]
    assert main(["explain", *shown]) == 0
    alone = capsys.readouterr().out
    assert main(["explain", "-e", "qwen3_30b_a3b; seq 4k; run x { h100 x 16 }; run y { h100 x 32 }", *shown[4:]]) == 0
    assert all(text in alone for text in capsys.readouterr().out.split("\n\n"))
    assert main(["explain", "-e", "qwen3_30b_a3b; h100 x 16", *shown[:3], "tp"]) == 0
    said = capsys.readouterr().out
    assert "FITS in a plan" in said and "tp = 1" in said
    assert main(["explain", "-e", "qwen3_30b_a3b; h100 x 16", "tensr"]) == 1
