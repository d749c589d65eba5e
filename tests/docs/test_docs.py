"""The documents keep to the program: their programs check, output is its output, tables are the stdlib's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import make_docs
import pytest
from hypothesis import settings

from moedsl.cli.arguments import COMMANDS
from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.lang import reader
from moedsl.lang.parser import parse
from moedsl.rules.check.run_draft import STATEMENTS
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT

NAMED = re.compile(r"(?<![\w/])((?:examples|stdlib|docs|tests|tools|moedsl|grammar|editors)/[\w./-]+\w)")
FENCE = re.compile(r"^```(?P<kind>[\w-]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[object]:
    return list(_blocks(kind))


def _blocks(kind: str) -> Iterator[object]:
    """The fenced blocks of one kind, named by their file and line."""
    for path in make_docs.documents():
        text = path.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            if found["kind"] == kind:
                line = text.count("\n", 0, found.start()) + 1
                yield pytest.param(found["text"], id=f"{path.name}:{line}")


def test_no_property_has_a_time_limit() -> None:
    """As docs/testing.md says of all tests: Hypothesis's own one is 200 ms for an example, which a busy machine exceeds."""
    assert settings.default is not None and settings.default.deadline is None


PROGRAMS = blocks("moe")


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_program_in_the_documents_checks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert not [d for d in compile_source(Source("docs.moe", text), "check").diagnostics if d.is_error]


@pytest.mark.parametrize("text", rotation.some("documents", PROGRAMS, 4))
def test_a_program_in_the_documents_has_a_plan(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = main(["check", "-e", text])
    assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("text", blocks("moe-fragment"))
def test_a_fragment_in_the_documents_parses(text: str) -> None:
    source, found = reader.from_text(text)
    assert source is not None and not found
    assert not parse(source)[1]


def test_regenerating_leaves_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python tools/make_docs.py` brings the documents up to date: all tables, and a part of what commands print."""
    monkeypatch.chdir(ROOT)
    texts = "".join(path.read_text(encoding="utf-8") for path in make_docs.documents())
    shown = {found["command"]: found["output"] for found in make_docs.BLOCK.finditer(texts)}
    drawn, output_of = {*rotation.some("printed", [*shown], 3)}, make_docs.output_of
    monkeypatch.setattr(make_docs, "output_of", lambda word: output_of(word) if word in drawn else shown[word])
    for path, text in make_docs.regenerated():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run tools/make_docs.py"


def test_the_readme_shows_a_plan() -> None:
    assert "$ moedsl plan examples/qwen3_235b_gb200_128k.moe" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", STATEMENTS)
def test_the_language_page_shows_every_statement(word: str) -> None:
    page = (ROOT / "docs/language.md").read_text(encoding="utf-8")
    shown = "\n".join(found["text"] for found in FENCE.finditer(page) if found["kind"].startswith("moe"))
    assert re.search(rf"(^|[;{{ ]){word}\b", shown, re.MULTILINE), f"no example says `{word}`"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_security_page_says_what_a_command_runs(command: str) -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    reads, runs = (page.partition(f"## What {what}\n")[2].partition("\n## ")[0] for what in ("is only read", "runs"))
    rows = "".join(line.split("|")[1] for line in runs.splitlines() if line.startswith("|"))
    assert re.search(rf"`{command}[` ]", reads + rows)


def test_links_lead_somewhere() -> None:
    for path in make_docs.documents():
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_files_that_the_documents_name_exist() -> None:
    """What is generated from the stdlib cites files of NVIDIA's repositories too, so it is not asked."""
    generated = make_docs.doc_tables.tables()
    for path in (p for p in make_docs.documents() if p.name not in generated):
        for name in NAMED.findall(path.read_text(encoding="utf-8")):
            assert "NAME" in name or (ROOT / name).exists(), f"{path.name} names {name}"
