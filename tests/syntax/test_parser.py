"""The language of the design's section 3: what each statement parses to, whole words, and the list of errors."""

import re
from typing import Any, cast

import attrs
import pytest
from lark import Lark

from moedsl.lang import ast, tokens
from moedsl.lang.parser import parse
from moedsl.rules.evaluators import calls, names
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.resources import grammar_file, stdlib_files
from moedsl.support.source import Source, Span

AT = Span("", 0, 0)


def n(id: str) -> ast.Name:
    return ast.Name(id, AT)


def num(value: float, unit: str | None = None) -> ast.Number:
    return ast.Number(value, unit, "", AT)


def s(value: str) -> ast.String:
    return ast.String(value, AT)


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


STATEMENTS = {
    "model qwen3_235b_a22b": ast.ModelStmt(n("qwen3_235b_a22b"), AT),
    "qwen3_235b_a22b": ast.BareStmt(n("qwen3_235b_a22b"), None, AT),
    "gb200 x 256": ast.BareStmt(n("gb200"), num(256), AT),
    "hardware gb200 x 256": ast.HardwareStmt(n("gb200"), num(256), AT),
    "hardware gb200": ast.HardwareStmt(n("gb200"), None, AT),
    "seq 128k": ast.SeqStmt(num(131072), AT),
    "seq 1M": ast.SeqStmt(num(1048576), AT),
    "batch 1024": ast.BatchStmt(num(1024), AT),
    "micro_batch 1": ast.MicroBatchStmt(num(1), AT),
    "precision mxfp8": ast.PrecisionStmt(n("mxfp8"), AT),
    "precision auto": ast.PrecisionStmt(n("auto"), AT),
    "task sft": ast.TaskStmt(n("sft"), AT),
    "fit first": ast.PhaseStmt(n("fit"), AT),
    "throughput first": ast.PhaseStmt(n("throughput"), AT),
    "vlm": ast.VlmStmt((), AT),
    "vlm freeze_vision freeze_language fsdp": ast.VlmStmt((n("freeze_vision"), n("freeze_language"), n("fsdp")), AT),
    "vlm 3d": ast.VlmStmt((n("3d"),), AT),
    "data mock": ast.DataStmt(n("mock"), None, (), AT),
    'data "path"': ast.DataStmt(None, s("path"), (), AT),
    'data hf "squad" pack=off': ast.DataStmt(n("hf"), s("squad"), (ast.Binding(n("pack"), n("off"), AT),), AT),
    'weights "path"': ast.WeightsStmt(None, s("path"), AT),
    'weights hf "org/name"': ast.WeightsStmt(n("hf"), s("org/name"), AT),
    "adapter lora": ast.AdapterStmt(n("lora"), (), AT),
    "adapter dora rank=8": ast.AdapterStmt(n("dora"), (ast.Binding(n("rank"), num(8), AT),), AT),
    "resilience ft": ast.ResilienceStmt(n("ft"), (), AT),
    "resilience nvrx_straggler stop_if_detected=on": ast.ResilienceStmt(
        n("nvrx_straggler"), (ast.Binding(n("stop_if_detected"), n("on"), AT),), AT
    ),
    "for 14 days": ast.ForStmt(n("14"), n("days"), AT),
    "for 1.5T tokens": ast.ForStmt(n("1.5T"), n("tokens"), AT),
    "routing balanced": ast.RoutingStmt(n("balanced"), AT),
    "pin tp=4 cp = 2": ast.PinStmt((ast.Binding(n("tp"), num(4), AT), ast.Binding(n("cp"), num(2), AT)), AT),
    "pin recompute=[moe_act, layernorm] dispatcher=hybridep": ast.PinStmt(
        (
            ast.Binding(n("recompute"), ast.List((n("moe_act"), n("layernorm")), AT), AT),
            ast.Binding(n("dispatcher"), n("hybridep"), AT),
        ),
        AT,
    ),
    "pin micro_batch=2 precision=bf16 x=1": ast.PinStmt(
        (
            ast.Binding(n("micro_batch"), num(2), AT),
            ast.Binding(n("precision"), n("bf16"), AT),
            ast.Binding(n("x"), num(1), AT),
        ),
        AT,
    ),
    "require dp >= 2": ast.Require(None, ast.Binary(">=", n("dp"), num(2), AT), None, (), AT),
    "require seq % 2 == 0": ast.Require(
        None, ast.Binary("==", ast.Binary("%", n("seq"), num(2), AT), num(0), AT), None, (), AT
    ),
    "prefer cp <= 8": ast.Prefer(None, ast.Binary("<=", n("cp"), num(8), AT), None, None, (), AT),
    'prefer small: cp <= 8 worth 2% because "b"': ast.Prefer(
        n("small"), ast.Binary("<=", n("cp"), num(8), AT), num(2, "%"), s("b"), (), AT
    ),
    'allow std.cp.near because "measured"': ast.AllowStmt(n("std.cp.near"), s("measured"), AT),
    "sweep micro_batch in 1, 2, 4": ast.SweepStmt(n("micro_batch"), (num(1), num(2), num(4)), AT),
    'set model.moe_router_dtype = "fp32"': ast.SetStmt(n("model.moe_router_dtype"), s("fp32"), AT),
    "set optimizer.lr = 3e-4": ast.SetStmt(n("optimizer.lr"), num(3e-4), AT),
    "set model.x = [true, none]": ast.SetStmt(n("model.x"), ast.List((ast.Bool(True, AT), n("none")), AT), AT),
    "target bridge 0.6.2": ast.TargetStmt(n("bridge"), s("0.6.2"), AT),
    'use "file.moe"': ast.UseDecl(s("file.moe"), AT),
    "run big from small { seq 4k; gb200 }": ast.RunDecl(
        n("big"), n("small"), (ast.SeqStmt(num(4096), AT), ast.BareStmt(n("gb200"), None, AT)), AT
    ),
    "cluster c { gpus_per_node 8 }": ast.ClusterDecl(n("c"), (ast.FactEntry(n("gpus_per_node"), num(8), (), AT),), AT),
    "profile p { vlm }": ast.ProfileDecl(n("p"), (ast.VlmStmt((), AT),), AT),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statement(text: str) -> None:
    assert parsed(text) == (STATEMENTS[text],)


def test_the_line_that_must_compile_as_written() -> None:
    assert parsed("fit first; gb200; seq 128k; vlm freeze_vision") == (
        ast.PhaseStmt(n("fit"), AT),
        ast.BareStmt(n("gb200"), None, AT),
        ast.SeqStmt(num(131072), AT),
        ast.VlmStmt((n("freeze_vision"),), AT),
    )


def test_hardware_and_model_declarations() -> None:
    hardware, model = parsed(
        "hardware gb200 { arch blackwell; memory 186 GB; tflops bf16=2500 fp8=5000 }\n"
        'model m {\n  hf "Qwen/Q" ; experts 128 topk 8 cite hf "config.json"\n'
        "  vision { layers 27 }\n  data 1; seq 2\n}"
    )
    assert hardware == ast.HardwareDecl(
        n("gb200"),
        (
            ast.FactEntry(n("arch"), n("blackwell"), (), AT),
            ast.FactEntry(n("memory"), num(186, "GB"), (), AT),
            ast.FactEntry(
                n("tflops"), (ast.Binding(n("bf16"), num(2500), AT), ast.Binding(n("fp8"), num(5000), AT)), (), AT
            ),
        ),
        AT,
    )
    cite = (ast.Cite(n("hf"), s("config.json"), AT),)
    assert model == ast.ModelDecl(
        n("m"),
        (
            ast.FactEntry(n("hf"), s("Qwen/Q"), (), AT),
            ast.FactEntry(n("experts"), num(128), cite, AT),
            ast.FactEntry(n("topk"), num(8), cite, AT),
            ast.FactEntry(n("vision"), (ast.FactEntry(n("layers"), num(27), (), AT),), (), AT),
            ast.FactEntry(n("data"), num(1), (), AT),
            ast.FactEntry(n("seq"), num(2), (), AT),
        ),
        AT,
    )


def test_rules_with_clauses_on_following_lines() -> None:
    (rules,) = parsed(
        """
rules ep_overlap when overlap.ep {
  require needs_vpp: pp > 1 => vpp > 1
    # a comment between
    because "1F1B overlap interleaves virtual stages"

    cite bridge "training/comm_overlap.py" seed "expert-parallel overlap"
  let dp = gpus // (tp *
                    cp * pp)
}
"""
    )
    law = ast.Binary("=>", ast.Binary(">", n("pp"), num(1), AT), ast.Binary(">", n("vpp"), num(1), AT), AT)
    cites = (
        ast.Cite(n("bridge"), s("training/comm_overlap.py"), AT),
        ast.Cite(n("seed"), s("expert-parallel overlap"), AT),
    )
    product = ast.Binary("*", ast.Binary("*", n("tp"), n("cp"), AT), n("pp"), AT)
    assert rules == ast.RulesDecl(
        n("ep_overlap"),
        None,
        n("overlap.ep"),
        (
            ast.Require(n("needs_vpp"), law, s("1F1B overlap interleaves virtual stages"), cites, AT),
            ast.Let(n("dp"), ast.Binary("//", n("gpus"), product, AT), None, (), AT),
        ),
        AT,
    )


@pytest.mark.parametrize("word", ["default", "candidates", "derive", "env"])
def test_members_with_a_condition(word: str) -> None:
    (rules,) = parsed(f'rules r {{ {word} a = [1]\n when x in [b]\n because "c" }}')
    assert isinstance(rules, ast.RulesDecl)
    (member,) = rules.members
    assert type(member).__name__.lower() == word
    assert member.when == ast.Binary("in", n("x"), ast.List((n("b"),), AT), AT)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a => b => c", "(a => (b => c))"),
        ("a or b and not c == d", "(a or (b and (not (c == d))))"),
        ("a - b - c", "((a - b) - c)"),
        ("a + b * -c // d", "(a + ((b * (- c)) // d))"),
        ("x not in y", "(x not in y)"),
        ("not x in y", "(not (x in y))"),
        ("if a then b else c => d", "(if a b (c => d))"),
        ("a => if b then c else d", "(a => (if b c d))"),
    ],
)
def test_precedence(text: str, tree: str) -> None:
    (item,) = parsed(f"require {text}")
    assert isinstance(item, ast.Require)
    assert _tree(item.expr) == tree


