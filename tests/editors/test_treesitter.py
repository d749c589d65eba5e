"""The tree-sitter grammar against the compiler's parser: both take and refuse the same texts, and make the same tree."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_sitter import Node, Query, QueryCursor, Tree

from moedsl.lang.printer import print_module
from moedsl.lang.tokens import lexemes
from tests.editors.needs import absent, program, unpacked
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.strategies import module
from tests.helpers.tables import table_of
from tests.oracles.token_classes import FILES, TRICKY, classes, is_class
from tests.oracles.two_parsers import by_lark, by_tree_sitter, disagreement, query, tree_sitter_parser

QUERIES = sorted(ROOT.glob("editors/*/queries/**/*.scm"))
LINES = sorted({line for path in FILES for line in path.read_text(encoding="utf-8").splitlines() if len(line) < 200})
PIECES = [
    *("x", "x8", "first", "fitbest", "of", "from", "in", "not", "if", "when", "model", "seq", "run", "true", "vlm"),
    *("rules r {", "hardware h {", "run r {", "target bridge", "cite c", "worth", "because", '\n because "b"', "pin"),
    *("12q8", "8 GB", "8GB.5", "8 GB.5", "2 %", "2%", "% ", "5 GB/s", "1e-5k", "1e+5 GB/s", "3d", "0.6.2", "1..2", "G"),
    *("12GiBx", "0xe+5", "1e", "12GGB", "12kTB/s", "9" * 70 + " GB", "abc.", "2 %\r\n", "2 % cite", "2 % cite.x"),
    *("\n", ";", " ", "\t", "\r\n", "\f", "#c\n", "# é 漢 🎉\n", '"s"', '"é🎉#{"', '"', '"\\', "é", "\u00a0", "\\"),
    *("(", ")", "[", "]", "{", "}", "=", "==", "=>", "!=", "<=", "//", "/", "-", ",", ":", ".", ".5", "a.b", "_", "%"),
]
"""What mutations put between or behind the words of a program."""


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    program("gcc", "gcc")
    tree_sitter_parser()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_file_has_one_structure(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert by_lark(text) is not None
    assert disagreement(text) == ""


@pytest.mark.parametrize(("text", "taken"), table_of("editors", "what is taken"))
def test_what_is_taken(text: str, taken: bool) -> None:
    assert disagreement(text) == ""
    assert (by_tree_sitter(text) is not None) == taken


programs = module.map(print_module).filter(lambda text: "\0" not in text)
"""tree-sitter takes U+0000 for the end of a text."""


@settings(max_examples=rotation.examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(programs)
def test_random_programs_have_one_structure(text: str) -> None:
    assert by_lark(text) is not None
    assert disagreement(text) == ""


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Some lines of the stdlib, or a random program, with words deleted, doubled, swapped, cut, or put in."""
    lines = st.lists(st.sampled_from(LINES), min_size=1, max_size=4).map("\n".join)
    words = [x.text for x in lexemes(draw(st.one_of(lines, lines, programs)))][:80]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(words) - 1, 0)))
        words[at : at + 1] = draw(st.sampled_from(_changes(words[at] if words else "", words)))
    return "".join(words)


