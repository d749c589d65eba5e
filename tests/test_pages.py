"""Every diagnostic that the source can make has a page, and no page is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.diagnostics.pages import PAGES

SOURCE = Path(__file__).parents[1] / "moedsl"
STAGES = "calibrate|explain|launch|parse|read|check|solve|plan|emit|verify|rehearse|preflight|results|lint|diff|import|internal"
BUILT = {"check.unknown_model", "check.unknown_hardware"}
"""Ids that the source puts together: f"check.unknown_{kind}"."""
NOT_IDS = {"launch.py", "plan.json", "preflight.py", "preflight.json"}


def ids_in_source() -> set[str]:
    text = "\n".join(p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py"))
    return set(re.findall(rf'"((?:{STAGES})\.[a-z_]+)"', text)) - NOT_IDS | BUILT


def test_ids_put_together_are_all_known() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in SOURCE.rglob("*.py"))
    assert set(re.findall(rf'f"((?:{STAGES})\.[^"]*)"', text)) == {"check.unknown_{kind}"}


def test_every_diagnostic_has_a_page() -> None:
    assert ids_in_source() - set(PAGES) == set()


def test_no_page_is_left_over() -> None:
    assert set(PAGES) - ids_in_source() == set()


@pytest.mark.parametrize("id", sorted(PAGES))
def test_explain_prints_the_page(id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", id]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"diagnostic {id}\n")
    assert [line.strip() for line in out.splitlines()[1:]] == [line.strip() for line in PAGES[id].splitlines()]


@pytest.mark.parametrize("id", sorted(PAGES))
def test_a_page_is_short_and_says_something(id: str) -> None:
    assert 40 < len(PAGES[id]) < 800, "two or three sentences and an example"
