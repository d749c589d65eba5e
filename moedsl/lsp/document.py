"""Define one version of a text (`Document`), and what client and server agreed on: positions, capabilities, legends.

A `Document` has the results of the compiler's stages, but this module does not import the compiler.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, fields, frozen
from lsprotocol import types
from pygls.workspace.position_codec import PositionCodec, UnitCounter

from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source, Span

if TYPE_CHECKING:  # the compiler is imported once the client has its answer to `initialize`
    from moedsl.lang import ast
    from moedsl.lang.text_edits import Edit
    from moedsl.planner.plan import Plan
    from moedsl.rules.check.program import Program
    from moedsl.rules.library import Library
    from moedsl.solver.solve import Chosen


@frozen(eq=False)
class Analysis:
    """The result of reading, parsing and checking a text; `Solved` is the result of solving it."""

    source: Source
    module: ast.Module | None
    """None if the text is refused or nested too deeply; with errors, the statements that parse."""
    library: Library
    """Everything that the file may name: declared in the stdlib, in itself or in a file that it uses."""
    programs: tuple[Program, ...]
    """Empty if the check found an error."""
    diagnostics: tuple[Diagnostic, ...]
    reads: frozenset[str]
    """The names of the files that the text uses, directly or not, even if they do not exist."""

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
    """What solving and planning found; `Analysis.diagnostics` has what parse and check found."""


@frozen(slots=False, eq=False)
class Document:
    """A snapshot of a file: uri, version and text never change; expensive results are computed when first read.

    `earlier` is the last analysis of the file before this version, for queries about a half-written text.
    """

    uri: str
    version: int | None
    source: Source
    """The source, named by its path as in the compiler; lines end in newlines, and there is no byte-order mark."""
    lines: Lines = field(repr=False)
    """The lines of the client's text, even of a refused one."""
    client: Client = field(repr=False)
    refused: tuple[Diagnostic, ...] = ()
    """Why the text is refused (too large, binary); `source` is empty then."""
    earlier: Analysis | None = field(default=None, repr=False)
    plan: Solved | None = field(default=None, repr=False)
    """The solver's result for this text; None until it is known, or if there is nothing to solve."""
    last: Solved | None = field(default=None, repr=False)
    """The solver's latest result for this or an earlier text; None if there is none."""
    analyse: Callable[[Source], Analysis] = field(kw_only=True, repr=False)

    @cached_property
    def analysis(self) -> Analysis:
        """The result of parse and check for this text."""
        return self.analyse(self.source)

    @property
    def known(self) -> Analysis | None:
        """The analysis if it was computed already, else the earlier one; never computes one."""
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
    def plans(self) -> tuple[Plan, ...]:
        """The plans of this text; empty before the solver's answer, or if no layout is legal."""
        return self.plan.plans if self.plan else ()

    @property
    def chosen(self) -> tuple[Chosen, ...]:
        return self.plan.chosen if self.plan else ()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics."""
        found = self.refused or self.analysis.diagnostics
        return found + (self.plan.diagnostics if self.plan else ())


TYPES = (
    "comment", "string", "number", "keyword", "operator", "class", "struct", "variable", "property", "enumMember",
    "function", "namespace", "event", "type",
)  # fmt: skip
"""The legend of semantic tokens: a model is a class, hardware a struct, an axis or a `let` a variable; a fact, a field
or a value of the run is a property, a word that is a value an enumMember; a run, a profile or a block of rules is a
namespace, a rule or a wish an event, a cluster or calibration a type."""
MODIFIERS = ("declaration", "defaultLibrary", "readonly")
"""The legend of modifiers: declared here; of the stdlib or the language; a `let`."""
TOKENS = types.SemanticTokensLegend(list(TYPES), list(MODIFIERS))

PIN, ALLOW = "refactor.rewrite.moedsl.pin", "refactor.rewrite.moedsl.allow"
QUICK_FIX, FIX_ALL = types.CodeActionKind.QuickFix.value, types.CodeActionKind.SourceFixAll.value
ACTIONS = types.CodeActionOptions([QUICK_FIX, PIN, ALLOW, FIX_ALL])

SHOW_PLAN, SHOW_REPORT = "moedsl.showPlan", "moedsl.showReport"
"""The commands that the lenses run."""

UTF16, BOM = types.PositionEncodingKind.Utf16.value, "\ufeff"
_ITEM = "text_document.completion.completion_item."


def _capability(path: str, word: Any = None) -> Any:
    """Define a flag that is read from `path` in `ClientCapabilities`.

    With `word`, the flag is whether the list at that path contains the word.
    """
    return field(default=False, metadata={"path": path, "word": word})


@frozen
class Client:
    """The client's capabilities that affect answers; the defaults are for a client that announces none."""

    encoding: str = UTF16
    """The encoding in which the client counts positions: utf-8, utf-16 or utf-32."""
    snippets: bool = _capability(_ITEM + "snippet_support")
    completion_markdown: bool = _capability(_ITEM + "documentation_format", types.MarkupKind.Markdown)
    insert_replace: bool = _capability(_ITEM + "insert_replace_support")
    """Whether a completion may name both the inserted and the replaced text."""
    hover_markdown: bool = _capability("text_document.hover.content_format", types.MarkupKind.Markdown)
    related_information: bool = _capability("text_document.publish_diagnostics.related_information")
    code_description: bool = _capability("text_document.publish_diagnostics.code_description_support")
    diagnostic_data: bool = _capability("text_document.publish_diagnostics.data_support")
    hint_refresh: bool = _capability("workspace.inlay_hint.refresh_support")
    lens_refresh: bool = _capability("workspace.code_lens.refresh_support")
    hierarchical_symbols: bool = _capability("text_document.document_symbol.hierarchical_document_symbol_support")
    document_changes: bool = _capability("workspace.workspace_edit.document_changes")
    """Whether a workspace edit may contain versioned documents."""
    watch_files: bool = _capability("workspace.did_change_watched_files.dynamic_registration")
    """Whether the server may register for changes of files on disk."""

    @classmethod
    def read(cls, capabilities: types.ClientCapabilities, encoding: str) -> Client:
        """Read the client's capabilities from its `initialize` request; `encoding` is the agreed position encoding."""
        flags: dict[str, bool] = {}
        for flag in fields(cls)[1:]:
            value: Any = capabilities
            for name in flag.metadata["path"].split("."):
                value = getattr(value, name, None)
            word = flag.metadata["word"]
            flags[flag.name] = bool(value) if word is None else word in (value or ())
        return cls(encoding, **flags)


