"""Build the `ast.py` node for each grammar rule from the rule's children.

Each builder gets the children of one reduction, tokens included, and returns the node; `parser.py` passes them to
Lark. A wrong number or string adds an error to `Builder.problems`, and the node is built anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts.field_words import KEYWORDS
from moedsl.facts.units import SCALES
from moedsl.lang import ast
from moedsl.support.diagnostics import Diagnostic, Instead, error
from moedsl.support.source import Span

UNITS = tuple(SCALES)
MULTIPLIERS = {"": 1, "k": 1024, "M": 1024**2, "G": 1024**3}
NUMBER_HELP = (
    "write 128k, 4M, 2G (binary), 1.5, 2e9 or 186 GB; the units are "
    + " ".join(UNITS)
    + ", and a time has none: seconds"
)
LARGEST = 1e300
"""Larger numbers are refused, as a float could not hold them."""

_NUMBER = re.compile(
    r"(?P<digits>[0-9]+)(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    rf"(?P<scale>[kMG]?)[ \t]*(?P<unit>{'|'.join(UNITS)})?"
)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


@frozen
class Clause:
    """A clause (``because``, ``when``, ``since``, ``confirm``, ``of`` or another) before it joins its statement."""

    word: str
    value: Any
    span: Span


class Builder:
    """The state of one parse: the file that spans name, and the errors in numbers and strings."""

    def __init__(self) -> None:
        self.start("")

    def start(self, file: str) -> None:
        """Reset the state for a new parse."""
        self.file = file
        self.problems: list[Diagnostic] = []

    def span(self, children: Sequence[Any]) -> Span:
        """Return the span from the first child to the last."""
        first, last = children[0], children[-1]
        start = first.start_pos if isinstance(first, str) else first.span.start  # type: ignore[attr-defined]
        return Span(self.file, start, last.end_pos if isinstance(last, str) else last.span.end)  # type: ignore[attr-defined]

    def problem(self, id: str, message: str, span: Span, help: str) -> None:
        """Record an error in a word; the tree is built anyway."""
        self.problems.append(error(id, message, span, help=help))


Rule = Callable[[Builder, Sequence[Any]], Any]


def _nodes(children: Sequence[Any]) -> tuple[Any, ...]:
    """Return the children that are not tokens; flatten lines of facts."""
    out: list[Any] = []
    for child in children:
        if isinstance(child, tuple):
            out += child
        elif not isinstance(child, str):
            out.append(child)
    return tuple(out)


def _name(b: Builder, c: Sequence[Any]) -> ast.Name:
    return ast.Name(str(c[0]), b.span(c))


def _model(b: Builder, c: Sequence[Any]) -> ast.ModelStmt:
    name = c[1]
    return ast.ModelStmt(ast.Name(name.value, name.span) if isinstance(name, ast.String) else name, b.span(c))


def _string(b: Builder, c: Sequence[Any]) -> ast.String:
    def unescape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            at = Span(b.file, c[0].start_pos + 1 + match.start(), c[0].start_pos + 1 + match.end())
            b.problem("parse.string", f"`{match[0]}` is not an escape", at, r"the escapes are \" \\ and \n")
        return _ESCAPES.get(match[1], match[0])

    text = str(c[0])[1:-1]
    return ast.String(re.sub(r"\\(.)", unescape, text) if "\\" in text else text, b.span(c))


def _number(b: Builder, c: Sequence[Any]) -> ast.Number:
    text, span = str(c[0]), b.span(c)
    parsed = number_value(text)
    if not isinstance(parsed, str):
        return ast.Number(*parsed, text, span)
    # What ``128K``, ``4m``, ``128_000`` or ``16x8`` mean
    meant = None
    if product := re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", text):
        meant = str(int(product[1]) * int(product[2]))
    elif match := re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?)([kKmMgG]?)", text):
        meant = match[1].replace("_", "") + {"K": "k", "m": "M", "g": "G"}.get(match[2], match[2])
    known = meant is not None and not isinstance(number_value(meant), str)
    b.problem("parse.number", parsed, span, Instead(f"write `{meant}`", meant) if meant and known else NUMBER_HELP)
    return ast.Number(0, None, text, span)


def number_value(text: str) -> tuple[int | float, str | None] | str:
    """Return the value and unit of a number's text, or a message if it is no number or too large."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return f"`{text}` is not a number"
    if len(text) > 330 or float(match["digits"] + match["rest"]) * MULTIPLIERS[match["scale"]] > LARGEST:
        return f"the number {text[:20]}{'...' if len(text) > 20 else ''} is too large"
    value = float(match["digits"] + match["rest"]) if match["rest"] else int(match["digits"])
    scaled = value * MULTIPLIERS[match["scale"]]
    return (int(scaled) if match["scale"] and scaled == int(scaled) else scaled), match["unit"]


