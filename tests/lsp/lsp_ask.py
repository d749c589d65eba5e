"""Questions to the features without a server: a text with `|` where the cursor is."""

from __future__ import annotations

from lsprotocol import types

from moedsl.lsp import solving
from moedsl.lsp.client import Client
from moedsl.lsp.document import Document
from moedsl.lsp.features import completion, hover
from moedsl.lsp.workspace import Workspace

EVERYTHING = Client(
    snippets=True,
    completion_markdown=True,
    hover_markdown=True,
    insert_replace=True,
    related_information=True,
    code_description=True,
    diagnostic_data=True,
)
NAME = types.TextDocumentIdentifier("file:///project/a.moe")


def document(text: str, client: Client = EVERYTHING, solved: bool = False) -> Document:
    """A snapshot of a text; `solved`: with the solver's answer."""
    files = Workspace(client)
    files.open(NAME.uri, 1, text)
    made = files.document(NAME.uri)
    assert made is not None
    return made.solved(solving.solve(made.analysis)) if solved else made


def cut(text: str) -> tuple[str, int]:
    """The text without its cursor, and where that was."""
    at = text.index("|")
    return text[:at] + text[at + 1 :], at


def items(text: str, client: Client = EVERYTHING) -> list[types.CompletionItem]:
    """What is completed at the cursor."""
    plain, at = cut(text)
    d = document(plain, client)
    return list(completion.answer(d, types.CompletionParams(NAME, d.lines.position(at))).items)


def labels(text: str) -> list[str]:
    return [i.label for i in items(text)]


def written(text: str) -> list[str]:
    """The text after each completion is accepted, snippets left as they are."""
    plain, _ = cut(text)
    lines = document(plain).lines
    out: list[str] = []
    for item in items(text, Client()):
        assert isinstance(item.text_edit, types.TextEdit)
        start, end = lines.offsets(item.text_edit.range)
        out.append(plain[:start] + item.text_edit.new_text + plain[end:])
    return out


def shown(text: str, client: Client = EVERYTHING, solved: bool = False) -> str | None:
    """What hovering at the cursor shows."""
    plain, at = cut(text)
    d = document(plain, client, solved)
    found = hover.answer(d, types.HoverParams(NAME, d.lines.position(at)))
    return found.contents.value if found and isinstance(found.contents, types.MarkupContent) else None
