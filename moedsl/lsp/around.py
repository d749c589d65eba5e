"""One thing that may be written, and what is known around the place where it may."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from moedsl.checker.program import Program
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.place import Place
from moedsl.rules.rule import Rule

Doc = Callable[[], str | None]


@frozen
class Offer:
    """One thing that may be written. `kind` is a name of LSP's CompletionItemKind."""

    label: str
    kind: str
    detail: str = ""
    doc: Doc | None = field(default=None, repr=False)
    insert: str | None = None
    """What is written instead of the label."""
    snippet: str | None = None
    """The same for a client that knows snippets."""


@frozen
class Around:
    """The place and what is known of its file."""

    document: Document
    known: Analysis
    at: Place

    @property
    def said(self) -> tuple[str, ...]:
        return self.at.texts

    @property
    def program(self) -> Program | None:
        """The run that the place is in, as far as it could be read."""
        name = next((b.name for b in self.at.blocks if b.keyword == "run"), "")
        programs = [p for p in self.known.programs if not name or p.name.split(".")[0] == name]
        return programs[0] if programs else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule of a run: the stdlib's and the file's own."""
        if self.program is not None:
            return self.program.rules
        return self.known.library.collected.rules if self.known.library.collected else ()
