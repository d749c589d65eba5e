"""Clients of the language server: the capabilities of real editors, and what a test does with a session."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest_lsp
from lsprotocol import types
from lsprotocol.converters import get_converter
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

from tests.helpers import rotation
from tests.helpers.paths import ROOT

PROFILES = rotation.some("clients", ("visual-studio-code", "neovim", "emacs", "helix"), 1)
HELIX = {
    "general": {"positionEncodings": ["utf-8", "utf-32", "utf-16"]},
    "workspace": {"applyEdit": True, "workspaceFolders": True, "inlayHint": {"refreshSupport": False},
                  "didChangeWatchedFiles": {"dynamicRegistration": True},
                  "workspaceEdit": {"documentChanges": True}},
    "textDocument": {
        "completion": {"completionItem": {"snippetSupport": True, "insertReplaceSupport": True,
                                          "resolveSupport": {"properties": ["documentation"]}}},
        "hover": {"contentFormat": ["markdown"]},
        "publishDiagnostics": {"versionSupport": True},
        "inlayHint": {"dynamicRegistration": False},
    },
}  # fmt: skip
"""What Helix 25 sends, as far as it matters here: offsets in UTF-8, no refresh of hints, no related information."""


def capabilities(profile: str) -> types.ClientCapabilities:
    """What an editor says that it can do."""
    if profile == "helix":
        return get_converter().structure(HELIX, types.ClientCapabilities)
    return client_capabilities(profile)


def server_command(*code: str) -> list[str]:
    """Runs this checkout's server; `code` is run first, in the server's process."""
    if not code:
        return [sys.executable, "-m", "moedsl.cli.main", "lsp"]
    lines = "; ".join([*code, "import sys", "from moedsl.cli.main import main", "sys.exit(main(['lsp']))"])
    return [sys.executable, "-c", lines]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Session:
    """One editor's session: files by name in one folder, diagnostics by version."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.published: list[types.PublishDiagnosticsParams] = []
        self.refreshed = 0
        self.applied: list[types.WorkspaceEdit] = []
        self.versions: dict[str, int] = {}
        self.result: types.InitializeResult | None = None
        client.feature(types.WORKSPACE_INLAY_HINT_REFRESH)(lambda *_: self._refresh())
        client.feature(types.WORKSPACE_CODE_LENS_REFRESH)(lambda *_: None)
        client.feature(types.WORKSPACE_SEMANTIC_TOKENS_REFRESH)(lambda *_: None)
        client.feature(types.CLIENT_REGISTER_CAPABILITY)(lambda *_: None)

        @client.feature(types.WORKSPACE_APPLY_EDIT)
        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.applied.append(params.edit)
            return types.ApplyWorkspaceEditResult(applied=True)

        known = client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

        def published(params: types.PublishDiagnosticsParams) -> None:
            self.published.append(params)
            known(params)

        client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = published

    def _refresh(self) -> None:
        self.refreshed += 1

    async def start(self, profile: str) -> None:
        """Says hello as that editor does."""
        folders = [types.WorkspaceFolder(self.folder.as_uri(), "files")]
        params = types.InitializeParams(capabilities=capabilities(profile), workspace_folders=folders, process_id=None)
        self.result = await self.client.initialize_session(params)

    def uri(self, name: str) -> str:
        return name if ":" in name else (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> None:
        self.versions[name] = 1
        item = types.TextDocumentItem(self.uri(name), "moe", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, name: str, *changes: types.TextDocumentContentChangeEvent) -> None:
        self.versions[name] += 1
        item = types.VersionedTextDocumentIdentifier(self.versions[name], self.uri(name))
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(item, list(changes)))

    def replace(self, name: str, text: str) -> None:
        """The whole text anew."""
        self.change(name, types.TextDocumentContentChangeWholeDocument(text))

    def close(self, name: str) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(self.document(name)))

    def document(self, name: str) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri(name))

    async def diagnostics(self, name: str, solved: bool = False) -> Sequence[types.Diagnostic]:
        """What is said of the newest version; `solved`: once the solver has answered as well."""
        version = self.versions[name]
        await asyncio.sleep(0.002)
        if solved:
            await self.hints(name)
        while True:
            found = [p for p in self.published if p.uri == self.uri(name) and p.version == version]
            if found:
                return found[-1].diagnostics
            await asyncio.sleep(0.02)

    async def first_ids(self, name: str) -> list[str]:
        """What was said of the newest version at first, before the solver has answered."""
        await self.diagnostics(name)
        version = self.versions[name]
        first = next(p for p in self.published if p.uri == self.uri(name) and p.version == version)
        return [str(d.code) for d in first.diagnostics]

    async def ids(self, name: str, solved: bool = False) -> list[str]:
        return [str(d.code) for d in await self.diagnostics(name, solved)]

    async def hints(self, name: str) -> Sequence[types.InlayHint]:
        """The hints of the whole file; where none come, those once the solver has answered or has nothing to say."""
        everything = types.Range(types.Position(0, 0), types.Position(100_000, 0))
        params = types.InlayHintParams(self.document(name), everything)
        found = await self.client.text_document_inlay_hint_async(params)
        if found:
            return found
        solved = types.ExecuteCommandParams("moedsl.showPlan", [self.uri(name)])  # its answer waits for the solver
        await self.client.workspace_execute_command_async(solved)
        return await self.client.text_document_inlay_hint_async(params) or []

    async def complete(self, name: str, line: int, character: int) -> list[types.CompletionItem]:
        params = types.CompletionParams(self.document(name), types.Position(line, character))
        found = await self.client.text_document_completion_async(params)
        return list(found.items) if isinstance(found, types.CompletionList) else list(found or ())

    async def hover(self, name: str, line: int, character: int) -> str | None:
        params = types.HoverParams(self.document(name), types.Position(line, character))
        found = await self.client.text_document_hover_async(params)
        return found.contents.value if found else None  # type: ignore[union-attr]


def config(*code: str) -> pytest_lsp.ClientServerConfig:
    """How pytest-lsp starts the server."""
    return pytest_lsp.ClientServerConfig(
        server_command=server_command(*code), client_factory=make_test_lsp_client, server_env=ENVIRONMENT
    )
