"""Find every named place of a module: its symbol, and whether the place declares it.

A symbol is a kind and a name. Kinds that a file declares: model hardware cluster calibration document profile run block
(of rules) rule let derived env wish. Kinds of the language: axis given (what a run fixes) fact cost constant function
word field. A `use` names a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
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
    """The symbol of a name. `file` is set for names that are unique only in a file: runs and wishes."""

    kind: str
    name: str
    file: str = ""


@frozen
class Occurrence:
    """A symbol at a place, with the `text` there; `keyword` tells whether it is a word of the grammar."""

    symbol: Symbol
    span: Span
    declares: bool = False
    keyword: bool = False


@frozen
class Target:
    """The place that declares a name: a span with the text that it points into."""

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
    """Whole ids by the forms in which a file may write them."""

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
    """Every named place of a module, in the order of the text."""
    kept = source.name.startswith(("stdlib/", f"{resources.stdlib_dir()}{os.sep}"))
    prefix = "std" if kept else "run"
    found = _Collector(source, scope, prefix).module(module)
    return tuple(sorted(found, key=lambda o: (o.span.start, o.span.end)))


def named(name: str, scope: Scope) -> Symbol | None:
    """The symbol of a name in an expression; None if nothing declares it."""
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
    """Every word that is a value."""
    return WORDS | {*axes.PHASES}


@frozen
class _Collector:
    """Collects the places of one file."""

    source: Source
    scope: Scope
    prefix: str

    def module(self, module: ast.Module) -> Iterator[Occurrence]:
        for item in module.items:
            yield from self.item(item, "")

    def item(self, item: Any, run: str) -> Iterator[Occurrence]:
        """Visit a statement or declaration; `run` is the run of its block."""
        handler = _HANDLERS.get(type(item))
        if handler is not None:
            yield from handler(self, item, run)
        else:
            yield from self.expressions(item)

    def at(self, kind: str, name: ast.Name, declares: bool = False, file: str = "") -> Occurrence:
        return Occurrence(Symbol(kind, name.id, file), name.span, declares)

    def expression(self, name: ast.Name) -> Iterator[Occurrence]:
        symbol = named(name.id, self.scope)
        if symbol is not None and symbol.kind == "rule":
            yield from self.rule(name)
        elif symbol is not None:
            yield Occurrence(symbol, name.span)

    def expressions(self, node: Any) -> Iterator[Occurrence]:
        """Visit the names below a node, with their meanings in an expression."""
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                yield self.at("function", part.func)
            elif isinstance(part, ast.Name) and part.id not in FUNCTIONS:
                yield from self.expression(part)
            elif isinstance(part, ast.Binary):
                yield from self.quoted(part)

    def quoted(self, e: ast.Binary) -> Iterator[Occurrence]:
        """Visit names of models and hardware in comparisons with strings: ``hardware in ["b200", "b300"]``."""
        kind = e.left.id if isinstance(e.left, ast.Name) and e.left.id in ("model", "hardware") else ""
        if kind:
            for part in ast.walk(e.right):
                if isinstance(part, ast.String):
                    inner = Span(part.span.file, part.span.start + 1, part.span.end - 1)
                    yield Occurrence(Symbol(kind, part.value), inner)

    def axis(self, name: ast.Name) -> Occurrence:
        """Visit the subject of a pin, a sweep or a default: an axis, a `let`, or a value that the run fixes."""
        id = ALIASES.get(name.id, name.id)
        kind = "let" if id in self.scope.lets and id not in AXES else "given" if id in _GIVEN else "axis"
        return Occurrence(Symbol(kind, _GIVEN.get(id, id)), name.span)

    def rule(self, name: ast.Name) -> Iterator[Occurrence]:
        """Visit a rule's id, whole or without its prefix: the block and the rule are two names."""
        id = self.scope.rules.get(name.id, name.id)
        block, _, _ = id.rpartition(".")
        dot = name.id.rfind(".")
        start = name.span.start
        if dot > 0:
            left = name.id.rfind(".", 0, dot) + 1
            yield Occurrence(Symbol("block", block), Span(name.span.file, start + left, start + dot))
        yield Occurrence(Symbol("rule", id), Span(name.span.file, start + dot + 1, name.span.end))

    def stated(self, item: Any) -> Iterator[Occurrence]:
        """Visit the keyword of ``seq 4k``, ``precision fp8``."""
        word = STATED[type(item)]
        at = Span(item.span.file, item.span.start, item.span.start + len(word))
        kind, name = ("given", _GIVEN[word]) if word in _GIVEN else ("axis", word)
        yield Occurrence(Symbol(kind, name), at, keyword=True)

    def facts(self, facts: Iterable[ast.FactEntry], kind: str, inside: str = "") -> Iterator[Occurrence]:
        for fact in facts:
            symbol = Symbol("constant" if kind == "calibration" else "fact", inside + fact.name.id)
            yield Occurrence(symbol, fact.name.span)
            if fact.name.id == "arch" and isinstance(fact.value, ast.Name):
                yield self.at("calibration", fact.value)
            elif isinstance(fact.value, tuple):
                inner = [f for f in fact.value if isinstance(f, ast.FactEntry)]
                yield from self.facts(inner, kind, fact.name.id + ".")

    def bare(self, s: ast.BareStmt, _: str) -> Iterator[Occurrence]:
        tables = (("model", self.scope.models), ("hardware", self.scope.hardware), ("profile", self.scope.profiles))
        known = [kind for kind, names in tables if s.name.id in names]
        if known and s.count is not None and "hardware" in known:
            known = ["hardware"]
        if known:
            yield self.at(known[0], s.name)

    def pin(self, s: ast.PinStmt, _: str) -> Iterator[Occurrence]:
        for b in s.bindings:
            yield self.axis(b.name)
            yield from self.expressions(b.value)

    def sweep(self, s: Any, _: str) -> Iterator[Occurrence]:
        yield self.axis(s.axis)
        for value in s.values:
            yield from self.expressions(value)

    def word(self, s: Any, _: str) -> Iterator[Occurrence]:
        """Visit the word of ``precision fp8``, ``fit first``, which is not a declared name."""
        if type(s) in STATED:
            yield from self.stated(s)
        values = s.options if isinstance(s, ast.VlmStmt) else (getattr(s, "value", None),)
        yield from (self.at("word", v) for v in values if isinstance(v, ast.Name))

    def set_field(self, s: ast.SetStmt, _: str) -> Iterator[Occurrence]:
        yield self.at("field", s.path)

    def wish(self, s: Any, run: str) -> Iterator[Occurrence]:
        if s.name is not None:
            yield Occurrence(Symbol("wish", f"{run}.{s.name.id}", self.source.name), s.name.span, True)
        yield from self.expressions(s.expr)

    def use(self, s: ast.UseDecl, _: str) -> Iterator[Occurrence]:
        path = os.path.normpath(os.path.join(os.path.dirname(self.source.name), s.path.value))
        yield Occurrence(Symbol("file", path), s.path.span)

    def facts_block(self, d: Any, _: str) -> Iterator[Occurrence]:
        kind = _DECLARED[type(d)]
        yield self.at(kind, d.name, True)
        if isinstance(d, ast.DocumentDecl):
            rules = (n for n in ast.walk(d) if isinstance(n, ast.Name) and n.id.startswith(_RULE_PREFIXES))
            yield from (o for n in rules for o in self.rule(n))
        elif not isinstance(d, ast.ClusterDecl):
            yield from self.facts(d.facts, kind)

    def profile(self, d: ast.ProfileDecl, _: str) -> Iterator[Occurrence]:
        yield self.at("profile", d.name, True)
        for s in d.body:
            yield from self.item(s, f"profile {d.name.id}")

    def run(self, d: ast.RunDecl, _: str) -> Iterator[Occurrence]:
        yield self.at("run", d.name, True, self.source.name)
        if d.base is not None:
            yield self.at("run", d.base, False, self.source.name)
        for s in d.body:
            yield from self.item(s, d.name.id)

    def rules(self, d: ast.RulesDecl, _: str) -> Iterator[Occurrence]:
        yield Occurrence(Symbol("block", f"{self.prefix}.{d.name.id}"), d.name.span, True)
        yield from self.expressions(d.when)
        for m in d.members:
            yield from self.member(d.name.id, m)

    def member(self, block: str, m: ast.Member) -> Iterator[Occurrence]:
        if m.name is not None:
            yield from self.member_name(block, m, m.name)
        if not isinstance(m, ast.Effect | ast.Symptom):
            yield from self.expressions(m.expr)
        yield from self.expressions(getattr(m, "when", None))

    def member_name(self, block: str, m: ast.Member, name: ast.Name) -> Iterator[Occurrence]:
        if isinstance(m, ast.Default | ast.Candidates):
            yield self.axis(name)
        elif isinstance(m, ast.Effect):
            yield Occurrence(named(name.id, self.scope) or Symbol("field", name.id), name.span)
        elif isinstance(m, ast.Let | ast.Derive | ast.Env):
            kind = {ast.Let: "let", ast.Derive: "derived", ast.Env: "env"}[type(m)]
            yield self.at(kind, name, True)
        else:
            yield Occurrence(Symbol("rule", f"{self.prefix}.{block}.{name.id}"), name.span, True)


