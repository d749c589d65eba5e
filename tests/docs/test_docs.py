"""The documents keep to the program: their programs check, output is its output, tables are the stdlib's."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import make_docs
import make_trial
import pytest
from hypothesis import settings
from make_trial import Question

from moedsl.bridge.verify.cases import from_plan
from moedsl.cli.arguments import COMMANDS, GROUPS, STARTS
from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.lang import reader
from moedsl.lang.parser import parse
from moedsl.rehearse.prepare import Prepared, prepare
from moedsl.rehearse.result import groups, parameters
from moedsl.rehearse.shrink import shrink
from moedsl.rules.check.run_draft import STATEMENTS
from moedsl.support.source import Source
from tests.editors.needs import program
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled

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


@pytest.mark.parametrize("text", rotation.some("documents", PROGRAMS, 2))
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
    drawn, output_of = {*rotation.some("printed", [*shown], 2)}, make_docs.output_of
    monkeypatch.setattr(make_docs, "output_of", lambda word: output_of(word) if word in drawn else shown[word])
    for path, text in make_docs.regenerated():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run tools/make_docs.py"


def test_the_readme_is_a_screen_to_the_first_plan_and_one_to_the_first_job() -> None:
    parts = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")
    assert [part.split("\n")[0] for part in parts[1:]] == ["The first plan", "The first job", "More"]
    assert all(part.count("\n") <= 24 for part in parts)
    plan, job = parts[1:3]
    assert "    moedsl plan " in plan and plan.count("![") == 1
    assert len(re.findall(r"^    moedsl (\S+)", job, re.MULTILINE)) == 5
    assert {p.name for p in (ROOT / "docs").glob("tutorial_*.md")} == {*re.findall(r"docs/(tutorial_\w+\.md)", job)}


def test_every_command_is_in_one_group_and_a_start_for_each_is_a_command() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert {command.split()[1] for command in STARTS.values()} <= {*COMMANDS}


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


# docs/architecture.md: its picture and its table are made from the code.

ROOMS = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> object:
    pytest.importorskip("grimp", reason="the environment of Python 3.11 has no import-linter")
    monkeypatch.syspath_prepend(str(ROOMS / "tools"))
    sys.modules.pop("make_architecture", None)
    return importlib.import_module("make_architecture")


def test_the_picture_and_the_table_are_those_of_the_code(maker: object) -> None:
    assert maker.picture() == maker.PICTURE.read_text(encoding="utf-8"), "run tools/make_architecture.py"
    assert maker.page() == maker.PAGE.read_text(encoding="utf-8"), "run tools/make_architecture.py"


def test_every_package_is_drawn(maker: object) -> None:
    packages = {p.parent.name for p in (ROOMS / "moedsl").glob("*/__init__.py")}
    drawn = {name for layer in maker.layers() for name in layer}
    assert packages <= drawn
    assert drawn - packages == {"__main__", "api", "compiler"}


# The output of a rehearsal that its page shows: what it says of groups and parameters is what the program counts
# now.

RUN = "examples/models/deepseek_v3_h100.moe"


def test_the_checks_of_the_page_are_those_of_its_run(tmp_path: Path) -> None:
    result = compiled((ROOT / RUN).read_text())
    plan, model = result.plans[0], result.chosen[0].problem.program.model
    device = from_plan(plan)
    assert device is not None
    made = prepare(shrink(plan, model, 8, ""), model.hf, tmp_path / "small", 3, device)
    assert isinstance(made, Prepared)
    shown = " ".join((ROOT / "docs" / "rehearse.md").read_text().partition(f"$ moedsl rehearse {RUN}\n")[2].split())
    assert groups(made, ()).says in shown
    assert parameters(made, ()).says in shown


# docs/trial.md is what a new user sees: the questions of docs/questions.md in a terminal of 80 columns, recorded again.

PAGE = make_trial.PAGE.read_text(encoding="utf-8")
QUESTIONS = make_trial.questions()
WORDS = ("262144", "64 GB200", "JSONL", "official recipe", "FP8", "DeepEP", "256k")
"""What the questions of users are about; each is in the table once."""


def test_the_page_answers_each_question_with_few_commands() -> None:
    assert [sum(w in q.asked for q in QUESTIONS) for w in WORDS] == [1] * len(WORDS) == [1] * len(QUESTIONS)
    assert all(1 <= len(q.typed) <= make_trial.MOST_COMMANDS for q in QUESTIONS)


def test_the_page_has_these_questions_and_no_others() -> None:
    assert [line for line in PAGE.splitlines() if line.startswith(("## ", "$ "))] == [
        line for q in QUESTIONS for line in (f'## "{q.asked}"', *(f"$ {c}" for c in q.typed))
    ]


@pytest.mark.parametrize("question", rotation.some("trial", QUESTIONS, 1), ids=lambda q: q.asked)
def test_the_record_is_what_the_terminal_shows(question: Question) -> None:
    program("tmux", "tmux")
    screens = make_trial.record(question)
    assert make_trial.section(question, screens) in PAGE, "run tools/make_trial.py"


def test_the_terminal_breaks_no_line() -> None:
    """A word that ends at the last column would go on in the next line."""
    shown = [line for block in PAGE.split("```console\n")[1:] for line in block.split("```")[0].splitlines()[1:]]
    assert max(map(len, shown)) <= make_trial.COLUMNS and not [a for a in shown if "error[" in a]
