"""Hold one version of one file: its text, and the results of the compiler's stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from moedsl.lsp.client import Client
from moedsl.lsp.positions import Lines
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source

if TYPE_CHECKING:  # the compiler is imported once the client has its answer to `initialize`
    from moedsl.lang import ast
    from moedsl.rules.check.program import Program
    from moedsl.rules.library import Library
    from moedsl.solver.solve import Chosen


@frozen(eq=False)
class Analysis:
    """The result of reading, parsing and checking a text. `Solved` is the result of solving."""

    source: Source
    module: ast.Module | None
    """None if the text is refused or nested too deeply; with errors, the statements that parse."""
    library: Library
    """Everything that the file may name: the stdlib, its own declarations, and those of the files that it uses."""
    programs: tuple[Program, ...]
    """Empty if the check found an error."""
    diagnostics: tuple[Diagnostic, ...]
    reads: frozenset[str]
    """The names of the files that it uses, directly or not, even if they do not exist."""

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


@frozen(eq=False)
class Solved:
    """The result of solving the programs of one version."""

    chosen: tuple[Chosen, ...]
    """The layouts, one for each plan."""
    plans: tuple[Plan, ...]
    """The plans; empty if no layout is legal."""
    diagnostics: tuple[Diagnostic, ...]
    """Diagnostics of solving and planning, without those of parse and check."""


@frozen(slots=False, eq=False)
class Document:
    """A snapshot: uri, version and text never change; expensive results are computed when first read.

    `earlier` is the last analysis of this file before this version, for queries about a half-written text.
    """

    uri: str
    version: int | None
    source: Source
    """The source, named by its path as in the compiler; lines end in newlines, and there is no byte-order mark."""
    lines: Lines = field(repr=False)
    client: Client = field(repr=False)
    newline: str = "\n"
    """The line ending of the client's text."""
    refused: tuple[Diagnostic, ...] = ()
    """Why the text is refused (too large, binary); `source` is empty then."""
    earlier: Analysis | None = field(default=None, repr=False)
    plan: Solved | None = field(default=None, repr=False)
    """The solver's result for this text; None before its answer, or if nothing is to be solved."""
    last: Solved | None = field(default=None, repr=False)
    """The solver's result for an earlier text, if there was one."""
    analyse: Callable[[Source], Analysis] = field(kw_only=True, repr=False)

    @cached_property
    def analysis(self) -> Analysis:
        """The result of parse and check for this text."""
        return self.analyse(self.source)

    @property
    def known(self) -> Analysis | None:
        """The analysis if it exists already, else the earlier one; costs nothing."""
        return self.__dict__.get("analysis", self.earlier)

    def solved(self, plan: Solved | None) -> Document:
        """Copy the snapshot with the solver's result and the existing analysis."""
        document = evolve(self, plan=plan, last=plan or self.last)
        if "analysis" in self.__dict__:
            document.__dict__["analysis"] = self.analysis
        return document

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def module(self) -> ast.Module | None:
        return self.analysis.module

    @property
    def library(self) -> Library:
        return self.analysis.library

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.analysis.programs

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics."""
        found = self.refused or self.analysis.diagnostics
        return found + (self.plan.diagnostics if self.plan else ())
