"""What the command line prints shows hidden characters and sends none to the terminal."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import moedsl
from moedsl.cli import console, terminal
from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.planner.report import page
from moedsl.support.render import PAINT
from moedsl.support.source import Source
from moedsl.support.text import HIDDEN, visible
from tests.helpers import rotation
from tests.helpers.paths import ROOT

EVIL = "\x1b]52;c;ZXZpbA==\x07 \x9d8;; \u202eemag\u2066 \x7f \u2028\u202f\u200b\U000e0041 \x1b[1;36mgood\x1b[0m"
"""Set the clipboard, start a link with an 8-bit control, reorder, delete, end a line, look like a space or like nothing,
have the colours of a diagnostic."""
RUN = f"""qwen3_30b_a3b; h100 x 16
data "{EVIL}"
set logger.wandb_exp_name = "{EVIL}"
rules house {{
  prefer one: tp == 1 because "{EVIL}" cite ours "{EVIL}"
  env HOUSE = "{EVIL}" because "{EVIL}" cite ours "{EVIL}"
}}
"""
COMMANDS = {
    "plan": ["plan"],
    "ladder": ["plan", "--ladder"],
    "check": ["check"],
    "explain": ["explain", "tp", "HOUSE", "data"],
    "what-if": ["what-if"],
    "launch": ["run", "--dryrun"],
    "json": ["plan", "--json"],
    "stage": ["plan", "--stop-after", "check"],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / f"a{EVIL[:1]}{EVIL[20:21]}\u202e.moe"
    made.write_text(RUN, encoding="utf-8")
    return made


SHOWN = [(name, stream) for name in COMMANDS for stream in (io.StringIO, Terminal)]


@pytest.mark.parametrize(("name", "stream"), rotation.one_of_each("shown", SHOWN, lambda case: case[0]))
def test_no_string_of_a_program_reaches_the_terminal(
    name: str, stream: type[io.StringIO], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = stream(), stream()
    monkeypatch.setattr(console, "QUIET_FOR", float("inf"))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main([COMMANDS[name][0], str(file), *COMMANDS[name][1:]]) == 0
    said = out.getvalue() + err.getvalue()
    assert not HIDDEN.search(re.sub(PAINT, "", said)) and "\x1b[1;36mgood" not in said
    assert "<U+202E>" in said


def test_json_reads_back_as_it_was(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["env"]["HOUSE"] == EVIL


@pytest.mark.parametrize("words", [["diagnose"], ["results"], ["diff", "-e", RUN], ["lint"], ["verify"], ["import"]])
def test_a_file_and_its_name(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{EVIL.replace('/', '')}\udce9.log"
    path.write_text(f"{EVIL}\nRuntimeError: NCCL \r{EVIL} error: CUDA out of memory. Tried to allocate 2 GiB{EVIL}\n")
    main([words[0], str(path), *words[1:]])
    said = "".join(capsys.readouterr())
    assert "<U+202E>" in said
    assert not HIDDEN.search(said)


def test_a_formatted_file_is_unchanged_but_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'qwen3_30b_a3b\nh100 x 16\ndata "\u202e"\n'
    for out, expected in ((sys.stdout, text), (Terminal(), visible(text))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["fmt", "-"]) == 0
        assert (out.getvalue() if isinstance(out, Terminal) else capsys.readouterr().out) == expected


@pytest.mark.parametrize("command", ["check", "plan", "compile", "explain"])
@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_user_who_wants_no_colours_gets_none(
    monkeypatch: pytest.MonkeyPatch, command: str, variable: str, value: str
) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv(variable, value)
    main([command, "-e", "qwen3_30b_a3b; h100 x 16; pin tq=1"])
    assert "error[check.unknown_axis]" in err.getvalue() and "\x1b" not in err.getvalue()


def test_colours_of_diagnostics_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Terminal()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["check", "-e", f'qwen3_30b_a3b; h100 x 16; data "{EVIL}"; pin tq=1'])
    assert "\x1b[1;31merror[check.unknown_axis]\x1b[0m" in err.getvalue()
    assert "\x1b]" not in err.getvalue()


LONG = "qwen3_30b_a3b; gb200 x 64; seq 4k; throughput first; routing balanced; risk oom; pin dispatcher=deepep"


@pytest.mark.parametrize(
    "words",
    rotation.some("no word broken",
    [["models"], ["hardware"], ["explain", "TIGHT", "std.dispatch.deepep_gpu"], ["what-if", "-e", "olmoe_7b; h100 x 2"],
     ["plan", "--full", "-e", "olmoe_7b; h100 x 2"], ["plan", "--top", "2", "-e", "olmoe_7b; h100 x 2"],
     ["check", "-e", LONG]], 3),
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_terminal_breaks_no_word(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no terminal is as wide as ever, and has the same words."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(console, "QUIET_FOR", float("inf"))
    said = []
    for stream in (io.StringIO, Terminal):
        monkeypatch.setattr(sys, "stdout", shown := stream())
        monkeypatch.setattr(sys, "stderr", shown)
        main(words)
        said.append(shown.getvalue())
    wide, narrow = said
    assert max(map(len, wide.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    if words[0] != "check":  # a long line of a program is cut around its carets
        assert narrow.split() == wide.split()


def test_carets_point_at_their_words_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    assert main(["check", "-e", LONG]) == 1
    lines = err.getvalue().splitlines()
    at = next(i for i, line in enumerate(lines) if "^^^" in line)
    assert lines[at - 1][lines[at].index("^") :].startswith("pin dispatcher=deepep"[-lines[at].count("^") :])


def test_a_terminal_that_tells_no_width_has_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pseudo-terminal without a size tells 0 columns."""
    monkeypatch.setenv("COLUMNS", "0")
    assert terminal.folded("word " * 30, Terminal()).splitlines()[0] == ("word " * 20).rstrip()