_Handler = Callable[[Any, Any, str], Iterator[Occurrence]]
_HANDLERS: dict[type, _Handler] = {
    ast.BareStmt: _Collector.bare,
    ast.ModelStmt: lambda c, s, _: iter((c.at("model", s.name),)),
    ast.HardwareStmt: lambda c, s, _: iter((c.at("hardware", s.name),)),
    ast.AllowStmt: lambda c, s, _: c.rule(s.rule),
    ast.PinStmt: _Collector.pin,
    ast.SweepStmt: _Collector.sweep,
    ast.IsolateStmt: _Collector.sweep,
    **dict.fromkeys((*STATED, ast.PhaseStmt), _Collector.word),
    ast.TargetStmt: lambda c, s, _: iter((c.at("word", s.product),)),
    ast.ResilienceStmt: lambda c, s, _: iter((c.at("word", s.section),)),
    ast.SetStmt: _Collector.set_field,
    ast.Require: _Collector.wish,
    ast.Prefer: _Collector.wish,
    ast.UseDecl: _Collector.use,
    **dict.fromkeys((t for t in _DECLARED if t is not ast.ProfileDecl), _Collector.facts_block),
    ast.ProfileDecl: _Collector.profile,
    ast.RunDecl: _Collector.run,
    ast.RulesDecl: _Collector.rules,
}
