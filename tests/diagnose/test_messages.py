"""The symptoms match the real messages: those of the installed wheels, and those that the real Bridge raises."""

import json
import re
from functools import cache
from pathlib import Path

import hypothesis.strategies as st
import pytest
from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose.edit import edits
from moedsl.diagnose.scan import Symptom
from moedsl.support.source import Source
from tests.helpers import bridge_process, rotation
from tests.helpers.diagnose_cases import HEALTHY, REFUSED, SEEN, TABLE
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.oracles.wheel_messages import near, path_of, words_in

ALL = scan.symptoms(load_stdlib())
NAMED = {s.rule.name: s for s in ALL}
CODE = re.compile(r"(core|bridge|te) ([\w/]+\.py):(\d+)")
PROSE = ("flex_not_applied", "fsdp_mesh", "learning_rates", "nvrx_missing")
"""Cite code that prints nothing itself: what should have been called, what einops complains of, a bare assertion, an
import."""

every = pytest.mark.parametrize("s", ALL, ids=lambda s: s.rule.id)


def found_in(text: str) -> list[str]:
    report = scan.diagnose("log", [text.encode()], ALL)
    return [s.rule.name for s in report.sightings]


def code_of(s: Symptom) -> list[tuple[str, str, int]]:
    """(whose, file, line) of each line of NVIDIA's code that a symptom cites."""
    matches = [CODE.fullmatch(c) for c in s.rule.cites]
    return [(m[1], m[2], int(m[3])) for m in matches if m and s.rule.name not in PROSE]


CITED = [pytest.param(s, *c, id=f"{s.rule.name}-{c[1]}:{c[2]}") for s in ALL for c in code_of(s)]
LIBRARY = re.compile(r"(torch|cuda|nccl|hub) (\S+)")
LIBRARIES = [(s.rule.name, m[1], m[2]) for s in ALL for c in s.rule.cites if (m := LIBRARY.fullmatch(c))]


@pytest.mark.bridge
@pytest.mark.parametrize(("s", "whose", "file", "line"), CITED)
def test_the_cited_code_prints_what_is_searched(s: Symptom, whose: str, file: str, line: int) -> None:
    texts = near(whose, file, line)
    joined = [re.sub(r"\s+", " ", t) for t in texts]
    assert any(s.pattern.search(t) for t in [*texts, *joined]), texts


FORMATS = [
    ("nccl", "lib/libnccl.so.2", "Cuda failure %d '%s'", "Cuda failure 2 'out of memory'", "nccl_memory"),
    ("torch", "lib/libtorch_cuda.so", "SeqNum=", SEEN["collective_timeout"], "collective_timeout"),
    ("torch", "lib/libtorch_cuda.so", "PG GUID ", SEEN["collective_timeout"], "collective_timeout"),
]
"""Whose library, the format of a message in it, a line and what it shows."""


@cache
def held(whose: str, file: str) -> set[bytes]:
    """Of all words that these tests look for in a library, those that it has: it is read once."""
    words = {w for name, *cited in LIBRARIES if cited == [whose, file] for w in literals(NAMED[name].text)}
    return words_in(path_of(whose, file), words | {f[2].encode() for f in FORMATS if f[:2] == (whose, file)})


@pytest.mark.bridge
@pytest.mark.parametrize(("name", "whose", "file"), LIBRARIES)
def test_the_cited_library_holds_the_words(name: str, whose: str, file: str) -> None:
    assert held(whose, file) & literals(NAMED[name].text)


def literals(pattern: str) -> set[bytes]:
    """The longest literal text of each alternative of an expression."""
    return {max(re.split(r"\\[dswb]|\[.*?\]|[\\^$.*+?(){}]", part), key=len).encode() for part in pattern.split("|")}


@pytest.mark.bridge
@pytest.mark.parametrize(("whose", "file", "format_", "line", "name"), FORMATS)
def test_a_library_holds_the_format_of_a_message(whose: str, file: str, format_: str, line: str, name: str) -> None:
    assert format_.encode() in held(whose, file)
    assert found_in(line) == [name]


PUBLISHED = table_of("diagnose", "messages: published")  # fmt: skip
"""Words of published texts, which no installed file holds; docs/diagnose.md lists them."""


