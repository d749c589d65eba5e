"""Outline, semantic tokens, formatting, folding, selection and links, on whole files and on half of them."""

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from moedsl.lang.formatter import layout
from moedsl.lang.keywords import keywords
from moedsl.lang.parser import parse
from moedsl.lsp import actions, navigation, structure
from moedsl.lsp.document import MODIFIERS, TYPES, Client, Lines, unified
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES
from tests.lsp import lsp_ask as nav
from tests.lsp.lsp_ask import long_file

RICH = Path(__file__).with_name("rich.moe").read_text(encoding="utf-8")


def outline(entries: list[types.DocumentSymbol] | None, depth: int = 0) -> list[str]:
    return [line for e in entries or () for line in ("  " * depth + e.name, *outline([*(e.children or ())], depth + 1))]


def test_outline() -> None:
    found = nav.numbered(RICH)
    entries = structure.symbols(found, types.DocumentSymbolParams(nav.ident(found)))
    assert outline(entries) == [
        "machines.moe", "other.moe", "ours", "  layers", "  hidden", "  vision", "    hidden",
        "house", "  two", "  spare", "  vpp",
        "a", "  pin tp=2 recompute=[", "    tp", "    recompute", "  require tp == 2",
    ]  # fmt: skip


def contained(outer: types.Range, inner: types.Range) -> bool:
    def key(p: types.Position) -> tuple[int, int]:
        return p.line, p.character

    return key(outer.start) <= key(inner.start) and key(inner.end) <= key(outer.end)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_outline_nests(path: Path) -> None:
    found = nav.numbered(path.read_text(encoding="utf-8"))

    def check(entries: list[types.DocumentSymbol], outer: types.Range | None) -> None:
        for e in entries:
            assert e.name
            assert contained(e.range, e.selection_range)
            assert outer is None or contained(outer, e.range)
            check([*(e.children or ())], e.range)

    entries = structure.symbols(found, types.DocumentSymbolParams(nav.ident(found)))
    assert entries
    check(entries, None)


def test_a_flat_client_gets_a_flat_outline() -> None:
    found = nav.numbered(RICH, client=nav.Client())
    entries = structure.symbols(found, types.DocumentSymbolParams(nav.ident(found)))
    assert {type(e) for e in entries} == {types.SymbolInformation}
    assert next(e.container_name for e in entries if e.name == "spare") == "house"


def test_workspace_symbols() -> None:
    made = nav.workspace({"run.moe": RICH, "b.moe": "profile tiny { seq 4k }"})

    def names(query: str) -> list[str]:
        return [s.name for s in structure.workspace_symbols(made, types.WorkspaceSymbolParams(query))]

    assert "spare" in names("")
    assert names("tny")[0] == "tiny"
    assert "gb200" in names("gb200")
    assert names("house.spare") == ["spare"]
    assert len(names("heads")) < len(names(""))
    assert not names("no such thing")


# ---------------------------------------------------------------- semantic tokens


def decoded(data: list[int], text: str) -> list[tuple[str, str, list[str]]]:
    """What each token covers, counted in UTF-16 from scratch, its type and modifiers."""
    rows = [line.encode("utf-16-le") for line in text.split("\n")]
    out: list[tuple[str, str, list[str]]] = []
    line = column = 0
    for i in range(0, len(data), 5):
        step, start, length, kind, bits = data[i : i + 5]
        line, column = line + step, start if step else column + start
        assert length > 0
        covered = rows[line][2 * column : 2 * (column + length)].decode("utf-16-le")
        assert len(covered.encode("utf-16-le")) == 2 * length
        out.append((covered, TYPES[kind], [m for b, m in enumerate(MODIFIERS) if bits >> b & 1]))
    return out


def all_tokens(text: str) -> list[tuple[str, str, list[str]]]:
    found = nav.numbered(text)
    return decoded([*structure.semantic_tokens(found, types.SemanticTokensParams(nav.ident(found))).data], text)