@frozen(slots=False, eq=False)
class Lines:
    """The lines of a text, which end in newlines, and positions in the text as a client counts them.

    pygls counts the units of characters. Its `TextDocument` is not used, even with other `lines`: it moves a position
    inside a character to after the character, and one after the last line to before that line's last character.
    """

    text: str = field(repr=False)
    """The client's text with newlines for its line endings, and without its byte-order mark."""
    encoding: str = UTF16
    bom: bool = False
    """Whether the client's text starts with a byte-order mark, which the client counts on its first line."""
    newline: str = "\n"
    """The line ending of the client's text."""

    @classmethod
    def read(cls, text: str, encoding: str) -> Lines:
        """Make the lines of a client's text."""
        return cls(unified(text.removeprefix(BOM)), encoding, text.startswith(BOM), "\r\n" if "\r\n" in text else "\n")

    @cached_property
    def starts(self) -> list[int]:
        """The offset at which each line starts."""
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    @cached_property
    def _units(self) -> UnitCounter:
        return PositionCodec(self.encoding).impl

    def end(self, line: int) -> int:
        """Return the offset of the newline that ends a line, or of the end of the text."""
        return self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)

    def line_of(self, offset: int) -> int:
        """Return the line of an offset, from 0."""
        return bisect_right(self.starts, offset) - 1

    def position(self, offset: int) -> types.Position:
        """Convert an offset to a position; an offset after the text gives the text's end."""
        offset = min(max(offset, 0), len(self.text))
        line = self.line_of(offset)
        return types.Position(line, self._units.num_units(self._mark(line) + self.text[self.starts[line] : offset]))

    def offset(self, position: types.Position) -> int:
        """Convert a position to an offset.

        A position after its line gives the line's end, one after the text gives the text's end, and one inside a
        character gives the offset before it.
        """
        line = position.line
        if line < 0 or line >= len(self.starts):
            return 0 if line < 0 else len(self.text)
        start, end, mark = self.starts[line], self.end(line), self._mark(line)
        used = accumulate(map(self._units.code_units_for_char, mark + self.text[start:end]))
        at = next((at for at, units in enumerate(used) if units > position.character), None)
        return end if at is None else start + max(0, at - len(mark))

    def _mark(self, line: int) -> str:
        return BOM if self.bom and line == 0 else ""

    def range(self, start: int, end: int) -> types.Range:
        """Return the half-open range between two offsets."""
        return types.Range(self.position(start), self.position(end))

    def span(self, span: Span) -> types.Range:
        """Return the range of a span of this text."""
        return self.range(span.start, span.end)

    def offsets(self, range: types.Range) -> tuple[int, int]:
        """Return the offsets of a range, in order."""
        start, end = sorted((self.offset(range.start), self.offset(range.end)))
        return start, end

    def changed(self, change: types.TextDocumentContentChangeEvent) -> Lines:
        """Return the lines after one of the client's changes."""
        if not isinstance(change, types.TextDocumentContentChangePartial):
            return Lines.read(change.text, self.encoding)
        start, end = self.offsets(change.range)
        return evolve(self, text=self.text[:start] + unified(change.text) + self.text[end:])

    def edits(self, changes: Iterable[Edit]) -> list[types.TextEdit]:
        """Convert the compiler's edits of the text for the client."""
        return [types.TextEdit(self.span(e.span), e.text.replace("\n", self.newline)) for e in changes]


def unified(text: str) -> str:
    """Replace all line endings of a text with newlines."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
