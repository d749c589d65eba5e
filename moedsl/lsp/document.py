"""One version of one file: its text, and what the compiler's stages made of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from moedsl.diagnostics.model import Diagnostic
from moedsl.diagnostics.source import Source
from moedsl.lsp.client import Client
from moedsl.lsp.positions import Lines
from moedsl.planner.model.plan import Plan

if TYPE_CHECKING:  # the compiler is imported once the client has its answer to `initialize`
    from moedsl.checker.program import Program
    from moedsl.rules.library import Library
    from moedsl.solver.solve import Chosen
    from moedsl.syntax import ast


@frozen(eq=False)
class Analysis:
    """What reading, parsing and checking made of a text. Solving is not in it: see `Solved`."""

    source: Source
    module: ast.Module | None
    """None where the text is refused or nested too deeply; with errors, the statements that did parse."""
    library: Library
    """All that the file may name: the stdlib, its own declarations, and those of what it uses."""
    programs: tuple[Program, ...]
    """Empty unless the check found no error."""
    diagnostics: tuple[Diagnostic, ...]
    reads: frozenset[str]
    """The names of the files that it uses, directly or not, whether they exist or not."""

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


@frozen(eq=False)
class Solved:
    """What the solver made of the programs of one version."""

    chosen: tuple[Chosen, ...]
    """The layouts; as many as `plans`."""
    plans: tuple[Plan, ...]
    """JSON-ready, as `moedsl plan --json` has them; empty where nothing is legal."""
    diagnostics: tuple[Diagnostic, ...]
    """What solving and planning found, without those of parse and check."""


@frozen(slots=False, eq=False)
class Document:
    """A snapshot: uri, version and text never change; what is costly is found when it is first asked for.

    `earlier` is the last analysis of this file that came before, for questions about a half-written text.
    """

    uri: str
    version: int | None
    source: Source
    """Named by its path, as the compiler calls it; line ends are newlines and there is no byte-order mark."""
    lines: Lines = field(repr=False)
    client: Client = field(repr=False)
    newline: str = "\n"
    """What the client's text ends lines with."""
    refused: tuple[Diagnostic, ...] = ()
    """Why the text is not looked at (too large, binary); `source` is empty then."""
    earlier: Analysis | None = field(default=None, repr=False)
    plan: Solved | None = field(default=None, repr=False)
    """What the solver chose for this very text; None while it has not answered, or where there is nothing to solve."""
    last: Solved | None = field(default=None, repr=False)
    """What the solver chose for the text before, where there was one."""
    analyse: Callable[[Source], Analysis] = field(kw_only=True, repr=False)

    @cached_property
    def analysis(self) -> Analysis:
        """What parse and check make of this text."""
        return self.analyse(self.source)

    @property
    def known(self) -> Analysis | None:
        """The analysis if it was made already, else the one before: what can be asked at no cost."""
        return self.__dict__.get("analysis", self.earlier)

    def solved(self, plan: Solved | None) -> Document:
        """The same snapshot with the solver's answer, and with the analysis that it has."""
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
        """All that is known to be wrong or noteworthy."""
        found = self.refused or self.analysis.diagnostics
        return found + (self.plan.diagnostics if self.plan else ())