def _tree(e: ast.Expr) -> str:
    if isinstance(e, ast.Binary):
        return f"({_tree(e.left)} {e.op} {_tree(e.right)})"
    if isinstance(e, ast.Unary):
        return f"({e.op} {_tree(e.value)})"
    if isinstance(e, ast.If):
        return f"(if {_tree(e.test)} {_tree(e.then)} {_tree(e.otherwise)})"
    assert isinstance(e, ast.Name)
    return e.id


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("128k", 131072, None),
        ("1.5k", 1536, None),
        ("2G", 2**31, None),
        ("186GB", 186, "GB"),
        ("3.35 TB/s", 3.35, "TB/s"),
        ("2.5 PFLOPS", 2.5, "PFLOPS"),
        ("2%", 2, "%"),
        ("2 %", 2, "%"),
        ("1e-5", 1e-5, None),
        ("007", 7, None),
    ],
)
def test_numbers(text: str, value: float, unit: str | None) -> None:
    (item,) = parsed(f"seq {text}")
    assert item == ast.SeqStmt(num(value, unit), AT)


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
    assert parsed(text) == (ast.BareStmt(n(text), None, AT),)


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
    assert parsed(r'data "a\"b\\c\nd#e"') == (ast.DataStmt(None, s('a"b\\c\nd#e'), (), AT),)
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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("modle qwen3", "model"),
        ("hardwre gb200 x 8", "hardware"),
        ("seqq 128k", "seq"),
        ("fit frist", "first"),
        ("Pin tp=4", "pin"),
        ("run a form b { }", "from"),
        ("rules r { requier a: b }", "require"),
        ("require a: if b thn c else d", "then"),
        ('require a becuase "b"', "because"),
        ("sweep tp on 1, 2", "in"),
    ],
)
def test_did_you_mean(text: str, word: str) -> None:
    assert len(errors(text)) == 1
    assert word in helps(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("require a = 4", "write == to compare"),
        ("require a < b < c", "a < b and b < c"),
        ("pin in=4", "cannot be a name"),
        ("require a && b", "write and"),
        ("require \u201ca\u201d", 'write "'),
        ("seq\u00a04k", "no-break space"),
        ("rules r { require a > 2 }", "require NAME:"),
        ("run r { rules s { } }", "cannot stand inside"),
        ("seq", "expected a number"),
        ("pin", "expected a name"),
        ("require (a +", "never closed"),
    ],
)
def test_ways_out(text: str, hint: str) -> None:
    assert len(errors(text)) == 1
    assert hint in helps(text)


