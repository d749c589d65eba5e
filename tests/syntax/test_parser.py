"""The language of the design's section 3: what each statement parses to, whole words, and the list of errors."""

import re
from typing import Any, cast

import attrs
import pytest
from lark import Lark

from moedsl.lang import ast, tokens
from moedsl.lang.parser import parse
from moedsl.rules.evaluators import names
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.resources import grammar_file, stdlib_files
from moedsl.support.source import Source, Span
from tests.helpers.tables import table_of

AT = Span("", 0, 0)


def parsed(text: str) -> tuple[ast.Item, ...]:
    module, diagnostics = parse(Source("t.moe", text))
    assert module is not None
    assert not diagnostics, diagnostics
    return module.items


def errors(text: str) -> list[tuple[str, int, int, str]]:
    """Id, line and column of each error, and the text that its first label covers."""
    source = Source("t.moe", text)
    _, diagnostics = parse(source)
    return [_place(d, source) for d in diagnostics]


def _place(d: Diagnostic, source: Source) -> tuple[str, int, int, str]:
    label = to_json(d, {"t.moe": source})["labels"][0]
    span = d.labels[0].span
    return d.id, label["line"], label["column"], source.text[span.start : span.end]


def helps(text: str) -> str:
    _, (first, *_) = parse(Source("t.moe", text))
    return " ".join((first.message, *first.help))


def shown(x: Any) -> str:
    """A tree as text: names as they are, <numbers>, "strings", [several], - for nothing."""
    match x:
        case None:
            return "-"
        case tuple():
            return f"[{' '.join(map(shown, x))}]"
        case ast.Name():
            return x.id
        case ast.String():
            return f'"{x.value}"'
        case ast.Number():
            return f"<{int(x.value) if x.value % 1 == 0 else x.value}{f' {x.unit}' if x.unit else ''}>"
        case ast.Binary():
            return f"({shown(x.left)} {x.op} {shown(x.right)})"
        case ast.Unary():
            return f"({x.op} {shown(x.value)})"
        case ast.If():
            return f"(if {shown(x.test)} {shown(x.then)} {shown(x.otherwise)})"
        case _:
            own = (getattr(x, f.name) for f in attrs.fields(type(x)) if f.eq)
            return f"{type(x).__name__}({' '.join(str(v) if isinstance(v, str | bool) else shown(v) for v in own)})"


@pytest.mark.parametrize("text, trees", [(text, trees) for text, *trees in table_of("syntax", "trees")])
def test_what_is_written_parses_to(text: str, trees: list[str]) -> None:
    assert [shown(item) for item in parsed(text)] == trees


@pytest.mark.parametrize("word", ["default", "candidates", "derive", "env"])
def test_members_with_a_condition(word: str) -> None:
    (rules,) = parsed(f'rules r {{ {word} a = [1]\n when x in [b]\n because "c" }}')
    assert isinstance(rules, ast.RulesDecl)
    (member,) = rules.members
    assert type(member).__name__.lower() == word
    assert shown(member.when) == "(x in List([b]))"  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "tree"), table_of("syntax", "precedence"))
def test_precedence(text: str, tree: str) -> None:
    (item,) = parsed(f"require {text}")
    assert isinstance(item, ast.Require)
    assert shown(item.expr) == tree


@pytest.mark.parametrize("text", ["12q8", "1.2.3", "0x10", "4e", "1e400", "9" * 400])
def test_wrong_numbers(text: str) -> None:
    assert errors(f"seq 1\nseq {text}") == [("parse.number", 2, 5, text)]


def test_percent_is_modulus_before_an_operand() -> None:
    for text in ("seq %4", "seq % 4", "8 % cp", "8%cp", "8 %(cp)"):
        (item,) = parsed(f"require {text}")
        assert isinstance(item, ast.Require)
        assert isinstance(item.expr, ast.Binary)


@pytest.mark.parametrize("text", ["x8", "fitfirst", "gb200x256", "modelx", "seq128k", "seq_", "model.x", "vlmfsdp"])
def test_words_are_whole(text: str) -> None:
    assert [shown(item) for item in parsed(text)] == [f"BareStmt({text} -)"]


def test_x_needs_its_spaces() -> None:
    assert errors("gb200 x256") == [("parse.unexpected", 1, 7, "x256")]
    assert "`x 256`" in helps("gb200 x256")
    assert "`x 256`" in helps("gb200 256")


