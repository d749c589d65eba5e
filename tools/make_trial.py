"""Record docs/trial.md: the questions of docs/questions.md, typed into a terminal of 80 columns by a new user.

usage: .venv/bin/python tools/make_trial.py

A question is a row of that page's table `You ask | You type`; each is tried in tmux, in a folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "trial.md"
COLUMNS, ROWS = 80, 24
MOST_COMMANDS, MOST_SECONDS = 3, 300
_ROW = re.compile(r"^\| \"(?P<asked>[^|]+)\" \| (?P<typed>`[^|]+`) \|$", re.MULTILINE)
_HEAD = (
    "# Tried as a new user would\n\n"
    f"Each of the [questions](questions.md#ask), typed as it stands there into a terminal of {COLUMNS} columns, with "
    f"what the terminal showed. `tools/make_trial.py` records it in tmux, {ROWS} rows high, and stops if a question "
    f"needs more than {MOST_COMMANDS} commands or {MOST_SECONDS // 60} minutes; on 2 cores each needed a few seconds. "
    "`tests/docs/test_docs.py` records it again and compares.\n"
)
SAMPLES = (
    ("How do I list a folder?", "Type ls, and the name of the folder."),
    (
        "What is a mixture of experts?",
        "A layer with many networks, of which a router chooses a few for each token. " * 12,
    ),
    ("Summarise this page.", "It says how long the samples of a fine-tuning run are. " * 40),
)
"""The conversations of the user who fine-tunes: a question and its answer."""


class Question(NamedTuple):
    """What a user asks, and the commands that answer it."""

    asked: str
    typed: tuple[str, ...]


def questions() -> list[Question]:
    """Read the table of docs/questions.md."""
    rows = _ROW.finditer((ROOT / "docs" / "questions.md").read_text(encoding="utf-8"))
    return [Question(r["asked"], tuple(re.findall(r"`([^`]+)`", r["typed"]))) for r in rows]


def page(recorded: dict[Question, list[str]]) -> str:
    """Write the page of all questions."""
    return _HEAD + "".join(map(section, recorded, recorded.values()))


def section(question: Question, screens: list[str]) -> str:
    """Write a question with what the terminal showed after each of its commands."""
    shown = "".join(f"\n```console\n$ {c}\n{text}\n```\n" for c, text in zip(question.typed, screens, strict=True))
    return f'\n## "{question.asked}"\n{shown}'


def record(question: Question) -> list[str]:
    """Type the commands of a question one after the other, and return what each showed."""
    if len(question.typed) > MOST_COMMANDS:
        raise ValueError(f"{question.asked}: {len(question.typed)} commands, and {MOST_COMMANDS} are the most")
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder, "conversations"))
        start = time.monotonic()
        screens = list(_typed(question.typed, Path(folder)))
        took = time.monotonic() - start
    print(f"{took:6.1f} s  {question.asked}", file=sys.stderr)
    if took > MOST_SECONDS:
        raise ValueError(f"{question.asked}: {took:.0f} s, and {MOST_SECONDS} are the most")
    return screens


def _fill(folder: Path) -> None:
    """Write the samples of the user who fine-tunes."""
    folder.mkdir()
    for name, times in (("training", 400), ("validation", 400)):
        lines = [json.dumps({"messages": _turns(*SAMPLES[i % len(SAMPLES)])}) for i in range(times)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _turns(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer.strip()}]


def _typed(commands: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Type each command into a shell in tmux, and read the screen with all that has left it."""
    tmux = ("tmux", "-u", "-S", str(folder / ".tmux"), "-f", "/dev/null")
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TMUX", "BASH_ENV")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = shlex.join(["bash", "--noprofile", "--norc"])
    start = ["new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(folder), shell]

    def run(*words: str) -> str:
        done = subprocess.run([*tmux, *words], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    run("set-option", "-g", "history-limit", "10000", ";", *start)
    try:
        for i, command in enumerate(commands):  # each has its own prompt, so that none waits for an older one
            run("send-keys", "-l", f"PS1='{i}$ '; clear; {command}")
            run("send-keys", "Enter")
            yield _shown(lambda: run("capture-pane", "-p", "-S", "-"), f"{i}$")
    finally:
        run("kill-server")


def _shown(screen: Callable[[], str], prompt: str) -> str:
    """Wait for the prompt after a command, and return what is above it."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        lines = [line.rstrip() for line in screen().rstrip().split("\n")]
        if lines[-1] == prompt:
            return "\n".join(lines[:-1])
        time.sleep(0.1)
    raise TimeoutError(f"no prompt after {MOST_SECONDS} s:\n{screen()}")


def main() -> int:
    PAGE.write_text(page({q: record(q) for q in questions()}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