def _pick(cls: type[Any], *indexes: int) -> Rule:
    """Return a builder for a class whose fields are these children and the span; a missing child is None."""

    def build(b: Builder, c: Sequence[Any]) -> Any:
        return cls(*(c[i] if i < len(c) else None for i in indexes), b.span(c))

    return build


def _many(cls: type[Any]) -> Rule:
    """Return a builder for a class with one field: the nodes after its keyword."""
    return lambda b, c: cls(_nodes(c[1:]), b.span(c))


def _named(cls: type[Any]) -> Rule:
    """Return a builder for a name and the nodes after it: ``hardware NAME { ... }``, ``sweep NAME in A, B``."""
    return lambda b, c: cls(c[1], _nodes(c[2:]), b.span(c))


def _hardware(b: Builder, c: Sequence[Any]) -> ast.HardwareDecl:
    base = c[3] if isinstance(c[3], ast.Name) else None
    return ast.HardwareDecl(c[1], _nodes(c[4 if base else 2 :]), b.span(c), base)


def _data(b: Builder, c: Sequence[Any]) -> ast.DataStmt:
    nodes = _nodes(c[1:])
    word = next((n for n in nodes if isinstance(n, ast.Name)), None)
    value = next((n for n in nodes if isinstance(n, ast.String)), None)
    return ast.DataStmt(word, value, tuple(n for n in nodes if isinstance(n, ast.Binding)), b.span(c))


def _fields(b: Builder, c: Sequence[Any]) -> ast.FieldsStmt:
    nodes = _nodes(c[1:])
    value = next((n for n in nodes if not isinstance(n, ast.Binding)), None)
    return ast.FieldsStmt(_name(b, c[:1]), value, nodes[value is not None :], b.span(c))


def _split(children: Sequence[Any]) -> tuple[list[Any], dict[str, Any], tuple[ast.Cite, ...]]:
    """Split children into nodes, clauses by keyword, and citations."""
    nodes = _nodes(children)
    plain = [n for n in nodes if not isinstance(n, Clause | ast.Cite)]
    clauses = {n.word: n.value for n in nodes if isinstance(n, Clause)}
    return plain, clauses, tuple(n for n in nodes if isinstance(n, ast.Cite))


def _member(cls: type[Any], *words: str) -> Rule:
    """Return a builder for a class with an optional name, an expression, values of clauses, and citations."""

    def build(b: Builder, c: Sequence[Any]) -> Any:
        plain, clauses, cites = _split(c)
        name = plain[0] if len(plain) > 1 else None
        return cls(name, plain[-1], *(clauses.get(w) for w in words), cites, b.span(c))

    return build


def _rules(b: Builder, c: Sequence[Any]) -> ast.RulesDecl:
    (name, *members), clauses, _ = _split(c)
    subject, when, since, until = (clauses.get(word) for word in ("of", *_HELD))
    return ast.RulesDecl(name, subject, when, since, until, tuple(members), b.span(c))


def _run(b: Builder, c: Sequence[Any]) -> ast.RunDecl:
    has_base = str(c[2]) == "from"
    return ast.RunDecl(c[1], c[3] if has_base else None, _nodes(c[4 if has_base else 2 :]), b.span(c))


def _fact_line(b: Builder, c: Sequence[Any]) -> tuple[ast.FactEntry, ...]:
    """Build the facts of one line, each with the line's citations."""
    entries, _, cites = _split(c)
    return tuple(evolve(e, cites=cites) if cites else e for e in entries)


