"""`--json` on every command that answers: what it prints is JSON, also where it refuses."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from moedsl.cli.arguments import COMMANDS, Command
from moedsl.cli.main import main
from moedsl.lang.parser import MAX_ERRORS
from tests.helpers.tables import table_of

WITHOUT = {
    "schema": "what it prints is JSON",
    "completion": "what it prints is read by a shell",
    "lsp": "it speaks the protocol of editors",
    "mcp": "it speaks a protocol to an assistant",
    "serve": "its page and its answers are at an address",
}
"""The commands that have no --json, with the reason."""
WRONG = table_of("cli", "json: wrong")
"""A mistake for each command; `models`, `hardware` and `targets` alone take no file."""
NEVER_WRONG = ("models", "hardware", "targets")
RUN = "olmoe_7b\nh100 x 2\nseq 4k\nfit first\n"
MEASURED = {"run": "olmoe_7b; h100 x 8; fit first", "tokens_per_s_per_gpu": 9000}


def _each(commands: Mapping[str, Command], above: str = "") -> Iterator[tuple[str, Command]]:
    for name, command in commands.items():
        yield above + name, command
        yield from _each(command.actions, f"{above}{name} ")


EACH = dict(_each(COMMANDS))
ANSWERS = [name for name, c in EACH.items() if c.arguments]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("there.moe").write_text(RUN, encoding="utf-8")
    Path("runs.jsonl").write_text(json.dumps(MEASURED) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_command_has_it_or_a_reason(name: str) -> None:
    assert any("--json" in words for words, _ in EACH[name].arguments) != (name in WITHOUT)
    assert name in WITHOUT or name in NEVER_WRONG or name in WRONG


@pytest.mark.parametrize("name", WRONG)
def test_a_refusal_is_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WRONG[name].split(), "--json"]) == 1
    out, err = capsys.readouterr()
    assert '"severity": "error"' in out and json.loads(out), err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", table_of("cli", "json: answers"))
def test_an_answer_is_json(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--json"]) == 0
    out, _ = capsys.readouterr()
    made = json.loads(out)
    assert made if isinstance(made, list) else made["version"] == 1
    written = made.get("file") if isinstance(made, dict) else None
    assert written is None or Path(written).exists()


def test_a_log_that_is_followed_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "some_1", "--json", "--follow"]) == 1
    assert "leave out --follow" in capsys.readouterr().err


def test_a_file_that_is_given_up_has_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "run.moe").write_text("= =\n" * (MAX_ERRORS + 1))
    assert main(["plan", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [d["labels"][0].get("line") for d in found] == [*range(1, MAX_ERRORS + 1), MAX_ERRORS]
