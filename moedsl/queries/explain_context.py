"""The context of an explanation: the layout to explain, its problem and the search of its space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import define

from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Compiled, Row
from moedsl.solver.nearest import tree
from moedsl.solver.search import Answer, Question, Search
from moedsl.solver.solve import Chosen
from moedsl.support.source import Source, Span, place_of

Json = dict[str, Any]


@define(slots=False)
class Context:
    """A run's problem, its best layout and the sources that spans point into."""

    chosen: Chosen
    row: Row
    sources: Mapping[str, Source]

    @property
    def program(self) -> Program:
        return self.chosen.problem.program

    @property
    def compiled(self) -> Compiled:
        return self.chosen.compiled

    @cached_property
    def search(self) -> Search:
        """The search of the run's own space."""
        return self.chosen.search

    @cached_property
    def lets(self) -> dict[str, ast.Expr]:
        return {r.name: r.expr for r in self.program.of("let")}

    @cached_property
    def env(self) -> dict[str, Any]:
        """The value of every name of an expression in the layout."""
        return self.env_of(self.row)

    @cached_property
    def unfollowed(self) -> frozenset[str]:
        """The wishes and advice that the layout does not follow, by id."""
        return frozenset(self.compiled.unfollowed(self.row))

    def env_of(self, row: Row) -> dict[str, Any]:
        """The value of every name of an expression in another priced layout."""
        return self.chosen.environment(row.codes, row.prices)

    def answers(self, variants: Sequence[Question]) -> list[Answer]:
        """Find the best layout of each variant of the run's space."""
        return self.search.answers(variants) if variants else []

    def tree(self, e: ast.Expr | None) -> Json | None:
        """Write an expression with the value of each part in the layout."""
        return None if e is None else tree(e, self.env, self.lets)

    def where(self, span: Span) -> Json:
        """Write a place as ``{file, line, text}``; lines count from 1."""
        return place_of(span, self.sources)

    def cited(self, r: Rule) -> Json:
        """Write a rule with its reason, its sources and its place."""
        return {"rule": r.id, "kind": r.kind, "because": r.because, "cite": list(r.cites), "at": self.where(r.span)}


def based(chosen: Chosen, sources: Mapping[str, Source]) -> Context | None:
    """The context of a solved problem; None if it has no layout."""
    return Context(chosen, chosen.solution.rows[0], sources) if chosen.solution.rows else None
