"""Print, parse, equal; and a formatter that loses nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moedsl.lang import ast
from moedsl.lang.formatter import format_source
from moedsl.lang.parser import parse
from moedsl.lang.printer import print_expr, print_module
from moedsl.support.resources import stdlib_files
from moedsl.support.source import Source
from tests.helpers import rotation, strategies

slow = settings(max_examples=rotation.examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def parsed(text: str) -> ast.Module:
    module, diagnostics = parse(Source("t.moe", text))
    assert module is not None
    assert not diagnostics, (text, diagnostics)
    return module


def formatted(text: str) -> str:
    out, diagnostics = format_source(Source("t.moe", text))
    assert out is not None, diagnostics
    return out


@slow
@given(strategies.module)
def test_print_parse_equal(module: ast.Module) -> None:
    assert parsed(print_module(module)) == module


@slow
@given(strategies.module)
def test_the_formatter_keeps_the_program_and_is_idempotent(module: ast.Module) -> None:
    once = formatted(print_module(module))
    assert parsed(once) == module
    assert formatted(once) == once


@slow
@given(strategies.module, st.data())
def test_the_formatter_keeps_comments_wherever_a_line_ends(module: ast.Module, data: st.DataObject) -> None:
    lines = print_module(module).split("\n")
    marks = [data.draw(st.sampled_from(["", "  # c%d", "\n# c%d", "\n\n\n# c%d\n\n"])) for _ in lines]
    text = "\n".join(line + (mark % i if mark else "") for i, (line, mark) in enumerate(zip(lines, marks, strict=True)))
    once = formatted(text)
    assert re.findall(r"# c\d+", once) == re.findall(r"# c\d+", text)
    assert "\n\n\n" not in once
    assert parsed(once) == module
    assert formatted(once) == once


@pytest.mark.parametrize("path", rotation.some("printed files", stdlib_files(), 24), ids=lambda p: p.stem)
def test_the_stdlib_survives(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = parsed(text)
    assert parsed(print_module(module)) == module
    assert parsed(formatted(text)) == module


@pytest.mark.parametrize(
    "text",
    [
        "a => b => c",
        "(a => b) => c",
        "a or b and not c",
        "(a or b) and c",
        "not (a and b)",
        "-(a + b) * c",
        "a - (b - c)",
        "a - b - c",
        "a // (b * c) % d",
        "(if a then b else c) + 1",
        "if a then b else if c then d else e",
        "(a < b) == (c < d)",
        "x not in [a, b]",
        "not x in [a]",
        "--1",
        "2% * x",
        "10 % 3",
        "186 GB",
        "min(a, max(b, c))",
    ],
)
def test_only_parentheses_that_matter(text: str) -> None:
    (item,) = parsed(f"require {text}").items
    assert isinstance(item, ast.Require)
    assert print_expr(item.expr) == text


def test_layout() -> None:
    text = """\
# top


#   kept as it is
fit   first;gb200   x 256 # trailing
model   m   # longer



pin tp = 4 cp=-4 recompute=[ moe_act,layernorm ]
hardware h { arch blackwell;memory 186GB; tflops bf16 = 3 }
hardware h2 { # opener
a 1; b 2

}
rules r when a and ( b or c ) {
require x: (a+b)*-c<=4%2 => if a then b else min( 1,2 )
   # why
   because "x" # more
   cite a "b" c "d"
rank y: [ a, # first
  b ] when phase==fit
prefer z:a<1 worth 2 %  because "yes" }
"""
    assert (
        formatted(text)
        == """\
# top

#   kept as it is
fit first; gb200 x 256  # trailing
model m                 # longer

pin tp=4 cp=-4 recompute=[moe_act, layernorm]
hardware h { arch blackwell; memory 186 GB; tflops bf16=3 }
hardware h2 {
  # opener
  a 1; b 2
}
rules r when a and (b or c) {
  require x: (a + b) * -c <= 4 % 2 => if a then b else min(1, 2)
    # why
    because "x"  # more
    cite a "b" c "d"
  rank y: [a,  # first
    b] when phase == fit
  prefer z: a < 1 worth 2% because "yes"
}
"""
    )


def test_a_long_line_is_broken_before_its_clauses_and_between_statements() -> None:
    words = "a" * 60
    assert formatted(f'require {words} because "{words}"') == f'require {words}\n  because "{words}"\n'
    assert formatted(f"model {words}; model {words}") == f"model {words}\nmodel {words}\n"
    assert formatted(f"run r {{ {words}; {words} }}") == f"run r {{\n  {words}\n  {words}\n}}\n"


def test_a_file_that_does_not_parse_is_not_formatted() -> None:
    text, diagnostics = format_source(Source("t.moe", "pin tp=\nseq 4k"))
    assert text is None
    assert [d.id for d in diagnostics] == ["parse.unexpected"]
