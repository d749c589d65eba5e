"""Positions against Python's own codecs, whatever the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from moedsl.lsp.client import Client
from moedsl.lsp.positions import Lines
from moedsl.lsp.workspace import Workspace, unified

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
    assert files.entries["file:///a.moe"].lines.text == expected
