"""One source of words: what the editors know is what the grammar says, and none of their files has drifted."""

import json
import re
import subprocess
import sys

import pytest
from lark import Lark

from moedsl.facts.axes import AXES
from moedsl.lang.keywords import keywords
from moedsl.lang.parse_errors import DECLARATIONS, RESERVED
from moedsl.lang.tree_builder import UNITS
from moedsl.support.resources import grammar_file
from tests.helpers.paths import ROOT

KEYWORDS = ("statements", "declarations", "members", "clauses", "links", "operators", "constants")


def test_regenerating_leaves_no_difference() -> None:
    command = [sys.executable, "tools/make_editors.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}run tools/make_editors.py, with --parser after a change of the grammar"


def test_a_drifted_file_is_named() -> None:
    import make_editors

    files = make_editors.regenerated()
    assert ROOT / "editors" / "words.json" in files
    assert {path.relative_to(ROOT / "editors").parts[0] for path in files} >= {
        *("words.json", "vscode", "vim", "nvim", "helix", "emacs", "tree-sitter")
    }


def test_every_terminal_of_the_grammar_is_a_word() -> None:
    lark = Lark(grammar_file().read_text(encoding="utf-8"), parser="lalr", start="module")
    known = {w.upper() for group in KEYWORDS for w in getattr(keywords(), group)}
    lexical = {"NAME", "HUB", "WORD", "VERSION", "STRING", "NUMBER", "NEWLINE", "SEMICOLON"}
    terminals = {t.name for t in lark.terminals if t.pattern.type == "re" and not t.name.startswith("__")}
    assert terminals - lexical - known == set()
    assert known - {t.name for t in lark.terminals} == set()
    symbols = {json.loads(f'"{t.pattern.value}"') for t in lark.terminals if t.pattern.type == "str"}
    assert set(keywords().symbols) == symbols | {";"}


def test_the_lists_are_the_compilers() -> None:
    w = keywords()
    assert set(w.reserved) == RESERVED
    assert set(w.declarations) == DECLARATIONS
    assert w.units == UNITS
    assert {a.name for a in AXES} <= set(w.axes)
    assert {word for a in AXES for word in a.words} <= set(w.values) | set(w.axes)
    assert {*w.facts_blocks, *w.rules_blocks, *w.run_blocks} == set(w.declarations) - {"use"}


@pytest.mark.parametrize("group", KEYWORDS)
def test_no_list_is_empty_or_says_a_word_twice(group: str) -> None:
    found = getattr(keywords(), group)
    assert found
    assert len(found) == len(set(found))


def test_words_json_is_what_a_person_can_read() -> None:
    written = json.loads((ROOT / "editors" / "words.json").read_text(encoding="utf-8"))
    assert written == keywords().to_json()
    assert all(re.fullmatch(r"\S+", word) for group in written.values() for word in group)


def test_words_need_no_lark() -> None:
    code = "import sys, moedsl.lang.keywords as w; w.keywords(); sys.exit('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
