"""Diagnostics as text: the expected text is written out, so a caret that moves is seen."""

import json
import re

import pytest

from moedsl.support import render as module
from moedsl.support.diagnostics import Diagnostic, Label, error, to_json
from moedsl.support.render import render, render_all
from moedsl.support.source import Source, Span


def shown(diagnostic: Diagnostic, *sources: Source, colour: bool = False) -> str:
    form = to_json(diagnostic, {s.name: s for s in sources})
    return render(json.loads(json.dumps(form)), colour=colour)


def at(text: str, part: str, **more: str) -> str:
    """An error at the first place where `part` stands in `text`."""
    start = text.index(part)
    return shown(error("a.b.c", "message", Span("t.moe", start, start + len(part))), Source("t.moe", text))


def test_the_format_of_the_design() -> None:
    run = Source("run.moe", "gb200 x 256\npin pp=8 vpp=1\n")
    std = Source("stdlib/rules/ep_overlap.moe", "\n\n  require needs_vpp: pp > 1 => vpp > 1\n")
    diagnostic = error(
        "std.ep_overlap.needs_vpp",
        "EP overlap with pp=8 needs vpp > 1",
        Label(Span("run.moe", 21, 26), "pinned here"),
        Label(Span(std.name, 4, 11), "required here"),
        because="1F1B overlap interleaves virtual stages",
        cites=("bridge training/comm_overlap.py",),
        values={"pp": 8, "recompute": ["moe_act"], "overlap.ep": True},
        help="pin vpp >= 2, or drop overlap.ep",
    )
    assert (
        shown(diagnostic, run, std)
        == """\
error[std.ep_overlap.needs_vpp]: EP overlap with pp=8 needs vpp > 1
  --> run.moe:2:10
   |  pin pp=8 vpp=1
   |           ^^^^^ pinned here
  ::: stdlib/rules/ep_overlap.moe:3:3  required here
   = because: 1F1B overlap interleaves virtual stages
   = cite: bridge training/comm_overlap.py
   = pp: 8
   = recompute: [moe_act]
   = overlap.ep: true
help: pin vpp >= 2, or drop overlap.ep"""
    )


@pytest.mark.parametrize(
    ("line", "part", "expected", "carets"),
    [
        ("\tpin  tp=3", "tp=3", "    pin  tp=3", "         ^^^^"),
        ('data "日本" x', "x", 'data "日本" x', " " * 12 + "^"),
        ('data "日本" x', '"日本"', 'data "日本" x', "     ^^^^^^"),
        ('data "🚀" x', "x", 'data "🚀" x', " " * 10 + "^"),
        ('data "e\u0301" x', "x", 'data "e\u0301" x', " " * 9 + "^"),
        ("a \x1b[31m b", "b", "a \\x1b[31m b", " " * 11 + "^"),
    ],
)
def test_carets_stand_under_what_they_mean(line: str, part: str, expected: str, carets: str) -> None:
    _, _, source, marks = at(line, part).split("\n")
    assert source == "   |  " + expected
    assert marks == "   |  " + carets


def test_the_end_of_the_text_has_a_caret() -> None:
    text = "seq"
    out = shown(error("a.b.c", "message", Label(Span("t.moe", 3, 3), "missing")), Source("t.moe", text))
    assert out.split("\n")[1:] == ["  --> t.moe:1:4", "   |  seq", "   |     ^ missing"]
    out = shown(error("a.b.c", "message", Span("t.moe", 4, 4)), Source("t.moe", "seq\n"))
    assert out.split("\n")[1:] == ["  --> t.moe:2:1", "   |  ", "   |  ^"]


def test_a_span_over_several_lines_is_marked_on_its_first() -> None:
    out = at("run a {\n  seq 4k\n}\n", "a {\n  seq 4k\n}")
    assert out.split("\n")[1:] == ["  --> t.moe:1:5", "   |  run a {", "   |      ^^^ to line 3"]


def test_a_long_line_is_cut_around_the_carets() -> None:
    line = "a " * 500 + "HERE" + " b" * 500
    _, place, source, marks = at(line, "HERE").split("\n")
    assert place.endswith("t.moe:1:1001")
    assert len(source) <= 115
    assert source.startswith("   |  ...")
    assert source.endswith("...")
    start = marks.index("^")
    assert source[start : start + 4] == "HERE"
    assert marks.count("^") == 4


def test_only_what_is_near_the_carets_of_a_long_line_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, cell = list[str](), module._cell
    monkeypatch.setattr(module, "_cell", lambda c: seen.append(c) or cell(c))
    line = "\u0301" * 100_000 + "x" * 1000 + "HERE" + "y" * 100_000
    _, _, source, marks = at(line, "HERE").split("\n")
    assert source[marks.index("^") :].startswith("HEREyyy")
    assert len(seen) < 1000


def test_a_place_without_its_source() -> None:
    out = shown(error("read.missing", "a.moe does not exist", Span("a.moe", 0, 0), help="check the path"))
    assert out == "error[read.missing]: a.moe does not exist\n  --> a.moe\nhelp: check the path"


def test_colour_changes_nothing_but_colour() -> None:
    diagnostic = error("a.b.c", "message", Label(Span("t.moe", 0, 3), "here"), help="do this")
    source = Source("t.moe", "seq 4k")
    coloured = shown(diagnostic, source, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(diagnostic, source)
    assert "\x1b" not in shown(diagnostic, source)


def test_several_are_counted() -> None:
    one = to_json(error("a.b.c", "first"), {})
    assert render_all([]) == ""
    assert render_all([one]) == "error[a.b.c]: first\n"
    assert render_all([one, one]) == "error[a.b.c]: first\n\nerror[a.b.c]: first\n\n2 errors\n"