def test_spans_cover_what_was_written() -> None:
    text = 'seq 4k\nrequire a: (tp + 1) * cp\n  because "b" # c\npin tp=4'
    items = parsed(text)
    assert [text[i.span.start : i.span.end] for i in items] == [
        "seq 4k",
        'require a: (tp + 1) * cp\n  because "b"',
        "pin tp=4",
    ]
    require = items[1]
    assert isinstance(require, ast.Require)
    assert text[require.expr.span.start : require.expr.span.end] == "(tp + 1) * cp"


def test_strings() -> None:
    assert shown(parsed(r'data "a\"b\\c\nd#e"')) == '[DataStmt(- "a"b\\c\nd#e" [])]'
    assert errors(r'data "a\qb"') == [("parse.string", 1, 8, r"\q")]
    assert errors('data "abc\nseq 4k') == [("parse.string", 1, 6, '"abc')]


# ---------------------------------------------------------------- the error list


def test_three_wrong_statements_are_three_errors() -> None:
    text = """fit frist
require tp = 4
  because "this clause goes with it"
  cite a "b"
seq 4k
pin tp= cp=4
run r { gb200 x256; seq 8k }
"""
    assert errors(text) == [
        ("parse.unexpected", 1, 5, "frist"),
        ("parse.unexpected", 2, 12, "="),
        ("parse.unexpected", 6, 11, "="),
        ("parse.unexpected", 7, 15, "x256"),
    ]
    module, _ = parse(Source("t.moe", text))
    assert module is not None
    assert [type(i).__name__ for i in module.items] == ["SeqStmt", "RunDecl"]


@pytest.mark.parametrize(("text", "word"), table_of("syntax", "did you mean"))
def test_did_you_mean(text: str, word: str) -> None:
    assert len(errors(text)) == 1
    assert word in helps(text)


@pytest.mark.parametrize(("text", "hint"), table_of("syntax", "ways out"))
def test_ways_out(text: str, hint: str) -> None:
    assert len(errors(text)) == 1
    assert hint in helps(text)


def test_messages_speak_no_terminal_names() -> None:
    for text in ("seq x", "pin tp", "rules r { 4 }", "hardware h { 4 }", "run 4", "(", "require", "a b", "}"):
        words = set(re.findall(r"[A-Z]{2,}", helps(text)))
        assert words <= {"NAME"}, helps(text)


@pytest.mark.parametrize(("text", "expected"), table_of("syntax", "brackets"))
def test_brackets(text: str, expected: tuple[tuple[str, int, int, str], ...]) -> None:
    assert (*errors(text),) == expected


def test_clauses_with_nothing_before_them() -> None:
    assert errors('because "a"\nseq 4k') == [("parse.unexpected", 1, 1, "because")]
    assert errors('seq 4k\n  because "a"\nbatch 2') == [("parse.unexpected", 2, 3, "because")]


def test_the_words_found_without_the_grammar_are_the_grammars() -> None:
    lark = Lark(grammar_file().read_text(encoding="utf-8"), parser="lalr", start="module")
    number = re.compile(next(t.pattern.to_regexp() for t in lark.terminals if t.name == "NUMBER"))
    for text in ("2%", "2 % x", "2 %", "8 GB/s x", "1e-5k", "1.2.3", "4 GBx", "3 %)", "3 % because", "12q8 GB"):
        word = next(tokens.lexemes(text))
        match = number.match(text)
        assert match is not None
        assert word.text == match.group(), text


def kinds(value: Any) -> list[str]:
    """The classes of a tree, by the fields of each class."""
    if isinstance(value, tuple):
        return [k for v in cast(tuple[Any, ...], value) for k in kinds(v)]
    if not attrs.has(type(value)) or isinstance(value, Span):
        return []
    return [type(value).__name__, *(k for f in attrs.fields(type(value)) for k in kinds(getattr(value, f.name)))]


def test_walk_yields_every_node_in_the_order_of_the_fields() -> None:
    for path in stdlib_files():
        module, _ = parse(Source(path.name, path.read_text(encoding="utf-8")))
        assert module is not None
        assert [type(n).__name__ for n in ast.walk(module)] == kinds(module)


def test_operands_leave_out_the_name_of_a_called_function() -> None:
    module, _ = parse(Source("t.moe", "require if min(tp, 2) > 1 then -dp else [ep, 3]"))
    assert module is not None
    wish = module.items[0]
    assert isinstance(wish, ast.Require)
    called = [e for e in ast.walk(wish) if isinstance(e, ast.Call)]
    assert [ast.operands(c) for c in called] == [c.args for c in called]
    assert names(wish.expr) == {"tp", "dp", "ep"}