def test_tokens_mean_what_the_legend_says() -> None:
    text = '# 日本 😀\nqwen3_30b_a3b; gb200 x 8; fit first\nrules r { let n = dp because "😀" }\n'
    text += 'require "😀" == "😀" or n > 128k and min(tp, layers) in [1]\nallow mesh.heads\nseq 4k\nset model.x = true'
    assert [t for t in all_tokens(text) if t[1] not in ("operator", "string", "number", "comment")] == [
        ("qwen3_30b_a3b", "class", ["defaultLibrary"]),
        ("gb200", "struct", ["defaultLibrary"]), ("x", "keyword", []),
        ("fit", "enumMember", ["defaultLibrary"]), ("first", "keyword", []),
        ("rules", "keyword", []), ("r", "namespace", ["declaration"]), ("let", "keyword", []),
        ("n", "variable", ["declaration", "readonly"]), ("dp", "variable", ["defaultLibrary", "readonly"]),
        ("because", "keyword", []), ("require", "keyword", []), ("or", "keyword", []), ("n", "variable", ["readonly"]),
        ("and", "keyword", []), ("min", "function", ["defaultLibrary"]), ("tp", "variable", ["defaultLibrary"]),
        ("layers", "property", ["defaultLibrary"]), ("in", "keyword", []),
        ("allow", "keyword", []), ("mesh", "namespace", ["defaultLibrary"]), ("heads", "event", ["defaultLibrary"]),
        ("seq", "keyword", []), ("set", "keyword", []), ("model.x", "property", []), ("true", "keyword", []),
    ]  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_tokens_agree_with_the_words_of_the_grammar(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    known = keywords()
    words = {*known.statements, *known.declarations, *known.members, *known.clauses, *known.links, *known.operators}
    for covered, kind, _ in all_tokens(text):
        assert kind != "keyword" or covered in words | {*known.constants}
        assert kind != "function" or covered in known.functions
        assert covered not in known.axes or kind in ("variable", "keyword")
        assert (kind == "comment") == covered.startswith("#")


def test_a_range_has_the_tokens_of_its_lines() -> None:
    text = RICH
    found = nav.numbered(text)
    every = all_tokens(text)
    for first, last in ((0, 1), (3, 7), (9, 30), (25, 99)):
        wanted = types.Range(types.Position(first, 0), types.Position(last, 3))
        part = structure.semantic_tokens_range(found, types.SemanticTokensRangeParams(nav.ident(found), wanted))
        got = decoded([*part.data], text)
        assert any(every[i : i + len(got)] == got for i in range(len(every)))
        assert bool(got) == (first < text.count("\n"))
        inside = text.split("\n")[first : last + 1]
        assert all(any(covered in line for line in inside) for covered, _, _ in got)


def test_delta_leads_to_the_same_tokens() -> None:
    rng = random.Random(7)
    text = long_file(80)
    found = nav.numbered(text)
    before = structure.semantic_tokens(found, types.SemanticTokensParams(nav.ident(found)))
    for _ in range(15):
        at, cut = rng.randrange(len(text)), rng.randrange(4)
        text = text[:at] + rng.choice(["😀", "\n", "tp ", "", "{", "#"]) + text[at + cut :]
        found = nav.numbered(text)
        whole = structure.semantic_tokens(found, types.SemanticTokensParams(nav.ident(found)))
        got = structure.semantic_tokens_delta(
            found, types.SemanticTokensDeltaParams(nav.ident(found), before.result_id or "")
        )
        assert isinstance(got, types.SemanticTokensDelta)
        data = [*before.data]
        for e in got.edits:
            data[e.start : e.start + e.delete_count] = e.data or []
        assert data == [*whole.data]
        before = whole
    forgotten = structure.semantic_tokens_delta(
        found, types.SemanticTokensDeltaParams(nav.ident(found), "never heard of")
    )
    assert isinstance(forgotten, types.SemanticTokens)


# ---------------------------------------------------------------- formatting

OPTIONS = types.FormattingOptions(2, True)
UGLY = """\
# 日本 😀   \nqwen3_30b_a3b;h100   x 16


seq   4k  # short 😀
run a{
fit first
      pin tp=2   cp=1
}
rules r {
  require x:tp>1 because "😀"   cite ours "y"
}
"""


def formatted(text: str) -> str:
    found = nav.numbered(text)
    return nav.edited(text, structure.formatting(found, types.DocumentFormattingParams(nav.ident(found), OPTIONS)))


def test_formatting_is_that_of_fmt() -> None:
    assert formatted(UGLY) == layout(UGLY)
    assert formatted(layout(UGLY)) == layout(UGLY)


def test_formatting_touches_the_lines_that_change_alone() -> None:
    text = long_file(300)
    tidy = layout(text)
    broken = tidy.replace("fit first", "fit    first", 1)
    found = nav.numbered(broken)
    (edit,) = structure.formatting(found, types.DocumentFormattingParams(nav.ident(found), OPTIONS))
    assert edit.range.end.line - edit.range.start.line == 1
    assert nav.edited(broken, [edit]) == tidy


def test_formatting_leaves_a_broken_file() -> None:
    for text in (UGLY + "seq", "seq   4k\nrequire (", "\x01", ""):
        assert formatted(text) == text


def test_formatting_keeps_windows_line_ends() -> None:
    text = UGLY.replace("\n", "\r\n")
    found = nav.numbered(text)
    edits = structure.formatting(found, types.DocumentFormattingParams(nav.ident(found), OPTIONS))
    assert edits
    assert all(e.new_text.count("\n") == e.new_text.count("\r\n") for e in edits)


def test_a_range_is_formatted_and_nothing_else() -> None:
    rng = random.Random(3)
    for text in (UGLY, *(p.read_text(encoding="utf-8").replace(" ", "  ") for p in EXAMPLES[::5])):
        module, wrong = parse(Source("a.moe", text))
        if wrong:
            continue
        lines = text.split("\n")
        for _ in range(4):
            first = rng.randrange(len(lines))
            last = rng.randrange(first, len(lines))
            found = nav.numbered(text)
            wanted = types.Range(types.Position(first, 0), types.Position(last, len(lines[last])))
            edits = structure.range_formatting(
                found, types.DocumentRangeFormattingParams(nav.ident(found), wanted, OPTIONS)
            )
            after = nav.edited(text, edits)
            assert parse(Source("a.moe", after))[0] == module
            assert formatted(after) == layout(text)


# ---------------------------------------------------------------- folding, selection, links


def folds(text: str) -> list[tuple[int, int, str | None]]:
    found = nav.numbered(text)
    ranges = structure.folding(found, types.FoldingRangeParams(nav.ident(found)))
    return [(r.start_line, r.end_line, str(getattr(r.kind, "value", r.kind)) if r.kind else None) for r in ranges]


def test_folding() -> None:
    assert folds(RICH) == [
        (0, 1, "comment"),
        (2, 3, "imports"),
        (4, 6, None),
        (8, 11, None),
        (13, 18, None),
        (14, 16, None),
    ]


def test_folding_of_what_does_not_parse() -> None:
    assert folds("run a {\n  seq\n  fit frst\n  %%\n}\nrun b {\n") == [(0, 3, None)]


def test_selection_grows() -> None:
    text = 'rules r {\n  require x: (tp + 😀1) > 2 or layers > 3 because "日本 😀"\n}'.replace("😀1", "1")
    found = nav.numbered(text)
    offset = text.index("tp")
    (got,) = structure.selections(found, types.SelectionRangeParams(nav.ident(found), [nav.at(found, offset)]))
    covered: list[str] = []
    while got is not None:
        start, end = found.lines.offsets(got.range)
        covered.append(text[start:end])
        assert got.parent is None or contained(got.parent.range, got.range)
        got = got.parent
    assert covered[:4] == ["tp", "tp + 1", "(tp + 1)", "(tp + 1) > 2"]
    assert covered[-1] == text


def test_links() -> None:
    made = nav.workspace({"run.moe": RICH})
    found = made.document(nav.uri("run.moe"))
    assert found is not None
    got = navigation.links(made, types.DocumentLinkParams(nav.ident(found))) or []
    targets = {nav.covered(RICH, link.range): link.target or "" for link in got}
    assert targets["https://example.org/a-b"] == "https://example.org/a-b"
    assert targets["https://example.org/model_😀?q=1"]
    assert targets["machines.moe"] == nav.uri("machines.moe")
    assert "no/such.py:1" not in targets
    if find_spec("megatron") is not None:
        assert targets["parallel_state.py:822"].endswith("/megatron/core/parallel_state.py#L822")


# ---------------------------------------------------------------- half of a file

NEAR = types.ReferenceContext(True)


def ask_everything(text: str, offset: int) -> None:
    """Every pure answer about a text and a place in it; none may raise, and every range lies in the text."""
    made = nav.workspace({"run.moe": text})
    found = made.document(nav.uri("run.moe"))
    assert found is not None
    where, ident = nav.at(found, offset), nav.ident(found)
    all_tokens(text)
    structure.symbols(found, types.DocumentSymbolParams(ident))
    structure.folding(found, types.FoldingRangeParams(ident))
    structure.selections(found, types.SelectionRangeParams(ident, [where]))
    structure.formatting(found, types.DocumentFormattingParams(ident, OPTIONS))
    navigation.links(made, types.DocumentLinkParams(ident))
    actions.code_lenses(found, types.CodeLensParams(ident))
    navigation.references(made, types.ReferenceParams(NEAR, ident, where))
    navigation.highlight(found, types.DocumentHighlightParams(ident, where))
    actions.code_actions(made, types.CodeActionParams(ident, types.Range(where, where), types.CodeActionContext([])))


@pytest.mark.parametrize("path", rotation.some("prefixes", EXAMPLES, 2), ids=lambda p: p.stem)
def test_prefixes_of_the_examples(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    rng = random.Random(path.stem)
    for end in sorted(rng.sample(range(len(text)), min(12, len(text)))):
        ask_everything(text[:end], end)
        ask_everything(text[:end] + "😀日" + text[end:], end + 1)


def test_whatever_is_typed() -> None:
    rng = random.Random(11)
    pieces = [
        "{",
        "}",
        "(",
        "[",
        "]",
        '"',
        "#",
        "\n",
        ";",
        "😀",
        "tp",
        "run a",
        "pin ",
        "=",
        "model ",
        "128k",
        "\t",
        "\r",
    ]
    for _ in range(120):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(40)))
        ask_everything(text.replace("\r", ""), rng.randrange(len(text) + 1))


