"""Find every named place of a module: its symbol, and whether the place declares the symbol.

A symbol is a kind and a name. Kinds that a file declares: model hardware cluster calibration document profile run block
(of rules) rule let derived env wish. Kinds of the language: axis given (what a run fixes) fact cost constant function
word field. A `use` names a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, AXES, COSTS, HARDWARE, MODEL, RUN, SAVES
from moedsl.lang import ast
from moedsl.rules.collect import WORDS
from moedsl.rules.library import Library
from moedsl.support import resources
from moedsl.support.source import Source, Span

STATED = {
    ast.SeqStmt: "seq", ast.BatchStmt: "batch", ast.PrecisionStmt: "precision", ast.TaskStmt: "task",
    ast.AdapterStmt: "adapter",
    ast.RoutingStmt: "routing", ast.MicroBatchStmt: "micro_batch", ast.DataStmt: "data", ast.VlmStmt: "vlm",
}  # fmt: skip
"""Statements whose keyword is itself a name in expressions."""
_GIVEN = {"batch": "global_batch", **{name: name for name in RUN}}
_DECLARED = {
    ast.ModelDecl: "model", ast.HardwareDecl: "hardware", ast.ClusterDecl: "cluster",
    ast.CalibrationDecl: "calibration", ast.DocumentDecl: "document", ast.ProfileDecl: "profile",
}  # fmt: skip
_RULE_PREFIXES = ("std.", "run.")


@frozen
class Symbol:
    """The meaning of a name; `file` is set for names that are unique only within a file: runs and wishes."""

    kind: str
    name: str
    file: str = ""


@frozen
class Occurrence:
    """A place that names a symbol; `keyword` is whether the text there is a keyword of the grammar."""

    symbol: Symbol
    span: Span
    declares: bool = False
    keyword: bool = False


@frozen
class Target:
    """A place: a span, with the source that it points into."""

    source: Source
    span: Span

    @property
    def text(self) -> str:
        return self.source.text[self.span.start : self.span.end]


@frozen
class Scope:
    """The possible meanings of a name in a file: the names of its library by kind."""

    models: frozenset[str]
    hardware: frozenset[str]
    profiles: frozenset[str]
    lets: frozenset[str]
    rules: dict[str, str]
    """The full id of each rule, by every form in which a file may write it."""

    @classmethod
    def of(cls, library: Library) -> Scope:
        """Collect the names of the stdlib, of the file and of the files that it uses."""
        blocks = library.own_rules if library.collected is not None else library.rules
        own = [(prefix, b, m) for prefix, b in blocks for m in b.members]
        kept = library.collected.rules if library.collected is not None else ()
        ids = [r.id for r in kept if r.kind in ("require", "prefer")]
        ids += [f"{p}.{b.name.id}.{m.name.id}" for p, b, m in own if m.name and isinstance(m, ast.Require | ast.Prefer)]
        lets = {r.name for r in kept if r.kind == "let"} | {m.name.id for _, _, m in own if isinstance(m, ast.Let)}
        rules = {i.split(".", 1)[1]: i for i in ids} | {i: i for i in ids}
        models, hardware, profiles = (frozenset(t) for t in (library.models, library.hardware, library.profiles))
        return cls(models, hardware, profiles, frozenset(lets), rules)


def occurrences(source: Source, module: ast.Module, scope: Scope) -> tuple[Occurrence, ...]:
    """Return every named place of a module, in text order."""
    kept = source.name.startswith(("stdlib/", f"{resources.stdlib_dir()}{os.sep}"))
    prefix = "std" if kept else "run"
    collector = _Collector(source, scope, prefix)
    found = (o for item in module.items for o in collector.item(item, ""))
    return tuple(sorted(found, key=lambda o: (o.span.start, o.span.end)))


def named(name: str, scope: Scope) -> Symbol | None:
    """Return the symbol of a name in an expression; None if nothing declares the name."""
    name = ALIASES.get(name, name)
    if name.startswith(_RULE_PREFIXES):
        return Symbol("rule", name)
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        ("let", scope.lets), ("axis", AXES), ("given", RUN), ("fact", MODEL), ("fact", HARDWARE),
        ("cost", COSTS | SAVES),
        ("axis", axes.COMPOSITES), ("hardware", scope.hardware), ("model", scope.models), ("word", words()),
    )  # fmt: skip
    return next((Symbol(kind, name) for kind, names in kinds if name in names), None)


def words() -> frozenset[str]:
    """Return every word that is a value."""
    return WORDS | {*axes.PHASES}


@frozen
class _Collector:
    """Collects the named places of one file."""

    source: Source
    scope: Scope
    prefix: str

    def item(self, item: Any, run: str) -> Iterator[Occurrence]:
        """Visit a statement or declaration; `run` names the run that contains it."""
        match item:
            case ast.BareStmt(name=name, count=count):
                tables = {"model": self.scope.models, "hardware": self.scope.hardware, "profile": self.scope.profiles}
                known = [kind for kind, names in tables.items() if name.id in names]
                if known:
                    yield self.at("hardware" if count is not None and "hardware" in known else known[0], name)
            case ast.ModelStmt(name=name):
                yield self.at("model", name)
            case ast.HardwareStmt(name=name):
                yield self.at("hardware", name)
            case ast.AllowStmt(rule=rule):
                yield from self.rule(rule)
            case ast.PinStmt(bindings=bindings):
                for b in bindings:
                    yield self.axis(b.name)
                    yield from self.expressions(b.value)
            case ast.SweepStmt() | ast.IsolateStmt():
                yield self.axis(item.axis)
                yield from (o for value in item.values for o in self.expressions(value))
            case ast.TargetStmt(product=word) | ast.ResilienceStmt(section=word):
                yield self.at("word", word)
            case ast.FieldsStmt():
                pass
            case ast.SetStmt(path=path):
                yield self.at("field", path)
            case ast.Require(name=name, expr=expr) | ast.Prefer(name=name, expr=expr):
                if name is not None:
                    yield Occurrence(Symbol("wish", f"{run}.{name.id}", self.source.name), name.span, True)
                yield from self.expressions(expr)
            case _:
                yield from self.word(item) if isinstance(item, ast.Stmt) else self.declaration(item)

    def declaration(self, d: Any) -> Iterator[Occurrence]:
        match d:
            case ast.UseDecl(path=path):
                file = os.path.normpath(os.path.join(os.path.dirname(self.source.name), path.value))
                yield Occurrence(Symbol("file", file), path.span)
            case ast.RunDecl():
                yield self.at("run", d.name, True, self.source.name)
                if d.base is not None:
                    yield self.at("run", d.base, False, self.source.name)
                yield from (o for s in d.body for o in self.item(s, d.name.id))
            case ast.ProfileDecl():
                yield self.at("profile", d.name, True)
                yield from (o for s in d.body for o in self.item(s, f"profile {d.name.id}"))
            case ast.RulesDecl():
                yield Occurrence(Symbol("block", f"{self.prefix}.{d.name.id}"), d.name.span, True)
                yield from self.expressions(d.when)
                yield from (o for m in d.members for o in self.member(d.name.id, m))
            case _:
                yield self.at(_DECLARED[type(d)], d.name, True)
                if isinstance(d, ast.DocumentDecl):
                    rules = (n for n in ast.walk(d) if isinstance(n, ast.Name) and n.id.startswith(_RULE_PREFIXES))
                    yield from (o for n in rules for o in self.rule(n))
                elif not isinstance(d, ast.ClusterDecl):
                    yield from self.facts(d.facts, _DECLARED[type(d)])

    def word(self, s: Any) -> Iterator[Occurrence]:
        """Visit a statement that states a value: its keyword, and a word as its value, such as in ``precision fp8``."""
        if type(s) in STATED:
            word = STATED[type(s)]
            kind, name = ("given", _GIVEN[word]) if word in _GIVEN else ("axis", word)
            at = Span(s.span.file, s.span.start, s.span.start + len(word))
            yield Occurrence(Symbol(kind, name), at, keyword=True)
        elif not isinstance(s, ast.PhaseStmt):
            yield from self.expressions(s)
            return
        values = s.options if isinstance(s, ast.VlmStmt) else (getattr(s, "value", None),)
        yield from (self.at("word", v) for v in values if isinstance(v, ast.Name))

    def at(self, kind: str, name: ast.Name, declares: bool = False, file: str = "") -> Occurrence:
        return Occurrence(Symbol(kind, name.id, file), name.span, declares)

    def expressions(self, node: Any) -> Iterator[Occurrence]:
        """Visit the names below a node, with their meanings in an expression.

        A string compared with `model` or `hardware` names one, as in ``hardware in ["b200", "b300"]``.
        """
        for part in ast.walk(node):
            match part:
                case ast.Call(func=func):
                    yield self.at("function", func)
                case ast.Name(id=id) if id not in FUNCTIONS:
                    symbol = named(id, self.scope)
                    if symbol is not None:
                        yield from self.rule(part) if symbol.kind == "rule" else (Occurrence(symbol, part.span),)
                case ast.Binary(left=ast.Name(id="model" | "hardware" as kind), right=right):
                    for s in (s for s in ast.walk(right) if isinstance(s, ast.String)):
                        inner = Span(s.span.file, s.span.start + 1, s.span.end - 1)
                        yield Occurrence(Symbol(kind, s.value), inner)
                case _:
                    pass

    def axis(self, name: ast.Name) -> Occurrence:
        """Return the place of the name in a pin, sweep or default: an axis, a `let`, or a value that the run fixes."""
        id = ALIASES.get(name.id, name.id)
        kind = "let" if id in self.scope.lets and id not in AXES else "given" if id in _GIVEN else "axis"
        return Occurrence(Symbol(kind, _GIVEN.get(id, id)), name.span)

    def rule(self, name: ast.Name) -> Iterator[Occurrence]:
        """Visit a rule's id, with or without its prefix: the block and the rule are two names."""
        id = self.scope.rules.get(name.id, name.id)
        block, _, _ = id.rpartition(".")
        dot = name.id.rfind(".")
        start = name.span.start
        if dot > 0:
            left = name.id.rfind(".", 0, dot) + 1
            yield Occurrence(Symbol("block", block), Span(name.span.file, start + left, start + dot))
        yield Occurrence(Symbol("rule", id), Span(name.span.file, start + dot + 1, name.span.end))

    def facts(self, facts: Iterable[ast.FactEntry], kind: str, inside: str = "") -> Iterator[Occurrence]:
        for fact in facts:
            symbol = Symbol("constant" if kind == "calibration" else "fact", inside + fact.name.id)
            yield Occurrence(symbol, fact.name.span)
            if fact.name.id == "arch" and isinstance(fact.value, ast.Name):
                yield self.at("calibration", fact.value)
            elif isinstance(fact.value, tuple):
                inner = [f for f in fact.value if isinstance(f, ast.FactEntry)]
                yield from self.facts(inner, kind, fact.name.id + ".")

    def member(self, block: str, m: ast.Member) -> Iterator[Occurrence]:
        """Visit a member of a block of rules."""
        name = m.name
        if isinstance(m, ast.Effect):
            yield Occurrence(named(m.name.id, self.scope) or Symbol("field", m.name.id), m.name.span)
        elif isinstance(m, ast.Default | ast.Candidates):
            yield self.axis(m.name)
        elif isinstance(m, ast.Let | ast.Derive | ast.Env):
            yield self.at({ast.Let: "let", ast.Derive: "derived", ast.Env: "env"}[type(m)], m.name, True)
        elif name is not None:
            yield Occurrence(Symbol("rule", f"{self.prefix}.{block}.{name.id}"), name.span, True)
        if not isinstance(m, ast.Effect | ast.Symptom):
            yield from self.expressions(m.expr)
        yield from self.expressions(getattr(m, "when", None))
