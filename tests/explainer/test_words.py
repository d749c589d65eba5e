"""`moedsl explain` knows the words that a plan's page prints."""

from __future__ import annotations

import re

import pytest

from moedsl.cli.main import main
from moedsl.cost import bounds
from moedsl.reference.words import words
from tests.helpers import rotation
from tests.helpers.paths import ROOT


@pytest.mark.parametrize("word", rotation.some("words of plans", [*words()], 12))
def test_a_word_has_an_entry(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word.upper()]) == 0
    assert f"{word.upper()} in a plan" in capsys.readouterr().out


def test_every_verdict_and_origin_is_a_word() -> None:
    verdicts = (bounds.FITS, bounds.TIGHT, bounds.NOT)
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
