"""A failing rank's log through `moedsl diagnose`."""

from __future__ import annotations

from typing import Any

from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose import text as diagnose_text
from moedsl.rehearse.launch import Outcome
from moedsl.rehearse.prepare import Prepared


def diagnosis(prepared: Prepared, outcome: Outcome) -> dict[str, Any] | None:
    """What the log of the rank that failed says, as `moedsl diagnose --json`; None where no rank failed."""
    if outcome.failure is None or outcome.failure.rank is None:
        return None
    log = prepared.folder / f"rank_{outcome.failure.rank}.log"
    if not log.exists():
        return None
    with log.open("rb") as stream:
        report = scan.diagnose(log.name, scan.blocks(stream), scan.symptoms(load_stdlib()))
    return diagnose_text.to_json(report, {})


def text(data: dict[str, Any]) -> str:
    """The same as text."""
    return diagnose_text.text(data)
