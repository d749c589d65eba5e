"""Handle requests about the session: initialize, and notifications about files and folders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen
from lsprotocol import types
from pygls import uris
from pygls.capabilities import ServerCapabilitiesBuilder

from moedsl.lsp import client
from moedsl.lsp.checking import Checking, Session
from moedsl.lsp.workspace import Workspace

if TYPE_CHECKING:

    class Server(Session, Protocol):
        """The server, as this module uses it."""

        checking: Checking

        def feature(self, feature_name: str) -> Callable[[Any], Any]: ...

        def client_register_capability(self, params: types.RegistrationParams) -> Any: ...


WATCHED = "**/*.moe"


def register(server: Server) -> None:
    """Register the handlers of this module."""
    session = _Session(server)
    handlers = {
        types.INITIALIZE: session.initialize,
        types.INITIALIZED: session.initialized,
        types.TEXT_DOCUMENT_DID_OPEN: session.opened,
        types.TEXT_DOCUMENT_DID_CHANGE: session.changed,
        types.TEXT_DOCUMENT_DID_SAVE: session.saved,
        types.TEXT_DOCUMENT_DID_CLOSE: session.closed,
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES: session.changed_on_disk,
        types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: session.folders,
        types.WORKSPACE_DID_CHANGE_CONFIGURATION: session.configured,
    }
    for method, handler in handlers.items():
        server.feature(method)(_plain(handler))


def _plain(handler: Any) -> Any:
    """Wrap a method as a function, which pygls can mark with attributes."""

    def handle(params: Any) -> None:
        handler(params)

    return handle


@frozen
class _Session:
    """The handler of each notification."""

    server: Server

    def initialize(self, params: types.InitializeParams) -> None:
        """Read the capabilities and the folders of the client."""
        encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
        roots = _paths(params.workspace_folders or ())
        if not roots and params.root_uri:
            roots = tuple(p for p in (uris.to_fs_path(params.root_uri),) if p)
        capable = client.read(params.capabilities, getattr(encoding, "value", encoding))
        self.server.files = Workspace(capable, roots)

    def initialized(self, _: types.InitializedParams) -> None:
        threading.Thread(target=_warm_up, daemon=True).start()
        if self.server.files.client.watch_files:
            _watch(self.server)

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        self.server.files.open(item.uri, item.version, item.text)
        self.server.checking.changed(item.uri)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        item = params.text_document
        self.server.files.change(item.uri, item.version, params.content_changes)
        self.server.checking.changed(item.uri)

    def saved(self, _: types.DidSaveTextDocumentParams) -> None:
        """Do nothing on save: the text is known. Clients send this without being asked."""

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        self.server.checking.closed(params.text_document.uri)

    def changed_on_disk(self, params: types.DidChangeWatchedFilesParams) -> None:
        for event in params.changes:
            if event.uri not in self.server.files.entries:
                self.server.checking.dependents(event.uri)

    def folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = _paths(params.event.removed)
        kept = (r for r in self.server.files.roots if r not in gone)
        self.server.files.roots = (*kept, *_paths(params.event.added))

    def configured(self, _: types.DidChangeConfigurationParams) -> None:
        """Do nothing: there are no settings. Clients send this anyway."""


def _paths(folders: Sequence[types.WorkspaceFolder]) -> tuple[str, ...]:
    return tuple(p for f in folders if (p := uris.to_fs_path(f.uri)))


def _warm_up() -> None:
    from moedsl.lsp import warm

    warm.warm_up()


def _watch(server: Server) -> None:
    """Register for .moe files that change on disk, because an open file may use them."""
    watcher = types.FileSystemWatcher(WATCHED)
    options = types.DidChangeWatchedFilesRegistrationOptions([watcher])
    registration = types.Registration("moe-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    server.client_register_capability(types.RegistrationParams([registration]))