_HELD = ("when", "since", "until")
"""The clauses that say when a member or a block holds."""
_CLAUSE: Rule = lambda b, c: Clause(str(c[0]).split()[-1], c[1], b.span(c))  # noqa: E731
_BINARY: Rule = lambda b, c: ast.Binary(" ".join(c[1:-1]), c[0], c[-1], b.span(c))  # noqa: E731
RULES: dict[str, Rule] = {
    "module": lambda b, c: ast.Module(_nodes(c), b.span(c) if c else Span(b.file, 0, 0)),
    "bare_stmt": _pick(ast.BareStmt, 0, 2),
    "model_stmt": _model,
    "hardware_stmt": _pick(ast.HardwareStmt, 1, 3),
    "seq_stmt": _pick(ast.SeqStmt, 1),
    "batch_stmt": lambda b, c: ast.BatchStmt(c[-1], b.span(c), len(c) > 2),
    "micro_batch_stmt": _pick(ast.MicroBatchStmt, 1),
    "precision_stmt": _pick(ast.PrecisionStmt, 1),
    "task_stmt": _pick(ast.TaskStmt, 1),
    "adapter_stmt": _named(ast.AdapterStmt),
    "routing_stmt": _pick(ast.RoutingStmt, 1),
    "risk_stmt": _pick(ast.RiskStmt, 1),
    # ``profile first`` starts with the word of a declaration
    "phase_stmt": lambda b, c: ast.PhaseStmt(c[0] if isinstance(c[0], ast.Name) else _name(b, c[:1]), b.span(c)),
    "vlm_stmt": _many(ast.VlmStmt),
    "data_stmt": _data,
    "weights_stmt": lambda b, c: ast.WeightsStmt(c[1] if len(c) > 2 else None, c[-1], b.span(c)),
    "pin_stmt": _many(ast.PinStmt),
    **dict.fromkeys(("require", "law"), _member(ast.Require, "since", "until", "because")),
    **dict.fromkeys(("prefer", "advice"), _member(ast.Prefer, "worth", "since", "until", "because")),
    "allow_stmt": lambda b, c: ast.AllowStmt(c[1], c[2].value if len(c) > 2 else None, b.span(c)),
    "sweep_stmt": _named(ast.SweepStmt),
    "isolate_stmt": _named(ast.IsolateStmt),
    "workflow_stmt": _pick(ast.WorkflowStmt),
    "set_stmt": _pick(ast.SetStmt, 1, 3),
    **dict.fromkeys((f"{keyword}_stmt" for keyword in KEYWORDS), _fields),
    "target_stmt": _pick(ast.TargetStmt, 1, 2),
    "resilience_stmt": _named(ast.ResilienceStmt),
    "for_stmt": _pick(ast.ForStmt, 1, 2),
    "binding": _pick(ast.Binding, 0, 2),
    **dict.fromkeys(("worth", "because", *_HELD, "confirm", "fix", "subject"), _CLAUSE),
    "cite": _pick(ast.Cite, 0, 1),
    "hardware_decl": _hardware,
    "model_decl": _named(ast.ModelDecl),
    "cluster_decl": _named(ast.ClusterDecl),
    "calibration_decl": _named(ast.CalibrationDecl),
    "document_decl": _named(ast.DocumentDecl),
    "profile_decl": _named(ast.ProfileDecl),
    "rules_decl": _rules,
    "run_decl": _run,
    "use_decl": _pick(ast.UseDecl, 1),
    "fact_line": _fact_line,
    "value_fact": lambda b, c: ast.FactEntry(c[0], c[1], (), b.span(c)),
    **dict.fromkeys(("bindings_fact", "block_fact"), lambda b, c: ast.FactEntry(c[0], _nodes(c[1:]), (), b.span(c))),
    "let": _member(ast.Let, "because"),
    "default": _member(ast.Default, *_HELD, "because"),
    "candidates": _member(ast.Candidates, *_HELD, "because"),
    "derive": _member(ast.Derive, *_HELD, "because"),
    "env": _member(ast.Env, *_HELD, "because"),
    "rank": _member(ast.Rank, *_HELD, "because"),
    "measured": _member(ast.Measured, *_HELD, "because"),
    "symptom": _member(ast.Symptom, "confirm", "fix", "because"),
    "effect": _member(ast.Effect, "because"),
    "if_else": _pick(ast.If, 1, 3, 5),
    **dict.fromkeys(("implication", "disjunction", "conjunction", "comparison", "addition", "multiplication"), _BINARY),
    **dict.fromkeys(("negation", "minus"), lambda b, c: ast.Unary(str(c[0]), c[1], b.span(c))),
    "call": lambda b, c: ast.Call(c[0], _nodes(c[1:]), b.span(c)),
    "paren": lambda b, c: evolve(c[1], span=b.span(c)),
    "list": _many(ast.List),
    "number": _number,
    "string": _string,
    "bool": lambda b, c: ast.Bool(str(c[0]) == "true", b.span(c)),
    **dict.fromkeys(("name", "hub", "word", "first_name"), _name),
    "version": lambda b, c: ast.String(str(c[0]), b.span(c)),
}
