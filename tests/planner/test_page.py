"""The page of a plan is short and narrow and loses no number; several runs are a table first."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli import console
from moedsl.cli.arguments import SECTIONS
from moedsl.cli.main import main
from moedsl.cli.printing import after_plan
from moedsl.cli.reference.page import page as explained
from moedsl.compiler import compile_source, load_stdlib
from moedsl.planner import text
from moedsl.queries.pages import page
from moedsl.support.source import Source
from tests.cli.test_terminal import Terminal
from tests.helpers import programs, rotation
from tests.helpers.paths import EXAMPLES, ROOT, example_path

SHOWN = (
    "qwen3_235b_gb200_128k", "vlm_bring_up", "sft", "lora", "long_qwen3_235b_128k", "deepseek_v3_h100", "several_runs",
    "overlap_ab", "sweep_micro_batch", "workflow_four_phases",
)  # fmt: skip
RUN = "qwen3_30b_a3b; h100 x 16"
SEVERAL = str(ROOT / "examples/several_runs.moe")
COMMAND = re.compile(r"^(Next)? +moedsl .*$", re.MULTILINE)
Said = Callable[..., str]
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


class Page(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """What `moedsl plan` prints at a width; on stderr nothing."""

    def run(*words: str, width: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(console, "QUIET_FOR", float("inf"))
        monkeypatch.chdir(ROOT)
        assert main(["plan", *words]) == 0
        out, err = capsys.readouterr()
        assert not err
        return out

    return run


def of(example: Path, width: int) -> str:
    result = programs.example(example)
    return page(result, after_plan(result.source.name, result.plans), width)


OTHERS = [example for example in EXAMPLES if example.stem not in SHOWN]


@pytest.mark.parametrize(
    "example", [example_path(name) for name in SHOWN] + rotation.some("pages", OTHERS, 1), ids=lambda p: p.stem
)
def test_a_page_is_short_and_narrow_and_loses_no_number(example: Path) -> None:
    result = programs.example(example)
    wide, narrow = of(example, 100), of(example, 80)
    assert len(wide.splitlines()) <= text.MOST_LINES == 30 and len(narrow.splitlines()) <= 48
    assert max(map(len, wide.splitlines())) <= 100
    assert NUMBER.findall(COMMAND.sub("", wide)) == NUMBER.findall(COMMAND.sub("", narrow))
    if not any(p.isolation for p in result.plans):  # whose comparison is a paragraph of 100 columns
        assert max(map(len, COMMAND.sub("", narrow).splitlines())) <= 80


@pytest.mark.parametrize("example", rotation.some("brief pages", EXAMPLES, 2), ids=lambda p: p.stem)
def test_what_a_page_does_not_print_is_not_searched_for(example: Path, said: Said) -> None:
    """The command makes a plan without the prices of advice and without the twin at 4K; the page is the same."""
    name = example.relative_to(ROOT).as_posix()
    source = Source(name, example.read_text(encoding="utf-8"))
    brief = compile_source(source, asks="page")
    assert said(name) == of(example, 100) == page(brief, after_plan(name, brief.plans), 100)
    assert not any(p.advice or p.against_4k for p in brief.plans)


def test_a_faster_recipe_of_nvidia_that_fits_has_ways_to_it(said: Said) -> None:
    """`throughput first` finds a layout that is faster still, and then nothing is left to say."""
    run = "qwen3_30b_a3b; h100 x 8; task sft"
    ways = "`--like` takes it; `throughput first` looks for the fastest"
    assert ways in " ".join(said("-e", run).split())
    assert "takes it" not in said("-e", f"{run}; throughput first")


LABELS = re.compile(r"^([A-Z][\w ]*?|rests on|[a-z]+)(?=  +\S| \[)", re.MULTILINE)
SHARES = re.compile(r"(?<=[:,;\]%] )([a-z][a-z ]*?) [\d.]+%")
TRAINS = ("lr", "warm-up", "cosine", "adam", "weight decay", "microbatch", "replica", "TFLOPS", "9 of 10 runs")


@pytest.mark.parametrize("name", SHOWN[:6])
def test_explain_knows_every_word_of_a_page(name: str) -> None:
    lines = of(example_path(name), 200)
    drawn = "".join(line for line in lines.splitlines() if " [#" in line)
    words = {*LABELS.findall(lines), *SHARES.findall(drawn), *TRAINS} - {"main"}
    assert {"Memory", "Training", "communication", "expert"} <= words
    assert {word for word in words if explained(word, load_stdlib()) is None} == set()


@pytest.mark.parametrize("name", SHOWN)
def test_pages(name: str, snapshot: SnapshotAssertion) -> None:
    assert of(example_path(name), 100) == snapshot(extension_class=Page)


def test_the_options_name_every_section() -> None:
    assert tuple(text.SECTIONS) == SECTIONS


def test_a_section_is_as_in_the_whole_plan(said: Said) -> None:
    whole = said("-e", RUN, "--full")
    for name in ("memory", "decisions", "covers"):
        assert said("-e", RUN, "--section", name) in whole
    assert said("-e", RUN, "--section", "adapter") == "the plan of main has no section `adapter`\n"


def test_one_of_several_runs(said: Said, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(SEVERAL, "--run", "tuned").startswith("tuned: ")
    assert main(["plan", SEVERAL, "--run", "tunex"]) == 1
    assert "did you mean `tuned`?" in capsys.readouterr().err
    assert said(SEVERAL, "--section", "meshes").count("Meshes") == 3


def test_a_warning_is_said_once(said: Said) -> None:
    text = said("examples/long_context/long_qwen3_235b_128k.moe")
    assert text == of(ROOT / "examples/long_context/long_qwen3_235b_128k.moe", 100)
    assert text.count("no layout of this run FITS") == 1
    assert "Warning " in text


@pytest.mark.parametrize(("colours", "expected"), [("", True), ("1", False)])
def test_colours(colours: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", colours)
    assert main(["plan", "-e", RUN]) == 0
    assert ("\x1b[1;32mFITS\x1b[0m" in out.getvalue()) == expected
    assert ("\x1b" in out.getvalue()) == expected


def test_a_batch_of_one_sequence_is_counted_as_one() -> None:
    run = 'qwen3_30b_a3b; h200 x 1; batch 1; task peft; set checkpoint.pretrained_checkpoint = "/c"'
    said = text.batch_text(programs.plan_of(run))
    assert said.startswith("1 sequence (") and said.endswith("1 microbatch of 1 on 1 replica")
