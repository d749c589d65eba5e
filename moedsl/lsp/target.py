"""A span with the text that it points into: where a name is declared."""

from __future__ import annotations

from attrs import frozen

from moedsl.diagnostics.source import Source, Span


@frozen
class Target:
    """A span with the text that it points into."""

    source: Source
    span: Span

    @property
    def text(self) -> str:
        return self.source.text[self.span.start : self.span.end]
