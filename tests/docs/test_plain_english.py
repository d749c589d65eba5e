"""Texts in plain English: phrases that hid their meaning from readers do not come back.

Engineers in a hurry read these texts, and English is the second language of most. Each phrase below stood in a text
of moedsl, with the plain words that replaced it. `SCOPE` lists the texts that are searched; a line there widens it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import pytest
from attrs import frozen

from tests.helpers.paths import ROOT

SCOPE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "editors/README.md",
    "editors/vscode/README.md",
    "editors/vscode/walkthrough/*.md",
    "examples/*.moe",
    "tools/*.py",
    "stdlib/**/*.moe",
    "stdlib/calibration/*.txt",
    "stdlib/hf/README.md",
    "moedsl/*/*.md",
    "moedsl/**/*.py",
)
"""Patterns of the files that are searched, below the root."""


@frozen
class Phrase:
    """A wrong `pattern`, a `sample` sentence that has it, and the `plain` sentence that replaces it."""

    pattern: str
    sample: str
    plain: str

    def at(self, text: str) -> Iterator[int]:
        """Positions of the phrase; a blank in the pattern is any white space."""
        return (found.start() for found in re.finditer(_spaced(self.pattern), text, re.IGNORECASE))


def _spaced(pattern: str) -> str:
    return pattern.replace(" ", r"\s+")


PHRASES = (
    # a status, a default or a missing thing
    Phrase(
        r"\b(un)?said\b", "Unless said otherwise, a message is said once.", "By default, a message is printed once."
    ),
    Phrase(r"\bbeside\b", "The plan lies beside the log.", "The plan is in the folder of the log."),
    Phrase(r"\bbehind\b", "The number stands behind the name.", "The number follows the name."),
    Phrase(r"\black(s|ed|ing)?\b", "Where memory lacks, it is refused.", "It is refused if memory is insufficient."),
    Phrase(r"\b(is|are|be|been|was|were) taken\b", "The default is taken.", "The default is used."),
    Phrase(r"\btaken (as|for|to|over|off|otherwise)\b", "Tokens taken as useful.", "Tokens that count as useful."),
    Phrase(r"\b(has|have|had) not(?=[.,;:)]|$)", "kernels that a CPU has not.", "kernels that do not run on a CPU."),
    Phrase(r"\bthat there (is|are) not\b", "Statements that there are not", "Suggestions for unknown statements"),
    Phrase(
        r"\bnothing of (it|them) is left\b", "Nothing of it is left with the scheduler.", "All jobs were cancelled."
    ),
    Phrase(r"\bwithout a case here\b", "followed, or without a case here", "followed or not applicable"),
    # what several runs have in common
    Phrase(r"\bha(s|ve) to say alike\b", "What several runs have to say alike", "Merge identical diagnostics of runs"),
    # sentences that begin with their end
    Phrase(r"\bof some \w+ those\b", "Of some positions those that fit", "Filter positions by memory"),
    Phrase(r"\band how it takes it\b", "What it cannot know, and how it takes it", "Cases of the uncertain terms"),
    Phrase(r"\bother than at \d", "Other than at 4k tokens", "Differs from the plan at 4k"),
    Phrase(r"\botherwise than\b", "What gloo takes otherwise than NCCL", "Differences between gloo and NCCL"),
    Phrase(r"\bleaves open follows it\b", "Nothing that it leaves open follows it.", "No fitting layout follows this."),
    # messages
    Phrase(r"\bthat the GPU shows\b", "201.9 of the 185.1 GiB that the GPU shows", "201.9 GiB; the GPU has 185.1"),
    Phrase(r"\bfollows without a sign\b", "The value of `seq` follows without a sign.", "No `=` or `:` after `seq`."),
    Phrase(r"\bstands before its number\b", "The hardware stands before its number.", "Write the hardware first."),
    Phrase(r"\b(is|are|was|were) no number\b", "The loss is no number.", "The loss is NaN."),
    Phrase(r"\bmend(s|ed|ing)?\b", "Mend the first failure above.", "Fix the first error above."),
    Phrase(r"\bfacts of a model do not describe\b", "which the facts of a model do not describe", "unsupported model"),
    # the formatter: a layout is the parallel layout
    Phrase(r"\b(lay|lays|laid|laying)( \w+)? out\b", "`fmt` lays files out.", "`fmt` formats files."),
)


ANY = re.compile("|".join(_spaced(phrase.pattern) for phrase in PHRASES), re.IGNORECASE)
"""One search of a text for all phrases; few texts have any."""


@frozen
class Found:
    """A phrase in a file."""

    file: str
    line: int
    phrase: Phrase
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.text!r}: plain is, for example, {self.phrase.plain!r}"


def search(file: str, texts: Iterator[tuple[int, str]]) -> Iterator[Found]:
    """The phrases in the texts of a file; each text begins on its line."""
    for line, text in texts:
        for phrase in PHRASES if ANY.search(text) else ():
            for start in phrase.at(text):
                around = " ".join(text[max(0, start - 30) : start + 40].split())
                yield Found(file, line + text.count("\n", 0, start), phrase, around)


# ---------------------------------------------------------------- the texts of a file


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What a person reads in a file, with the line on which each text begins."""
    content = path.read_text(encoding="utf-8")
    return {".py": of_python, ".moe": of_moe}.get(path.suffix, of_prose)(content)


