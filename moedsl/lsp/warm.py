"""Prepare the first edit, the first answer and the first plan while the client shows the file."""

from __future__ import annotations

import gc

from cattrs import Converter
from lsprotocol import types

from moedsl import compiler
from moedsl.lsp import analysis
from moedsl.lsp.client import Client
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source

RUN = "qwen3_30b_a3b; h100 x 8; pin tp=1 pp=1\n"
TYPED = ("", "allow ", "pin tp=", "pin recompute=", "set model.")
URI = "untitled:warm-up.moe"


def warm_up(wire: Converter) -> None:
    """Load the grammar, the stdlib and the solver, then the features; `wire` learns the messages for them."""
    analysis.parse(Source("warm-up.moe", RUN))
    analysis.stdlib()
    compiler.compile_source(Source("warm-up.moe", RUN))
    from moedsl.lsp import index  # which imports `analysis`

    index.stdlib()
    _edits(wire)
    _answers(wire)
    gc.collect()
    gc.freeze()  # what is loaded now stays, so that no edit pays for walking it


def _edits(wire: Converter) -> None:
    """Convert a change and diagnostics once, as the client and the server will."""
    at = {"line": 0, "character": 0}
    changes = [{"range": {"start": at, "end": at}, "text": ""}, {"text": ""}]
    params = {"textDocument": {"uri": URI, "version": 1}, "contentChanges": changes}
    method = types.TEXT_DOCUMENT_DID_CHANGE
    wire.structure({"jsonrpc": "2.0", "method": method, "params": params}, types.DidChangeTextDocumentNotification)
    everything = types.Range(types.Position(0, 0), types.Position(0, 1))
    found = types.PublishDiagnosticsParams(URI, [types.Diagnostic(everything, "")])
    wire.unstructure(types.PublishDiagnosticsNotification(found))


def _answers(wire: Converter) -> None:
    """Complete in a small file once, and convert the answers."""
    from moedsl.lsp.features import completion

    params = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 0}}
    request = {"jsonrpc": "2.0", "id": 1, "method": types.TEXT_DOCUMENT_COMPLETION, "params": params}
    wire.structure(request, types.CompletionRequest)
    files = Workspace(Client(snippets=True, insert_replace=True, completion_markdown=True))
    for typed in TYPED:
        files.open(URI, 1, RUN + typed)
        document = files.document(URI)
        if document is not None:
            asked = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(1, len(typed)))
            wire.unstructure(types.CompletionResponse(1, completion.answer(document, asked)))
