"""The requests about the session itself: initialize, and what the client tells of files and folders."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls import uris
from pygls.capabilities import ServerCapabilitiesBuilder

from moedsl.lsp import client
from moedsl.lsp.workspace import Workspace

if TYPE_CHECKING:
    from moedsl.lsp.server import Server

WATCHED = "**/*.moe"


def register(server: Server) -> None:
    """Registers the handlers of this module."""

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        configure(server, params)

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        threading.Thread(target=_warm_up, daemon=True).start()
        if server.files.client.watch_files:
            _watch(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        server.files.open(item.uri, item.version, item.text)
        server.checking.changed(item.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        item = params.text_document
        server.files.change(item.uri, item.version, params.content_changes)
        server.checking.changed(item.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.checking.closed(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed_on_disk(params: types.DidChangeWatchedFilesParams) -> None:
        for event in params.changes:
            if event.uri not in server.files.entries:
                server.checking.dependents(event.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = _paths(params.event.removed)
        server.files.roots = (*(r for r in server.files.roots if r not in gone), *_paths(params.event.added))


def configure(server: Server, params: types.InitializeParams) -> None:
    """What the client said of itself and of its folders."""
    encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
    roots = _paths(params.workspace_folders or ())
    if not roots and params.root_uri:
        roots = tuple(p for p in (uris.to_fs_path(params.root_uri),) if p)
    server.files = Workspace(client.read(params.capabilities, getattr(encoding, "value", encoding)), roots)


def _paths(folders: object) -> tuple[str, ...]:
    return tuple(p for f in folders if (p := uris.to_fs_path(f.uri)))  # type: ignore[attr-defined]


def _warm_up() -> None:
    from moedsl.lsp import analysis

    analysis.warm_up()


def _watch(server: Server) -> None:
    """Asks to be told of .moe files that change on disk: an open file may use them."""
    watcher = types.FileSystemWatcher(WATCHED)
    options = types.DidChangeWatchedFilesRegistrationOptions([watcher])
    registration = types.Registration("moe-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    server.client_register_capability(types.RegistrationParams([registration]))