CODE = re.compile(r"(^ *```.*?^ *```$|^(?: {4}|\t)\S.*$)|``.+?``|`[^`]*`", re.MULTILINE | re.DOTALL)
"""Blocks of code, what a program printed, and code in a sentence. Printed text is searched where it is written."""


def of_prose(content: str) -> Iterator[tuple[int, str]]:
    """Markdown without its code."""
    yield 1, CODE.sub(lambda code: "\n" * code[0].count("\n") or "`", content)


def of_moe(content: str) -> Iterator[tuple[int, str]]:
    """Comments, a text for each run of them, and strings."""
    comments = re.finditer(r"(?:^[ \t]*#.*\n?)+|#[^\"\n]*$", content, re.MULTILINE)
    for found in comments:
        yield _line(content, found.start()), re.sub(r"^[ \t]*#", " ", found[0], flags=re.MULTILINE)
    for found in re.finditer(r'"(?:[^"\\\n]|\\.)*"', content):
        yield _line(content, found.start()), _sentence(found[0])


def of_python(content: str) -> Iterator[tuple[int, str]]:
    """Docstrings, other strings of more than one word, and comments."""
    yield from _strings(ast.parse(content))
    yield from _comments(content)


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, _sentence("".join(_part(value) for value in node.values))
            left += [value for value in node.values if not isinstance(value, ast.Constant)]
        elif not isinstance(node, ast.Constant):
            left += _below(node)
        elif isinstance(node.value, str):
            yield node.lineno, _sentence(cleandoc(node.value))


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.iter_child_nodes`, in less time."""
    for value in node.__dict__.values():
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "0"


def _sentence(text: str) -> str:
    """A string without its code; empty where it is a key or another single word."""
    plain = CODE.sub(lambda code: "\n" * code[0].count("\n") or "`", text)
    return plain if " " in plain.strip() else ""


def _comments(content: str) -> Iterator[tuple[int, str]]:
    """A text for each run of comments on lines of their own."""
    block, begun, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1:
            yield begun, _sentence(block)
            block, begun = "", line
        block, last = block + token.string.lstrip("#: ") + "\n", line
    yield begun, _sentence(block)


def _line(content: str, position: int) -> int:
    return content.count("\n", 0, position) + 1


# ---------------------------------------------------------------- tests


def files(pattern: str) -> list[Path]:
    return sorted(ROOT.glob(pattern))


@pytest.mark.parametrize("pattern", SCOPE)
def test_texts_are_plain(pattern: str) -> None:
    found = [f for path in files(pattern) for f in search(path.relative_to(ROOT).as_posix(), texts(path))]
    assert files(pattern), f"{pattern} matches no file"
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.sample)
def test_a_phrase_is_found_and_its_plain_form_is_not(phrase: Phrase) -> None:
    assert [f.phrase for f in search("a.md", of_prose(phrase.sample))].count(phrase) >= 1
    assert not [*search("a.md", of_prose(phrase.plain))]


PLACES = {
    "a.md": "Some text.\nThe log lies beside\nthe plan.\n",
    "b.moe": 'rules a {\n  # the log lies beside\n  # the plan\n  let b = 1 because "c"\n}\n',
    "c.moe": 'rules a {\n  require b: c\n    because "lies beside the plan" cite ours "d"\n}\n',
    "d.py": '"""One.\n\nThe log lies beside the plan."""\n',
    "g.py": 'def f():\n    """One.\n    The log lies beside the plan.\n    """\n',
    "e.py": 'x = f"{a} lies "\\\n    f"beside the {b}"\n',
    "f.py": "x = 1\n# the log lies\n# beside the plan\n",
}


@pytest.mark.parametrize("name", PLACES)
def test_a_phrase_is_found_in_every_kind_of_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(PLACES[name], encoding="utf-8")
    (found,) = search(name, texts(path))
    assert "beside" in found.text
    assert found.line in (2, 3) or name == "e.py"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "Run `moedsl said`:\n\n    $ said beside\n\n```text\nlies beside\n```\n"),
        ("b.py", 'said = {"beside": 1}\nx = f"{said}"\n'),
        ("c.moe", "let beside = 1\n"),
    ],
)
def test_code_is_not_searched(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert not [*search(name, texts(path))]
