"""Print an ast.Module without comments. Parsing the output gives an equal module (spans do not compare)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from moedsl.facts.units import SCALES
from moedsl.lang import ast

_LEVELS = {"=>": 1, "or": 2, "and": 3, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7}
_UNIT = re.compile(rf"[ \t]*({'|'.join(SCALES)})$")
_NOT, _COMPARISON, _SUM, _UNARY, _ATOM = 4, 5, 6, 8, 9


def print_module(module: ast.Module) -> str:
    """Print one statement per line, each clause on a separate line; end with a newline unless the module is empty."""
    return "".join(print_item(item) + "\n" for item in module.items)


def print_item(item: Any, indent: str = "") -> str:
    """Print one statement, declaration, fact or member of a rules block, without a final newline."""
    return indent + _PRINTERS[type(item)](item, indent)


def canonical_number(text: str) -> str:
    """Write ``186GB`` as ``186 GB`` and ``2 %`` as ``2%``."""
    return _UNIT.sub(lambda m: m[1] if m[1] == "%" else " " + m[1], text)


def print_expr(node: ast.Expr, level: int = 0) -> str:
    """Print an expression, in ( ) if it binds more loosely than `level` (0 `if` ... 5 comparison, 6 sum ... 9 atom)."""
    own = _ATOM
    match node:
        case ast.Binary():
            own = _LEVELS.get(node.op, _COMPARISON)
            left, right = {1: (2, 0), _COMPARISON: (_SUM, _SUM)}.get(own, (own, own + 1))
            text = f"{print_expr(node.left, left)} {node.op} {print_expr(node.right, right)}"
        case ast.Unary():
            own, space = (_NOT, " ") if node.op == "not" else (_UNARY, "")
            text = f"{node.op}{space}{print_expr(node.value, own)}"
        case ast.If():
            test, then, otherwise = (print_expr(e) for e in (node.test, node.then, node.otherwise))
            own, text = 0, f"if {test} then {then} else {otherwise}"
        case ast.Number():
            text = canonical_number(node.text)
        case ast.String():
            text = quote(node.value)
        case ast.Bool():
            text = "true" if node.value else "false"
        case ast.Name():
            text = node.id
        case ast.Call():
            text = f"{node.func.id}({_commas(node.args)})"
        case ast.List():
            text = f"[{_commas(node.items)}]"
    return text if own >= level else f"({text})"


def _commas(items: tuple[ast.Expr, ...]) -> str:
    return ", ".join(print_expr(e) for e in items)


def quote(text: str) -> str:
    """Format a string in double quotes, with escapes."""
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text).replace("\n", "\\n") + '"'


def _words(*fields: str) -> Callable[[Any, str], str]:
    """Return a printer for fixed words and, in { }, fields of the node."""

    def show(node: Any, _: str) -> str:
        out: list[str] = []
        for word in fields:
            value = getattr(node, word[1:-1]) if word[0] == "{" else word
            out.append(value if isinstance(value, str) else print_expr(value))
        return " ".join(out)

    return show


def _named(node: ast.DataStmt | ast.WeightsStmt) -> str:
    """Print ``hf "ORG/NAME"``, ``mock`` or ``"path"``."""
    quoted = [quote(node.value.value)] if node.value else []
    return " ".join([node.word.id, *quoted] if node.word else quoted)


def _bindings(bindings: tuple[ast.Binding, ...]) -> str:
    return " ".join(f"{b.name.id}={print_expr(b.value, _SUM)}" for b in bindings)


def _clauses(because: ast.String | None, cites: tuple[ast.Cite, ...], indent: str) -> str:
    lines = [f"because {quote(because.value)}"] if because else []
    lines += [f"cite {c.kind.id} {quote(c.where.value)}" for c in cites]
    return "".join(f"\n{indent}  {line}" for line in lines)


def _held(node: Any) -> str:
    """Print the releases in which a member or a block holds: `` since 0.5 until 0.7``."""
    said = ((word, getattr(node, word, None)) for word in ("since", "until"))
    return "".join(f" {word} {version.value}" for word, version in said if version)


def _claim(node: ast.Require | ast.Prefer, indent: str) -> str:
    word = "require" if isinstance(node, ast.Require) else "prefer"
    worth = f" worth {print_expr(node.worth)}" if isinstance(node, ast.Prefer) and node.worth else ""
    name = f"{node.name.id}: " if node.name else ""
    return f"{word} {name}{print_expr(node.expr)}{worth}{_held(node)}{_clauses(node.because, node.cites, indent)}"


def _member(word: str, mark: str) -> Callable[[Any, str], str]:
    """Return a printer for ``let NAME = EXPR``, ``rank NAME: EXPR when EXPR`` and the like, with their clauses."""

    def show(node: Any, indent: str) -> str:
        when = getattr(node, "when", None)
        condition = f" when {print_expr(when)}" if when else ""
        head = f"{word} {node.name.id}{mark} {print_expr(node.expr)}{condition}{_held(node)}"
        return head + _clauses(node.because, node.cites, indent)

    return show


def _symptom(node: ast.Symptom, indent: str) -> str:
    said = (("confirm", node.confirm), ("fix", node.fix))
    lines = [f"\n{indent}  {word} {quote(text.value)}" for word, text in said if text]
    head = f"symptom {node.name.id}: {quote(node.expr.value)}"
    return head + "".join(lines) + _clauses(node.because, node.cites, indent)


def _fact(node: ast.FactEntry, indent: str) -> str:
    if not isinstance(node.value, tuple):
        value = " " + print_expr(node.value, _SUM)
    elif node.value and isinstance(node.value[0], ast.Binding):
        value = " " + _bindings(node.value)  # type: ignore[arg-type]
    else:
        value = _block(node.value, indent)
    return node.name.id + value + _clauses(None, node.cites, indent)


def _block(items: tuple[Any, ...], indent: str) -> str:
    inner = "".join(print_item(item, indent + "  ") + "\n" for item in items)
    return f" {{\n{inner}{indent}}}" if items else " {}"


def _declaration(word: str, body: str) -> Callable[[Any, str], str]:
    """Return a printer for ``run NAME from BASE {``, ``rules NAME when EXPR {``, ``hardware NAME {`` and the like."""

    def show(node: Any, indent: str) -> str:
        base, subject, when = (getattr(node, n, None) for n in ("base", "subject", "when"))
        head = (
            f"{word} {node.name.id}" + (f" from {base.id}" if base else "") + (f" of {subject.id}" if subject else "")
        )
        return head + (f" when {print_expr(when)}" if when else "") + _held(node) + _block(getattr(node, body), indent)

    return show


_PRINTERS: dict[type[Any], Callable[[Any, str], str]] = {
    ast.SeqStmt: _words("seq", "{value}"),
    ast.BatchStmt: lambda n, _: f"batch {'near ' * n.near}{print_expr(n.value)}",
    ast.MicroBatchStmt: _words("micro_batch", "{value}"),
    ast.TaskStmt: _words("task", "{value}"),
    ast.PrecisionStmt: _words("precision", "{value}"),
    ast.RoutingStmt: _words("routing", "{value}"),
    ast.RiskStmt: _words("risk", "{value}"),
    ast.BareStmt: lambda n, _: n.name.id + (f" x {print_expr(n.count)}" if n.count else ""),
    ast.HardwareStmt: lambda n, _: f"hardware {n.name.id}" + (f" x {print_expr(n.count)}" if n.count else ""),
    ast.ModelStmt: _words("model", "{name}"),
    ast.PhaseStmt: _words("{value}", "first"),
    ast.WorkflowStmt: _words("workflow"),
    ast.SetStmt: _words("set", "{path}", "=", "{value}"),
    ast.ForStmt: _words("for", "{amount}", "{unit}"),
    ast.UseDecl: _words("use", "{path}"),
    ast.AdapterStmt: lambda n, _: f"adapter {n.method.id} {_bindings(n.bindings)}".rstrip(),
    ast.ResilienceStmt: lambda n, _: f"resilience {n.section.id} {_bindings(n.bindings)}".rstrip(),
    ast.FieldsStmt: lambda n, _: " ".join(
        [n.keyword.id, *([print_expr(n.value)] if n.value else []), *([_bindings(n.bindings)] if n.bindings else [])]
    ),
    ast.PinStmt: lambda n, _: f"pin {_bindings(n.bindings)}",
    ast.VlmStmt: lambda n, _: " ".join(["vlm", *(o.id for o in n.options)]),
    ast.DataStmt: lambda n, _: f"data {_named(n)} {_bindings(n.bindings)}".rstrip(),
    ast.WeightsStmt: lambda n, _: f"weights {_named(n)}",
    ast.SweepStmt: lambda n, _: f"sweep {n.axis.id} in {_commas(n.values)}",
    ast.IsolateStmt: lambda n, _: f"isolate {n.axis.id} in {_commas(n.values)}",
    ast.TargetStmt: lambda n, _: f"target {n.product.id} {n.version.value}",
    ast.AllowStmt: lambda n, _: f"allow {n.rule.id}" + (f" because {quote(n.because.value)}" if n.because else ""),
    ast.Require: _claim,
    ast.Prefer: _claim,
    ast.Symptom: _symptom,
    ast.FactEntry: _fact,
    ast.HardwareDecl: _declaration("hardware", "facts"),
    ast.ModelDecl: _declaration("model", "facts"),
    ast.ClusterDecl: _declaration("cluster", "facts"),
    ast.CalibrationDecl: _declaration("calibration", "facts"),
    ast.DocumentDecl: _declaration("document", "facts"),
    ast.RulesDecl: _declaration("rules", "members"),
    ast.ProfileDecl: _declaration("profile", "body"),
    ast.RunDecl: _declaration("run", "body"),
    ast.Let: _member("let", " ="),
    ast.Default: _member("default", " ="),
    ast.Candidates: _member("candidates", " ="),
    ast.Derive: _member("derive", " ="),
    ast.Env: _member("env", " ="),
    ast.Effect: _member("effect", " ="),
    ast.Rank: _member("rank", ":"),
    ast.Measured: _member("measured", ":"),
}
