"""Shell completion is made of the real parser's commands, options and words."""

from __future__ import annotations

import subprocess

import pytest

from moedsl.cli.arguments import COMMANDS, SECTIONS
from moedsl.cli.completion import options, script
from tests.editors.needs import program

ASK = """
{script}
COMP_WORDS=({words} '')
COMP_CWORD={at}
[ -z '{half}' ] || {{ COMP_WORDS[{at}]='{half}'; }}
_moedsl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(words: str, half: str = "") -> list[str]:
    """What bash offers after some words."""
    text = ASK.format(script=script("bash"), words=words, at=len(words.split()), half=half)
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.split()


def test_bash_completes_commands() -> None:
    assert {*COMMANDS} <= {*completed("moedsl")}
    assert completed("moedsl", "pl") == ["plan"]


@pytest.mark.parametrize("name", COMMANDS)
def test_bash_completes_the_options_of_a_command(name: str) -> None:
    assert {*completed(f"moedsl {name}", "--")} == {o for o in options(COMMANDS[name]) if o.startswith("--")}


def test_bash_completes_the_words_of_an_option() -> None:
    assert {*SECTIONS} <= {*completed("moedsl plan --section")}
    assert completed("moedsl plan --section", "next") == ["next-best"]
    assert "plan" in completed("moedsl plan run.moe --stop-after")


def test_bash_completes_files() -> None:
    assert "etc" in completed("moedsl plan", "et")


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_a_script_parses(shell: str, check: str) -> None:
    done = subprocess.run(
        [program(shell, shell), check], input=script(shell), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_option(shell: str) -> None:
    text = script(shell)
    for name, command in COMMANDS.items():
        lines = [line for line in text.splitlines() if name in line]
        for option in (o for o in options(command) if o.startswith("--") and o != "--help"):
            mark = option if shell == "zsh" else f"-l {option[2:]}"
            assert any(mark in line for line in lines), (name, option)