def test_the_document_lists_the_words_that_no_installed_file_holds() -> None:
    text = (ROOT / "docs/diagnose.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith("| `xid`"))
    assert {*re.findall(r"`(\w+)`", row.split("|")[1])} == {*PUBLISHED}
    held = {*REFUSED.values(), *(name for name, *_ in LIBRARIES)}
    assert {n for n in PUBLISHED if n in held or code_of(NAMED[n])} == set()
    others = [n for n in SEEN if n not in PUBLISHED and n not in held and not code_of(NAMED[n])]
    assert sorted(n for n in others if not n.startswith("preflight_")) == sorted(
        [
            *PROSE[:1],
            "gradient_norm",
            "graph_packed",
            "learning_rates",
            "nccl_memory",
            "nvrx_missing",
            "skipped",
            "slower",
        ]
    )


def test_every_symptom_is_held_against_something_real() -> None:
    held = {*SEEN, *REFUSED.values(), *(name for name, *_ in LIBRARIES)}
    assert [s.rule.name for s in ALL if not code_of(s) and s.rule.name not in held] == []


@pytest.mark.parametrize("name", SEEN)
def test_what_no_wheel_holds_is_seen(name: str) -> None:
    assert name in found_in(SEEN[name])


@pytest.mark.parametrize("end", ["idx", "bin"])
def test_indexed_data_that_is_opened_without_a_check(end: str, tmp_path: Path) -> None:
    """As `fast_cache_load` does (core datasets/indexed_dataset.py:260)."""
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / f"corpus.{end}").open("rb")
    assert found_in(str(missing.value)) == ["data_missing"]
    assert found_in(str(missing.value).replace(f".{end}", ".json")) == []


CHECKPOINT = """
import json, torch
from torch.distributed.checkpoint.api import CheckpointException
try:
    torch.nn.Linear(2, 2).load_state_dict({"other": torch.zeros(1), "weight": torch.zeros(3, 3)})
except RuntimeError as refused:
    print(json.dumps([str(refused), str(CheckpointException("read", {3: (OSError("cut"), None)}))]))
"""


@pytest.mark.bridge
def test_what_torch_says_of_a_checkpoint() -> None:
    refused, cut = json.loads(bridge_process.run("-c", CHECKPOINT).stdout)
    lines = refused.splitlines()
    assert len(lines) == 4 and all(found_in(line) == ["state_dict_keys"] for line in lines)
    assert found_in(cut) == ["checkpoint_exception"]


@pytest.mark.parametrize("line", HEALTHY)
def test_a_healthy_line_shows_nothing(line: str) -> None:
    assert found_in(line) == []


def test_every_row_of_the_failure_table() -> None:
    assert all("seed expert-parallel overlap, failure table" in NAMED[row].rule.cites for row in TABLE)


@every
def test_a_symptom_says_cause_confirmation_and_fix(s: Symptom) -> None:
    assert s.rule.because and s.rule.confirm and s.rule.fix and s.rule.cites


@every
def test_every_edit_is_a_statement_that_checks(s: Symptom) -> None:
    """Each names axes, words and fields that exist."""
    for edit in edits(s.rule.fix):
        result = compile_source(Source("run.moe", f"qwen3_vl_30b_a3b; h100 x 16\n{edit}\n"), "check")
        assert not result.failed, (edit, result.diagnostics)


@every
@settings(
    max_examples=rotation.examples(20),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
)
@given(data=st.data())
def test_the_filter_spares_no_line_that_matches(s: Symptom, data: st.DataObject) -> None:
    log = data.draw(st.from_regex(s.text)).encode(errors="replace")
    assume(b"\x1b" not in log)
    lines = [line.decode(errors="replace").strip("\r\x00 ") for line in log.split(b"\n")]
    found = scan.diagnose("log", [log], ALL).sightings
    assert (s.rule.id in [f.rule.id for f in found]) == any(s.pattern.search(line) for line in lines)


def test_an_expression_without_literal_text_is_tried_on_every_line() -> None:
    known = [
        scan.symptom(evolve(ALL[0].rule, expr=evolve(ALL[0].rule.expr, value=text))) for text in ("^\\d+$", "(?i)ALPHA")
    ]
    report = scan.diagnose("log", [b"one\n22\nalpha\n4\n"], known[:1]), scan.diagnose("log", [b"x\nalpha\n"], known[1:])
    assert [(s.line, s.count) for r in report for s in r.sightings] == [(2, 2), (2, 1)]
