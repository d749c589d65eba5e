"""Print, parse, equal; and a formatter that loses nothing."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moedsl.compiler import compile_source
from moedsl.lang import ast, text_edits
from moedsl.lang.formatter import format_source
from moedsl.lang.parser import parse
from moedsl.lang.printer import print_expr, print_module
from moedsl.lang.tokens import lexemes
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.resources import stdlib_files
from moedsl.support.source import Source
from tests.helpers import rotation, strategies
from tests.helpers.paths import EXAMPLES
from tests.helpers.tables import table_of

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


@pytest.mark.parametrize("path", rotation.some("printed files", stdlib_files(), 12), ids=lambda p: p.stem)
def test_the_stdlib_survives(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = parsed(text)
    assert parsed(print_module(module)) == module
    assert parsed(formatted(text)) == module


@pytest.mark.parametrize("text", table_of("syntax", "only parentheses that matter"))
def test_only_parentheses_that_matter(text: str) -> None:
    (item,) = parsed(f"require {text}").items
    assert isinstance(item, ast.Require)
    assert print_expr(item.expr) == text


def test_layout() -> None:
    before, after = (
        Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("layout.moe", "layout_formatted.moe")
    )
    assert formatted(before) == after


def test_a_long_line_is_broken_before_its_clauses_and_between_statements() -> None:
    words = "a" * 60
    assert formatted(f'require {words} because "{words}"') == f'require {words}\n  because "{words}"\n'
    assert formatted(f"model {words}; model {words}") == f"model {words}\nmodel {words}\n"
    assert formatted(f"run r {{ {words}; {words} }}") == f"run r {{\n  {words}\n  {words}\n}}\n"


def test_a_file_that_does_not_parse_is_not_formatted() -> None:
    text, diagnostics = format_source(Source("t.moe", "pin tp=\nseq 4k"))
    assert text is None
    assert [d.id for d in diagnostics] == ["parse.unexpected"]


# Every fix of a diagnostic, applied, gives a file that parses and no longer has that diagnostic.

BASE = "qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n"
BROKEN = {name: text.replace("{base}", BASE) for name, text in table_of("syntax", "printer: broken").items()}
INFEASIBLE = {
    "a pin against a law": "qwen3_30b_a3b; gb200 x 64; pin dispatcher=deepep",
    "a pin among others": BASE.replace("h100", "gb200") + "pin tp=1 dispatcher=deepep",
    "a statement that pins": "qwen3_235b_a22b\nh100 x 64\nseq 4k\nbatch 64\nmicro_batch 48\nfit first",
    "precision": "qwen3_30b_a3b\nh100 x 16\nseq 4k\nprecision nvfp4\nfit first",
    "a wish": BASE + "require tp == 3",
    "a named wish": BASE + 'require whole: tp == 3\n  because "we like three"',
    "in a run": "qwen3_30b_a3b\nrun a { gb200 x 64; pin dispatcher=deepep }",
    "memory": "qwen3_235b_a22b\nh100 x 8\nseq 128k\nfit first",
    "memory, seq by default": "qwen3_235b_a22b\nh100 x 8\nfit first",
    "a phase": BASE + "require ep_overlap",
    "a phase in a run": "qwen3_30b_a3b\nh100 x 16\nrun a {\n  seq 4k  # short\n  fit first; require vpp == 2\n}",
}


SOLVED = ("set decided", "partial node", "smallest")
"""Mistakes that the solver finds."""


def found(text: str, stage: str = "plan") -> list[Diagnostic]:
    return compile_source(Source("run.moe", text), stage).diagnostics


def key(d: Diagnostic) -> tuple[str, str]:
    return d.id, d.message


@pytest.mark.parametrize("name", BROKEN)
def test_a_fix_answers_its_diagnostic(name: str) -> None:
    text, stage = BROKEN[name], "plan" if name in SOLVED else "check"
    source = Source("run.moe", text)
    module, unread = parse(source)
    fixable = [d for d in found(text, stage) if d.fixes]
    assert fixable, [d.message for d in found(text, stage)]
    for d in fixable:
        for fix in d.fixes:
            changes = text_edits.edits(fix, source, module)
            assert changes, fix
            after = text_edits.applied(text, changes)
            left = found(after, stage)
            assert key(d) not in {key(x) for x in left}, (fix, after)
            _, still = parse(Source("run.moe", after))
            assert len(still) <= len(unread), (fix, after)
            if not d.id.startswith("parse."):
                assert len(still) == len(unread), (fix, after)


@pytest.mark.parametrize("name", rotation.some("relaxed", [*INFEASIBLE], 2))
def test_each_relaxation_opens_a_layout(name: str) -> None:
    text = INFEASIBLE[name]
    source = Source("run.moe", text)
    module, _ = parse(source)
    failures = [d for d in found(text, "solve") if d.is_error]
    assert len(failures) == 1
    assert failures[0].fixes
    for fix in rotation.some(f"relaxations of {name}", failures[0].fixes, 1):
        after = text_edits.applied(text, text_edits.edits(fix, source, module))
        assert not [d.message for d in found(after, "solve") if d.is_error], (fix, after)


MUTATIONS: dict[str, Callable[[str], str]] = {
    "a letter less": lambda w: w[: len(w) // 2] + w[len(w) // 2 + 1 :],
    "two letters swapped": lambda w: w[:1] + w[2:3] + w[1:2] + w[3:],
    "a letter more": lambda w: w + w[-1:],
    "said twice": lambda w: f"{w} {w}",
    "gone": lambda w: "",
}


def slips(count: int) -> Iterator[tuple[str, str]]:
    """Examples with one word or bracket mistyped."""
    rng = random.Random(5)
    for i in range(count):
        text = rng.choice(EXAMPLES).read_text(encoding="utf-8")
        found = [x for x in lexemes(text) if x.kind in ("word", "open", "close", "semicolon", "op")]
        word, how = rng.choice(found), rng.choice([*MUTATIONS])
        yield f"{i}: {how} {word.text}", text[: word.start] + MUTATIONS[how](word.text) + text[word.end :]


@pytest.mark.parametrize(("slip", "text"), [pytest.param(s, t, id=s) for s, t in slips(40)])
def test_a_fix_of_a_slip(slip: str, text: str) -> None:
    source = Source("examples/run.moe", text)
    module, unread = parse(source)
    for d in compile_source(source, "check").diagnostics:
        for fix in d.fixes:
            after = Source(source.name, text_edits.applied(text, text_edits.edits(fix, source, module)))
            _, still = parse(after)
            assert key(d) not in {key(x) for x in compile_source(after, "check").diagnostics}, (slip, fix, after.text)
            assert len(still) <= len(unread), (slip, fix, after.text)
