"""Read the capabilities of the client that affect answers."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl.lsp.positions import UTF16


@frozen
class Client:
    """Capabilities as plain values. The defaults are those of a client that announces none."""

    encoding: str = UTF16
    """The encoding in which positions are counted: utf-8, utf-16 or utf-32."""
    snippets: bool = False
    completion_markdown: bool = False
    label_details: bool = False
    insert_replace: bool = False
    """Whether a completion may name both the inserted and the replaced text."""
    hover_markdown: bool = False
    related_information: bool = False
    code_description: bool = False
    diagnostic_data: bool = False
    hint_refresh: bool = False
    lens_refresh: bool = False
    token_refresh: bool = False
    hierarchical_symbols: bool = False
    code_action_literals: bool = False
    code_action_data: bool = False
    document_changes: bool = False
    """Whether a workspace edit may hold versioned documents."""
    watch_files: bool = False
    """Whether the server may register for changes of files on disk."""
    line_folding_only: bool = False
    prepare_rename: bool = False


def read(capabilities: types.ClientCapabilities, encoding: str) -> Client:
    """Read the client of an `initialize` request; `encoding` is the agreed position encoding."""

    def has(path: str) -> Any:
        value: Any = capabilities
        for name in path.split("."):
            value = getattr(value, name, None)
        return value

    text, item = "text_document.", "text_document.completion.completion_item."
    return Client(
        encoding=encoding,
        snippets=bool(has(item + "snippet_support")),
        completion_markdown=types.MarkupKind.Markdown in (has(item + "documentation_format") or ()),
        label_details=bool(has(item + "label_details_support")),
        insert_replace=bool(has(item + "insert_replace_support")),
        hover_markdown=types.MarkupKind.Markdown in (has(text + "hover.content_format") or ()),
        related_information=bool(has(text + "publish_diagnostics.related_information")),
        code_description=bool(has(text + "publish_diagnostics.code_description_support")),
        diagnostic_data=bool(has(text + "publish_diagnostics.data_support")),
        hint_refresh=bool(has("workspace.inlay_hint.refresh_support")),
        lens_refresh=bool(has("workspace.code_lens.refresh_support")),
        token_refresh=bool(has("workspace.semantic_tokens.refresh_support")),
        hierarchical_symbols=bool(has(text + "document_symbol.hierarchical_document_symbol_support")),
        code_action_literals=has(text + "code_action.code_action_literal_support") is not None,
        code_action_data=bool(has(text + "code_action.data_support")),
        document_changes=bool(has("workspace.workspace_edit.document_changes")),
        watch_files=bool(has("workspace.did_change_watched_files.dynamic_registration")),
        line_folding_only=bool(has(text + "folding_range.line_folding_only")),
        prepare_rename=bool(has(text + "rename.prepare_support")),
    )