def test_messages_speak_no_terminal_names() -> None:
    for text in ("seq x", "pin tp", "rules r { 4 }", "hardware h { 4 }", "run 4", "(", "require", "a b", "}"):
        words = set(re.findall(r"[A-Z]{2,}", helps(text)))
        assert words <= {"NAME"}, helps(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run a { seq 4k\nrun b { seq 8k }\nseq 1k", [("parse.unclosed", 1, 7, "{")]),
        ("hardware a { x 1\nhardware b { y 2 }", [("parse.unclosed", 1, 12, "{")]),
        ("model a { vision { x 1\nmodel b { y 2 }", [("parse.unclosed", 1, 9, "{"), ("parse.unclosed", 1, 18, "{")]),
        ("run a { seq 4k; pin", [("parse.unclosed", 1, 7, "{")]),
        ("run a {\n pin tp=(4\n seq 4k\n}\nseq 4k", [("parse.unclosed", 2, 9, "(")]),
        ("pin a=[1, 2\nseq 4k", [("parse.unclosed", 1, 7, "[")]),
        ("seq 4k\n}\nseq 4k", [("parse.unclosed", 2, 1, "}")]),
        ("seq 4k)\nseq 4k", [("parse.unclosed", 1, 7, ")")]),
        ("hardwre a { b 1; c { d 2 } }\nseq", [("parse.unexpected", 1, 1, "hardwre"), ("parse.unexpected", 2, 4, "")]),
    ],
)
def test_brackets(text: str, expected: list[tuple[str, int, int, str]]) -> None:
    assert errors(text) == expected


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
    assert [calls(wish.expr, f) for f in ("min", "max")] == [True, False]
