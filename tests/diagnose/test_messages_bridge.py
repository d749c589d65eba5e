"""What the real Megatron Bridge says of each layout that it refuses, and the symptom that `moedsl diagnose` makes of it."""

import pytest

from moedsl.bridge.verify.cases import Report
from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from tests.helpers.diagnose_cases import REFUSED

pytestmark = pytest.mark.bridge


def test_what_bridge_refuses_is_recognised(law_reports: dict[str, Report]) -> None:
    """The layouts of this run that break the laws, judged by the real Bridge: its own words."""
    symptoms = scan.symptoms(load_stdlib())

    def found_in(text: str) -> list[str]:
        return [s.rule.name for s in scan.diagnose("log", [text.encode()], symptoms).sightings]

    said = {n: "\n".join(r.message for r in law_reports[n].refusals) for n in REFUSED if n in law_reports}
    missed = {n: (text, found_in(text)) for n, text in said.items() if REFUSED[n] not in found_in(text)}
    assert not missed
