"""Show code lenses above each run: the solver's result, which opens the plan, and the report."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types

from moedsl.lsp import edits
from moedsl.lsp.document import Document
from moedsl.lsp.legend import SHOW_PLAN, SHOW_REPORT


def answer(document: Document, _: types.CodeLensParams) -> list[types.CodeLens]:
    """Make two lenses for each solved run: ``256 gb200, 13.5 s a step, FITS`` and ``report``."""
    return [lens for run, made in edits.of_runs(document).items() for lens in _lenses(document, run, made)]


def _lenses(document: Document, run: str, made: list[edits.Plan]) -> Iterator[types.CodeLens]:
    place = document.lines.span(edits.head(document, run))
    yield types.CodeLens(place, types.Command(title(made), SHOW_PLAN, arguments=[document.uri, run]))
    yield types.CodeLens(place, types.Command("report", SHOW_REPORT, arguments=[document.uri, run]))


def title(made: list[edits.Plan]) -> str:
    """Write the first plan of a run in a few words, and the number of further ones."""
    first, e = made[0], made[0].estimate
    text = f"{first.gpus} {first.hardware}, {_seconds(e.step_time_s)} s a step, {e.memory.verdict}"
    return text + (f" ({len(made)} plans)" if len(made) > 1 else "")


def _seconds(s: float) -> str:
    return f"{s:.1f}" if s >= 1 else f"{s:.2f}"
