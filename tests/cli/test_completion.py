"""Shell completion is made of the real parser's commands, options and words."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest
import shtab

from moedsl.cli.arguments import COMMANDS, SECTIONS
from moedsl.cli.commands.completion import complete_files
from moedsl.cli.main import parser_for
from tests.editors.needs import program

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