def test_a_line_of_progress_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_FOR", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    monkeypatch.setattr(sys, "stdout", err)
    assert main(["plan", "-e", "olmoe_7b; h100 x 2"]) == 0
    assert "  solving main\r\x1b[K" in err.getvalue() and "  planning main\r\x1b[K" in err.getvalue()
    assert "\n" not in err.getvalue().split("main: olmoe_7b")[0]
    monkeypatch.setattr(sys, "stderr", err := io.StringIO())
    assert main(["plan", "-e", "olmoe_7b; h100 x 4"]) == 0  # another program: a worker compiles one once
    assert err.getvalue() == ""


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_FOR", -1.0)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    assert main(["check", "-e", "olmoe_7b; h100 x 2"]) == 0
    terminal.clear(out)
    assert "  solving main\n" in err.getvalue() and "\x1b" not in err.getvalue() + out.getvalue()


def test_a_library_prints_plain_text() -> None:
    """NeMo-Run prints through rich, which asks whether its stream is a terminal."""
    rich = pytest.importorskip("rich.console")
    below = Terminal()
    for stream in (below, terminal.Shown(below)):
        rich.Console(file=stream).log("[bold red]Entering[/] [link=https://example.org]it")
        print("\x1b[8;38;5;1mEntering\x1b[0m it", file=stream)
    coloured, shown = below.getvalue().split("\n")[:2], below.getvalue().split("\n")[2:]
    assert all("\x1b" in line for line in coloured)
    assert "Entering it" in shown[0] and shown[1] == "Entering it" and "\\x1b" not in shown[0]


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_the_caller_has_closed(
    closed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `moedsl ... >&-` does: Python has no stream then."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"olmoe_7b\nh100 x 2\n")))
    monkeypatch.setattr(sys, closed, None)
    assert main(["fmt", "-"]) == int(closed == "stdin")
    assert getattr(sys, closed) is None
    assert "internal" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["file", "terminal"])
def test_a_stream_that_is_not_utf_8(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'olmoe_7b\nh100 x 2\ndata "é"\n'
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(out, "isatty", lambda: kind == "terminal")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["fmt", "-"]) == 0
    out.flush()
    said = out.buffer.getvalue()  # type: ignore[attr-defined]
    assert said == (text.encode() if kind == "file" else text.replace("é", r"\xe9").encode())


def test_streams_are_those_of_the_caller_again() -> None:
    before = sys.stdout, sys.stderr
    main(["schema"])
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("words", [["models"], ["--help"], ["plan", "-e", "qwen3_30b_a3b; h100 x 16", "--json"]])
def test_a_full_disk_is_a_message(words: list[str]) -> None:
    command = [sys.executable, "-m", "moedsl.cli.main", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        1,
        ["the output cannot be written: No space left on device"],
    )
    assert "Traceback" not in done.stderr


def test_pages_and_notebooks() -> None:
    made: Any = moedsl.plan(RUN)
    explained = str(moedsl.explain(RUN, "tp"))
    for shown in (page(made.plans), made._repr_html_(), str(made), made.messages, explained):
        assert not HIDDEN.search(shown)
    assert "&lt;U+202E&gt;" in page(made.plans)


def test_check_warns_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "used.moe").write_text("profile p { seq 4k } # \u202e", encoding="utf-8")
    source = Source(str(tmp_path / "run.moe"), f'use "used.moe"\n{RUN}')
    found = [d for d in compile_source(source, "check").diagnostics if d.id == "check.hidden_text"]
    assert [d.labels[0].span.file for d in found] == [source.name, str(tmp_path / "used.moe")]
    assert "\\x1b" in found[0].message and found[0].help
    assert not [d for d in compile_source(Source("run.moe", "qwen3_30b_a3b; h100 x 16\n\tseq 4k # é 😀")).diagnostics
                if d.id == "check.hidden_text"]  # fmt: skip