# Positions against Python's own codecs, whatever the text.

ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
TEXTS = st.text(st.sampled_from("ab #=\n\té枚🚀\u2028\u0085\x0b\ud800"), max_size=40)
ENCODING = st.sampled_from([*ENCODINGS])


def units(text: str, encoding: str) -> int:
    """How many code units a text has, by the codec."""
    codec, size = ENCODINGS[encoding]
    return len(text.encode(codec, "surrogatepass")) // size


@given(TEXTS, ENCODING, st.booleans())
def test_every_offset_has_the_position_that_the_codec_says(text: str, encoding: str, bom: bool) -> None:
    lines = Lines(text, encoding, bom)
    for offset in range(len(text) + 1):
        before = text[:offset].split("\n")
        mark = units("\ufeff", encoding) if bom and len(before) == 1 else 0
        expected = types.Position(len(before) - 1, units(before[-1], encoding) + mark)
        assert lines.position(offset) == expected
        assert lines.offset(expected) == offset


@given(TEXTS, ENCODING, st.integers(0, 60), st.integers(0, 60))
def test_a_position_outside_is_the_nearest_inside(text: str, encoding: str, line: int, character: int) -> None:
    lines = Lines(text, encoding)
    offset = lines.offset(types.Position(line, character))
    assert 0 <= offset <= len(text)
    rows = text.split("\n")
    if line < len(rows) and character >= units(rows[line], encoding):
        assert offset == len("\n".join(rows[: line + 1]))
    if line >= len(rows):
        assert offset == len(text)


def test_inside_a_character_is_before_it() -> None:
    assert Lines("a🚀b", "utf-16").offset(types.Position(0, 2)) == 1
    assert Lines("a🚀b", "utf-8").offset(types.Position(0, 3)) == 1


@given(TEXTS, ENCODING, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), TEXTS), max_size=5))
def test_edits_give_the_text_that_the_editor_has(text: str, encoding: str, edits: list[tuple[int, int, str]]) -> None:
    files = Workspace(Client(encoding=encoding))
    files.open("file:///a.moe", 1, text)
    expected = unified(text)
    for version, (start, end, new) in enumerate(edits, 2):
        start, end = sorted((min(start, len(expected)), min(end, len(expected))))
        begin, stop = (
            types.Position(len(b) - 1, units(b[-1], encoding))
            for b in (expected[:start].split("\n"), expected[:end].split("\n"))
        )
        change = types.TextDocumentContentChangePartial(range=types.Range(begin, stop), text=new)
        files.change("file:///a.moe", version, [change])
        expected = expected[:start] + new + expected[end:]
    assert files.documents["file:///a.moe"].lines.text == expected