def _changes(word: str, words: list[str]) -> list[list[str]]:
    """What one word of a text may become."""
    put_in = [[word, piece] for piece in PIECES] + [[piece] for piece in PIECES]
    near = [[other] for other in words[:20]] + [[word, other] for other in words[:20]]
    return [[], [word, word], [word[: len(word) // 2]], [word, " ", word], *put_in, *near]


@settings(max_examples=rotation.examples(800), deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_changed_programs_are_taken_or_refused_by_both(text: str) -> None:
    assert disagreement(text) == ""


@settings(max_examples=rotation.examples(300), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
def test_words_in_any_order_are_taken_or_refused_by_both(text: str) -> None:
    assert disagreement(text) == ""


LONG = {
    "open brackets": "(" * 200_000,
    "open brackets on lines": "pin a=(\n" * 25_000,
    "nested lists": "pin a=" + "[" * 100_000 + "]" * 100_000,
    "braces": "{" * 200_000,
    "comments before a clause": "require a\n" + "# c\n" * 50_000 + 'because "b"\n',
    "comments in an error": ") ( {\n" + "# c\n" * 50_000,
    "empty lines": "require a\n" + "\n" * 200_000,
    "words": "a b " * 50_000,
    "digits": "9" * 200_000,
    "quotes": '"' * 200_000,
}
"""Texts that a parser with a look-ahead for each bracket or newline would not end with."""


@pytest.mark.parametrize("name", rotation.some("long texts", [*LONG], 3))
def test_long_texts_have_an_end(name: str) -> None:
    text = LONG[name]
    root = tree_sitter_parser().parse(text.encode()).root_node
    assert root.end_byte == len(text)


@pytest.mark.bench
def test_speed_of_five_thousand_lines(benchmark: Callable[..., Tree]) -> None:
    text = (ROOT / "stdlib" / "rules" / "mesh.moe").read_bytes()
    lines = text * (5000 // text.count(b"\n"))
    assert not benchmark(tree_sitter_parser().parse, lines).root_node.has_error


def test_a_broken_statement_leaves_the_others() -> None:
    text = "seq 4k\npin tp= cp=\nmodel m {\n  layers (94\n}\nrun r { batch 64; fit first }\n"
    root = tree_sitter_parser().parse(text.encode()).root_node
    assert root.has_error
    assert {"seq_stmt", "run_decl"} <= {child.type for child in root.children}


@settings(max_examples=rotation.examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(), mutated())
def test_edited_text_parses_as_new_text(before: str, after: str) -> None:
    """An editor hands tree-sitter the old tree and the change; a text without errors has one tree, whatever was there."""
    for old, new in ((before, after), (after, before), (before, f"{before}\n{after}"), (f"{after}\n{before}", before)):
        fresh = tree_sitter_parser().parse(new.encode())
        edited = _edited(old.encode(), new.encode())
        assert edited.has_error == fresh.root_node.has_error
        assert fresh.root_node.has_error or _shape(edited) == _shape(fresh.root_node)


def _edited(old: bytes, new: bytes) -> Node:
    """The tree of a text that came about by one change of another."""
    tree = tree_sitter_parser().parse(old)
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    longest = min(len(old), len(new)) - start
    end = next((i for i in range(longest) if old[-1 - i] != new[-1 - i]), longest)
    points = [_point(old, start), _point(old, len(old) - end), _point(new, len(new) - end)]
    tree.edit(start, len(old) - end, len(new) - end, *points)
    return tree_sitter_parser().parse(new, tree).root_node


def _point(data: bytes, at: int) -> tuple[int, int]:
    return data.count(b"\n", 0, at), at - (data.rfind(b"\n", 0, at) + 1)


def _shape(node: Node) -> tuple[object, ...]:
    return node.type, node.start_byte, node.end_byte, tuple(_shape(child) for child in node.children)


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_queries_name_nodes_that_there_are(path: Path) -> None:
    assert query(path).pattern_count > 0


@pytest.mark.parametrize("path", [p for p in QUERIES if p.stem == "highlights"], ids=lambda p: p.parts[-3])
def test_highlights_give_every_word_its_class(path: Path) -> None:
    highlights = query(path)
    for text in (TRICKY, *(file.read_text(encoding="utf-8") for file in FILES)):
        captured = _captured(highlights, text)
        found = [(word, captured.get(len(text[: word.start].encode()), "nothing")) for word in classes(text)]
        assert [(word, name) for word, name in found if not is_class(name, word.kind)] == []


def _captured(highlights: Query, text: str) -> dict[int, str]:
    """The capture at each byte where a word starts; of several, the one that the query names last."""
    found: dict[int, tuple[int, str]] = {}
    for pattern, captures in QueryCursor(highlights).matches(tree_sitter_parser().parse(text.encode()).root_node):
        for name, nodes in captures.items():
            for node in nodes:
                if name != "spell":
                    found[node.start_byte] = max(found.get(node.start_byte, (-1, "")), (pattern, name))
    return {start: name for start, (_, name) in found.items()}


def test_the_committed_parser_is_the_grammars() -> None:
    import editors_fetch
    import make_editors

    unpacked("tree-sitter-cli")
    program("node", "nodejs")
    try:
        made = make_editors.parser_files()
    except editors_fetch.FetchFailed as failed:
        absent(str(failed))
    assert [str(p) for p, text in made.items() if p.read_text(encoding="utf-8") != text] == []
