"""The values that completion calls legal, against a search for each of them alone."""

import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from attrs import evolve

from moedsl.facts import axes
from moedsl.lang import reader
from moedsl.lsp import analysis, checking, legal
from moedsl.lsp.document import Document, Solved
from moedsl.lsp.workspace import Workspace
from moedsl.rules.check.program import Program
from moedsl.solver.conflicts import satisfiable, shown
from moedsl.solver.laws import compile_problem
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import example_path

FILES = ("qwen3_235b_gb200_128k", "deepseek_v3_h100", "vlm_bring_up")
RUNS = [
    *((f"{name}.moe", example_path(name).read_text(encoding="utf-8")) for name in FILES),
    ("pinned.moe", "qwen3_30b_a3b; h100 x 64; seq 32k; pin pp=4 ep=8; require tp * cp >= 4; throughput first\n"),
    ("narrow.moe", "qwen3_30b_a3b; h100 x 8; pin tp=8 dispatcher=deepep; scale first\n"),
]


@cache
def program(name: str, text: str) -> Program:
    found = analysis.analyse(Source(name, text), reader.read)
    return found.programs[0]


def gpus(p: Program) -> int:
    """The run's own, or a number for one that leaves it open."""
    return p.gpus or 16


@cache
def alone(name: str, text: str, axis: str) -> dict[str, bool]:
    """For each value whether a layout obeys all laws at once with it."""
    p = program(name, text)
    problem = lower(evolve(p, pins={a: pin for a, pin in p.pins.items() if a != axis}), gpus(p))
    compiled = compile_problem(problem, {"has_layout": make_cost(problem).has_layout})
    laws = [w for w in compiled.laws if not w.priced]
    known, found = axes.BY_NAME[axis], dict[str, bool]()
    count = {"enum": len(known.words), "flag": 2}.get(known.kind, 0)
    for code in {*problem.domains[axis].tolist(), *range(count)}:
        domains = {**problem.domains, axis: np.array([code])}
        found[shown(known.name, code)] = satisfiable(compiled, domains, laws)
    return found


@pytest.mark.parametrize("wide", rotation.some("wide", [2, legal.WIDE], 1))
@pytest.mark.parametrize(("name", "text"), rotation.some("legal", RUNS, 1), ids=lambda text: text.partition("\n")[0])
def test_values_are_those_of_a_search_for_each(name: str, text: str, wide: int) -> None:
    """Also where so few rows are followed that most values have to be searched alone."""
    p = program(name, text)
    with patch.object(legal, "WIDE", wide):
        for axis in axes.AXES:
            offered = {v.text: v.legal for v in legal.values(p, axis.name, gpus(p), {})}
            assert offered == alone(name, text, axis.name), axis.name


# The solver's thread ends a search that takes too long, or whose text has changed.

SLOW = "kimi_k2; h100 x 64; require step_time < 1; sweep batch in 64, 128, 256, 512, 1024, 2048\n"
"""No layout is as fast, and each run needs some tenths of a second of a core to say so."""


@pytest.fixture
def document(tmp_path: Path) -> Document:
    files, uri = Workspace(), (tmp_path / "slow.moe").as_uri()
    files.open(uri, 1, SLOW)
    document = files.document(uri)
    assert document is not None
    return document


def solved(stop: threading.Event, document: Document, meanwhile: Callable[[], None] = lambda: None) -> Solved | None:
    found: list[Solved | None] = []
    thread = threading.Thread(target=lambda: found.append(checking.solved(stop, document)))
    thread.start()
    meanwhile()
    thread.join()
    return found[0]


def test_what_takes_too_long_is_a_warning(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SECONDS", 0.1)
    found = solved(threading.Event(), document)
    assert found is not None and not found.plans
    (d,) = found.diagnostics
    assert (d.id, d.severity) == ("solve.stopped", "warning") and "`moedsl plan FILE --run NAME`" in d.help[0]
    assert SLOW[d.labels[0].span.start : d.labels[0].span.end] == "h100 x 64"


def test_a_new_text_ends_the_search_at_once(document: Document) -> None:
    stop, start = threading.Event(), time.process_time()

    def typed() -> None:
        time.sleep(0.1)
        stop.set()

    solved(stop, document, typed)
    assert time.process_time() - start < 1.5
