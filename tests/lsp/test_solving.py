"""The solver's thread ends a search that takes too long, or whose text has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from moedsl.lsp import solving
from moedsl.lsp.document import Document, Solved
from moedsl.lsp.workspace import Workspace

SLOW = "kimi_k2; h100 x 64; require step_time < 1; sweep batch in 64, 128, 256, 512, 1024, 2048\n"
"""No layout is as fast, and each run needs some tenths of a second of a core to say so."""


@pytest.fixture
def document(tmp_path: Path) -> Document:
    files, uri = Workspace(), (tmp_path / "slow.moe").as_uri()
    files.open(uri, 1, SLOW)
    document = files.document(uri)
    assert document is not None
    return document


def solved(job: solving.Job, document: Document, meanwhile: Callable[[], None] = lambda: None) -> Solved | None:
    found: list[Solved | None] = []
    thread = threading.Thread(target=lambda: found.append(solving.solved(job, document)))
    thread.start()
    meanwhile()
    thread.join()
    return found[0]


def test_what_takes_too_long_is_a_warning(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "SECONDS", 0.1)
    found = solved(solving.Job(), document)
    assert found is not None and not found.plans
    (d,) = found.diagnostics
    assert (d.id, d.severity) == ("solve.stopped", "warning") and "`moedsl plan FILE --run NAME`" in d.help[0]
    assert SLOW[d.labels[0].span.start : d.labels[0].span.end] == "h100 x 64"


def test_a_new_text_ends_the_search_at_once(document: Document) -> None:
    job, start = solving.Job(), time.process_time()

    def typed() -> None:
        time.sleep(0.1)
        job.end(void=True)

    solved(job, document, typed)
    assert time.process_time() - start < 1.5
