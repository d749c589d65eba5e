"""A text that is parsed again after an edit is what it would be if it were parsed whole, and costs less."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types

from moedsl.lang import parser
from moedsl.lsp import analysis, pieces, reparse
from moedsl.lsp.features import diagnostics
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES, ROOT
from tests.lsp.lsp_texts import long_file
from tests.oracles.two_parsers import described

RULES = sorted((ROOT / "stdlib" / "rules").glob("*.moe"))
TEXTS = [p.read_text(encoding="utf-8") for p in [*EXAMPLES, *RULES]]
TYPED = [
    *(
        '"',
        "#",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\n",
        ";",
        " ",
        "\t",
        "\r",
        "\r\n",
        "\\",
        "=",
        "%",
        "-",
        ", ",
        "\f",
        "\v",
    ),
    *("é", "😀", "語", "\xa0", "\u2028", "\0", "x8", "12q8", "if", "fixed", "first", "facts", "profile", "tp", "128k"),
    *("because", "\nbecause ", '\n  because "x"\n', 'cite core "x"', "when ", "confirm", "worth 2%", "= 3"),
    *(
        "run x {\n",
        "rules a when tp == (\n1) {\n",
        "model m {",
        "}\n",
        "# }",
        '"{"',
        '"\n',
        '\\"',
        "use ",
        'data "open',
    ),
    *("pin tp=", "pin tp=4\n", "seq 128 k\n", "require a: tp <", "require a: tp <= 2\n", "[tp,\n cp]", "fit fast\n"),
    "model m {\n layers 94\n vision { depth 3 }\n}\n",
    "x" + "(" * 70,
    "pin tp = - - 3; seq 4k;; fit first\n",
]


def edited(text: str, edit: tuple[int, int, str]) -> str:
    """A text with so many characters at a place replaced; places count from the end where they are too large."""
    at = edit[0] % (len(text) + 1)
    return text[:at] + edit[2] + text[at + edit[1] :]


edits = st.lists(
    st.tuples(st.integers(0, 20_000), st.sampled_from([0, 0, 0, 1, 2, 7, 60]), st.sampled_from(["", *TYPED])),
    min_size=1,
    max_size=8,
)


@pytest.fixture(autouse=True, params=[40, pieces.LONG])
def long(request: pytest.FixtureRequest) -> Iterator[None]:
    """Short blocks are read by their statements too, so that small texts have many."""
    with patch.object(pieces, "LONG", request.param):
        yield


def same(text: str) -> None:
    """Asserts that both ways give the same tree, spans and diagnostics."""
    whole, wrong = parsed_whole(text)
    module, found = reparse.parse(Source("t.moe", text))
    assert described(module) == whole, text
    assert described(found) == wrong, text


@lru_cache(maxsize=300)
def parsed_whole(text: str) -> tuple[object, object]:
    """What a text is that is parsed from its start: the same for each length of pieces, and where it shrinks again."""
    whole, wrong = parser.parse(Source("t.moe", text))
    return described(whole), described(wrong)


@settings(max_examples=rotation.examples(60), deadline=None)
@given(st.sampled_from(TEXTS), edits)
def test_edits_anywhere(text: str, typed: list[tuple[int, int, str]]) -> None:
    same(text)
    for edit in typed:
        text = edited(text, edit)
        same(text)


@settings(max_examples=rotation.examples(60), deadline=None)
@given(st.lists(st.sampled_from(TYPED), max_size=20), edits)
def test_texts_of_odd_parts(parts: list[str], typed: list[tuple[int, int, str]]) -> None:
    """Statements, brackets, quotes and clauses in any order."""
    text = "".join(parts)
    for edit in typed:
        text = edited(text, edit)
        same(text)


def test_as_it_is_typed() -> None:
    """A file grows key by key, with every half-written state in between, and shrinks again."""
    text, typed = long_file(60, rules=8), 'rules more {\n  require (a): tp in [1,\n 2] because "é"\n} # {\n'
    assert "rule_7" in text and text.index("\n}\nmodel ") - text.index("rules house") > pieces.LONG
    at = text.index("\nrun ") + 1
    for i in [*range(len(typed)), *range(len(typed), 0, -1)]:
        same(text[:at] + typed[:i] + text[at:])


@settings(max_examples=rotation.examples(30), deadline=None)
@given(st.sampled_from(TEXTS[: len(EXAMPLES)]), edits)
def test_what_the_client_is_told(text: str, typed: list[tuple[int, int, str]]) -> None:
    """An edited file has the diagnostics of one that was opened as it is now, with the same ranges."""
    files, uri = Workspace(), Path("/nowhere/t.moe").as_uri()
    files.open(uri, 1, text)
    for edit in typed:
        text = edited(files.entries[uri].lines.text, edit)
        files.change(uri, 1, [types.TextDocumentContentChangeWholeDocument(text)])
        told = told_of(files, uri)
        analysis.parse.cache_clear()
        with patch.object(reparse, "parse", parser.parse):
            other = Workspace()
            other.open(uri, 1, text)
            assert told == told_of(other, uri)


def told_of(files: Workspace, uri: str) -> list[types.Diagnostic]:
    document = files.document(uri)
    assert document is not None
    return diagnostics.of(document, files)


def parsed(text: str) -> list[int]:
    """How long the texts are that the parser reads."""
    lengths: list[int] = []

    def parse(source: Source) -> reparse.Parsed:
        lengths.append(len(source.text))
        return whole(source)

    whole = parser.parse
    with patch.object(parser, "parse", parse):
        reparse.parse(Source("t.moe", text))
    return lengths


@pytest.mark.parametrize("line", [0, 40, 150, 290])
@pytest.mark.parametrize("typed", ["# typed\n", " ", "pin tp 4\n", "seq 4\n"])
def test_only_what_changed_is_parsed(line: int, typed: str) -> None:
    lines = long_file(300).split("\n")
    parsed("\n".join(lines))
    lengths = parsed("\n".join([*lines[:line], typed + lines[line], *lines[line + 1 :]]))
    assert sum(lengths) < 1500, lengths
    assert sum(parsed("\n".join(lines))) < 1500


def test_an_open_bracket_costs_its_statement() -> None:
    """While a list is typed, and after a wrong line."""
    text = long_file(300)
    parsed(text)
    assert sum(parsed(text + "pin offload_modules=[\n")) < 50
    assert sum(parsed("= 3\n" + text)) < 1500


def test_a_text_that_is_no_program_is_given_up_as_soon() -> None:
    """Prose, and lists of brackets: not every line of it is read."""
    assert len(parsed("This is a letter, and not a program.\n" * 1000)) < 60
    assert len(parsed("pin tp=(\n" * 1000)) < 60
