"""docs/trial.md is what a new user sees: the questions of README.md in a terminal of 80 columns, recorded again."""

from __future__ import annotations

import make_trial
import pytest
from make_trial import Question

from tests.editors.needs import program
from tests.helpers import rotation

PAGE = make_trial.PAGE.read_text(encoding="utf-8")
QUESTIONS = make_trial.questions()
WORDS = ("262144", "64 GB200", "JSONL", "official recipe", "FP8", "DeepEP", "256k")
"""What the questions of users are about; each is in the table once."""


def test_readme_answers_each_question_with_few_commands() -> None:
    assert [sum(w in q.asked for q in QUESTIONS) for w in WORDS] == [1] * len(WORDS) == [1] * len(QUESTIONS)
    assert all(1 <= len(q.typed) <= make_trial.MOST_COMMANDS for q in QUESTIONS)


def test_the_page_has_these_questions_and_no_others() -> None:
    assert [line for line in PAGE.splitlines() if line.startswith(("## ", "$ "))] == [
        line for q in QUESTIONS for line in (f'## "{q.asked}"', *(f"$ {c}" for c in q.typed))
    ]


@pytest.mark.parametrize("question", rotation.some("trial", QUESTIONS, 2), ids=lambda q: q.asked)
def test_the_record_is_what_the_terminal_shows(question: Question) -> None:
    program("tmux", "tmux")
    screens = make_trial.record(question)
    assert make_trial.section(question, screens) in PAGE, "run tools/make_trial.py"


def test_the_terminal_breaks_no_line() -> None:
    """A word that ends at the last column would go on in the next line."""
    shown = [line for block in PAGE.split("```console\n")[1:] for line in block.split("```")[0].splitlines()[1:]]
    assert max(map(len, shown)) <= make_trial.COLUMNS and not [a for a in shown if "error[" in a]
