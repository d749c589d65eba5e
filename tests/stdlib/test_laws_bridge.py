"""The laws against the real Megatron Bridge: what it refuses they refuse, by name, and what it accepts they accept."""

from __future__ import annotations

import pytest

from moedsl.bridge.verify.cases import Report
from tests.helpers.layouts import broken
from tests.helpers.rule_cases import ALSO, ASKED, CASES, EVERY

pytestmark = pytest.mark.bridge


@pytest.mark.parametrize("name", EVERY)
def test_the_law_that_a_layout_breaks(name: str) -> None:
    case = EVERY[name]
    expected = ALSO.get(name) or ([case.law] if case.law else [])
    assert broken(case.layout, case.facts) == sorted(expected, key=expected.index)


@pytest.mark.parametrize("name", ASKED)
def test_bridge_refuses_what_the_laws_refuse(name: str, law_reports: dict[str, Report]) -> None:
    report = law_reports[name]
    assert report.verdict != "failed", report.message
    expected = "refused" if name in CASES and CASES[name].law else "accepted"
    assert report.verdict == expected, [(r.where, r.question, r.message) for r in report.refusals]
