"""What a newcomer gets wrong: one error, which names the thing and says what to write."""

import io
import shlex
import subprocess
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest
import shtab

from moedsl.cli.arguments import COMMANDS, SECTIONS
from moedsl.cli.commands.integrations import complete_files
from moedsl.cli.main import main, parser_for
from tests.editors.needs import program
from tests.helpers.tables import table_of

SLIPS = table_of("cli", "slips")


@pytest.mark.parametrize("text", SLIPS)
def test_one_error_and_a_way_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    slug, way_out = SLIPS[text]
    assert main(["check", "-e", text]) == 1
    said = capsys.readouterr().err
    assert said.count("error[") == 1
    first = next(line for line in said.splitlines() if not line.startswith("  "))  # progress is indented
    assert first.startswith(f"error[{slug}]: ")
    assert f"help: {way_out}" in said


HARDWARE = table_of("cli", "hardware")


LACKING = ("memory 80 GB", "tflops bf16=989", "bf16=989", "hbm 3.35 TB/s", "nvlink 450 GB/s", "network 50 GB/s")


@pytest.mark.parametrize("fact", LACKING)
def test_a_machine_that_lacks_a_fact_is_refused(fact: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-e", HARDWARE]) == 0
    assert main(["check", "-e", HARDWARE.replace(fact, "fp8=1979" if fact == "bf16=989" else "")]) == 1
    assert "error[check.missing_fact]" in capsys.readouterr().err


_TEXT = 'qwen3_30b_a3b; h100 x 16; data "/data/it\'s $HOME"'


@pytest.mark.parametrize(
    "words",
    [
        ["-e", f" {_TEXT}\n"],
        ["-e", _TEXT, "--target", "0.5"],
        ["run it.moe", "--like", "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"],
    ],
    ids=["text", "release", "file"],
)
def test_the_command_that_comes_next_is_about_the_same_program(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run it.moe").write_text(_TEXT)
    assert main(["plan", *words]) == 0
    (line,) = (text for text in capsys.readouterr().out.splitlines() if text.startswith("Next"))
    assert main(["plan", *words, "--full"]) == 0
    whole = capsys.readouterr().out
    _, program, action, *typed, option, folder = shlex.split(line.split("  # ")[0])
    assert [program, action, option, folder] == ["moedsl", "compile", "-o", "out"]
    assert main(["plan", *typed, "--full"]) == 0
    assert capsys.readouterr().out == whole


def test_a_text_of_several_lines_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-e", "qwen3_30b_a3b\nh100 x 16"]) == 0
    assert "moedsl plan FILE --full" in capsys.readouterr().out


def test_the_help_of_each_command_and_action_ends_with_examples_that_can_be_typed() -> None:
    asked = [[name, *action] for name, c in COMMANDS.items() for action in ([], *([a] for a in c.actions))]
    for words in asked:
        shown = io.StringIO()
        with redirect_stdout(shown), pytest.raises(SystemExit):
            parser_for(words[0]).parse_args([*words, "--help"])
        examples = shown.getvalue().split("\nexamples:\n")[1].splitlines()
        assert examples, words
        for line in examples:
            typed = shlex.split(line.partition(" > ")[0])
            typed = shlex.split(typed[1].strip("$()")) if typed[0] == "eval" else typed
            assert typed[: 1 + len(words)] == ["moedsl", *words]
            parser_for(words[0]).parse_args(typed[1:])


# Shell completion is made of the real parser's commands, options and words.

ASK = """
cd /
COMP_WORDS=({words} '{half}')
COMP_CWORD={at}
COMP_LINE="${{COMP_WORDS[*]}}"
COMPREPLY=()
_shtab_moedsl moedsl '{half}'
echo "=" "${{COMPREPLY[@]}}"
"""
OPTIONS = {
    name: {w for words, _ in command.arguments for w in words if w.startswith("--")} | {"--help"}
    for name, command in COMMANDS.items()
}


@cache
def script(shell: str) -> str:
    parser = parser_for("")
    complete_files(parser)
    return shtab.complete(parser, shell)


def completed(*asked: tuple[str, str]) -> list[list[str]]:
    """What bash offers for the word that is begun after some words, for each pair of these."""
    each = [ASK.format(words=words, at=len(words.split()), half=half) for words, half in asked]
    text = "\n".join([script("bash"), *each])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("=")]


def test_bash_completes_commands_words_and_files() -> None:
    every, one, sections, section, stages, files, values = completed(
        ("moedsl", ""), ("moedsl", "pl"), ("moedsl plan --section", ""), ("moedsl plan --section", "next"),
        ("moedsl plan run.moe --stop-after", ""), ("moedsl plan", "et"), ("moedsl report --profile", "et"),
    )  # fmt: skip
    assert {*COMMANDS} <= {*every} and one == ["plan"]
    assert {*SECTIONS} <= {*sections} and section == ["next-best"]
    assert "plan" in stages
    assert "etc" in files and "etc" in values


def test_bash_completes_the_options_of_every_command() -> None:
    offered = completed(*((f"moedsl {name}", "--") for name in COMMANDS))
    assert dict(zip(COMMANDS, map(set, offered), strict=True)) == OPTIONS


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_parses(shell: str) -> None:
    done = subprocess.run(
        [program(shell, shell), "-n"], input=script(shell), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_zsh_has_every_option() -> None:
    text = script("zsh")
    for name, options in OPTIONS.items():
        own = text.partition(f"_shtab_moedsl_{name.replace('-', '_')}_options=(")[2].partition("\n)")[0]
        assert all(option in own for option in options - {"--help"}), name


RULES = 'rules ours {{ require small: {} <= 4 because "our nodes" cite ours "runbook" }}'


def test_a_file_of_rules_alone_is_checked_and_not_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.moe"
    file.write_text(RULES.format("tp"), encoding="utf-8")
    assert main(["check", str(file)]) == 0 and capsys.readouterr() == ("", "")
    assert main(["plan", str(file)]) == 1 and "names no model" in capsys.readouterr().err
    file.write_text(RULES.format("tpp"), encoding="utf-8")
    assert main(["check", str(file)]) == 1 and "no such name: `tpp`" in capsys.readouterr().err
