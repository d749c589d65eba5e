"""Run the server: its tables of requests and commands, and the session with its client."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from attrs import frozen
from cattrs import transform_error
from lsprotocol import types
from pygls import uris
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter
from pygls.protocol.language_server import LanguageServerProtocol, lsp_method

from moedsl.lsp.checking import Checking, undisturbed
from moedsl.lsp.document import ACTIONS, SHOW_PLAN, SHOW_REPORT, TOKENS, Client, Document, Solved
from moedsl.lsp.workspace import Workspace

PATIENCE = 10.0
"""Seconds that an answer waits for the solver if the client does not support refresh requests."""


@frozen
class Feature:
    """One request and the function of ``moedsl.lsp.MODULE`` that answers it; the first request imports the module.

    If `of` is ``document``, the function takes a `Document` and the request's parameters, and a file that is not open
    or is refused gets the answer None. If `of` is ``workspace``, the function takes the `Workspace` instead.
    """

    method: str
    module: str
    function: str
    options: Any = None
    of: str = "document"
    waits: float = 0.0
    """Seconds that the answer may wait for the solver; after that it is made without `Document.plan`."""


COMPLETION = types.CompletionOptions(trigger_characters=["=", ".", " ", '"', "[", "/"])
FEATURES: tuple[Feature, ...] = (
    Feature(types.TEXT_DOCUMENT_COMPLETION, "completion", "completion", options=COMPLETION),
    Feature(types.TEXT_DOCUMENT_HOVER, "describe", "hover"),
    Feature(types.TEXT_DOCUMENT_INLAY_HINT, "actions", "inlay_hints", waits=0.6),
    Feature(types.TEXT_DOCUMENT_CODE_LENS, "actions", "code_lenses", waits=0.6),
    Feature(types.TEXT_DOCUMENT_CODE_ACTION, "actions", "code_actions", options=ACTIONS, of="workspace"),
    Feature(types.TEXT_DOCUMENT_DEFINITION, "navigation", "definition", of="workspace"),
    Feature(types.TEXT_DOCUMENT_REFERENCES, "navigation", "references", of="workspace"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, "navigation", "highlight"),
    Feature(types.TEXT_DOCUMENT_PREPARE_RENAME, "navigation", "prepare_rename", of="workspace"),
    Feature(types.TEXT_DOCUMENT_RENAME, "navigation", "rename", of="workspace"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_LINK, "navigation", "links", of="workspace"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, "structure", "symbols"),
    Feature(types.WORKSPACE_SYMBOL, "structure", "workspace_symbols", of="workspace"),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, "structure", "semantic_tokens", options=TOKENS),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, "structure", "semantic_tokens_delta", options=TOKENS),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, "structure", "semantic_tokens_range", options=TOKENS),
    Feature(types.TEXT_DOCUMENT_FORMATTING, "structure", "formatting"),
    Feature(types.TEXT_DOCUMENT_RANGE_FORMATTING, "structure", "range_formatting"),
    Feature(types.TEXT_DOCUMENT_FOLDING_RANGE, "structure", "folding"),
    Feature(types.TEXT_DOCUMENT_SELECTION_RANGE, "structure", "selections"),
)
"""Every request that is answered from a document or the workspace."""

COMMANDS: dict[str, tuple[str, str]] = {
    "moedsl.pin": ("actions", "pin_decisions"),
    "moedsl.pinAll": ("actions", "pin_all"),
    SHOW_PLAN: ("actions", "show_plan"),
    SHOW_REPORT: ("actions", "show_report"),
}
"""Module and function of `moedsl.lsp` for each command.

The function takes the `Workspace` and the command's arguments. If it returns a `WorkspaceEdit`, the client applies
that; anything else is the command's result.
"""


def make(version: str) -> Server:
    """Make a server with every feature registered; the compiler is imported when a request needs it."""
    server = Server(version)
    for method, handler in SESSION.items():
        server.feature(method)(handler)
    for feature in FEATURES:
        server.feature(feature.method, feature.options)(server.handler(feature))
    for name, (module, function) in COMMANDS.items():
        server.command(name)(server.command_handler(module, function))
    return server


class Server(LanguageServer):
    """The pygls server, with the open files and their checks."""

    def __init__(self, version: str) -> None:
        self.converter = default_converter()
        self.converter.register_structure_hook(int, whole_number)
        super().__init__(
            "moedsl", version, protocol_cls=Protocol, converter_factory=lambda: self.converter, max_workers=3
        )
        self.files = Workspace()
        self.checking = Checking(self)

    def solved(self, document: Document, plan: Solved) -> None:
        """Store the solver's result for a snapshot, publish its diagnostics, and ask the client to refresh."""
        if not self.files.keep(document, plan):
            return
        self.checking.publish(document.uri)
        if self.files.client.hint_refresh:
            self.workspace_inlay_hint_refresh(None)
        if self.files.client.lens_refresh:
            self.workspace_code_lens_refresh(None)

    def handler(self, feature: Feature) -> Callable[[Any], Any]:
        """Make the handler that pygls calls; if it raises, pygls logs the exception and answers with an error."""

        def answer(params: Any) -> Any:
            with undisturbed():
                function = _function(feature.module, feature.function)
                if feature.of == "workspace":
                    return function(self.files, params)
                document = self.files.readable(params.text_document.uri)
                return None if document is None else function(document, params)

        async def later(params: Any) -> Any:
            seconds = feature.waits if self.files.client.hint_refresh else PATIENCE
            await self.checking.wait(params.text_document.uri, seconds)
            return answer(params)

        return later if feature.waits else answer

    def command_handler(self, module: str, function: str) -> Callable[..., Any]:
        """Make the handler of a command, which waits for the solver."""

        async def run(*arguments: Any) -> Any:
            command = _function(module, function)
            try:
                bound = inspect.signature(command).bind(self.files, *arguments)
            except TypeError as e:
                raise JsonRpcInvalidParams(f"{JsonRpcInvalidParams.MESSAGE}: {e}") from None
            await self.checking.wait(bound.arguments["uri"])
            result = command(*bound.args)
            if not isinstance(result, types.WorkspaceEdit):
                return result
            self.workspace_apply_edit(types.ApplyWorkspaceEditParams(result))
            return None

        return run


def _forward(method: str) -> Callable[[Any, Any], Any]:
    """Make a replacement for pygls's built-in handler that only calls our handler."""

    def handler(self: Any, params: Any) -> Any:
        yield self.fm.features[method], (params,), None

    return lsp_method(method)(handler)


class Protocol(LanguageServerProtocol):
    """The pygls protocol, except that it stores no texts.

    `Workspace` stores them, because pygls also splits lines at characters that do not end lines in LSP.
    """

    lsp_text_document__did_open: Any = _forward(types.TEXT_DOCUMENT_DID_OPEN)
    lsp_text_document__did_change: Any = _forward(types.TEXT_DOCUMENT_DID_CHANGE)
    lsp_text_document__did_close: Any = _forward(types.TEXT_DOCUMENT_DID_CLOSE)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Answer unusable parameters with an error: pygls only notifies the user, and the client would wait."""
        try:
            return super().structure_message(data)
        except JsonRpcException as e:
            if "id" in data and "method" in data:
                why = "; ".join(transform_error(e.__cause__)) if e.__cause__ else ""
                unusable = JsonRpcInvalidParams(f"{JsonRpcInvalidParams.MESSAGE}: {why}")
                self._send_response(data["id"], error=unusable.to_response_error())
            raise


def whole_number(value: Any, kind: type[int]) -> int:
    """Convert a number to an integer, but refuse `"0"` and `true`, which the converter would accept.

    Flags and enumerations are converted by their own type. Raises ValueError.
    """
    if kind is not int:
        return kind(value)
    if isinstance(value, bool | str) or value != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _function(module: str, name: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(f"moedsl.lsp.{module}"), name)


def initialize(ls: Server, params: types.InitializeParams) -> None:
    """Read the client's capabilities and folders."""
    encoding = ServerCapabilitiesBuilder.choose_position_encoding(params.capabilities)
    folders = [f.uri for f in params.workspace_folders or ()] or [params.root_uri or ""]
    roots = tuple(path for uri in folders if (path := uris.to_fs_path(uri)))
    ls.files = Workspace(Client.read(params.capabilities, getattr(encoding, "value", encoding)), roots)


def initialized(ls: Server, _: types.InitializedParams) -> None:
    """Load the compiler in a thread, and register for changes of .moe files on disk, which open files may use."""

    def load() -> None:
        _function("index", "warm_up")()

    threading.Thread(target=load, daemon=True).start()
    if ls.files.client.watch_files:
        watchers = [types.FileSystemWatcher(WATCHED)]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        registration = types.Registration("moe-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        ls.client_register_capability(types.RegistrationParams([registration]))


def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    item = params.text_document
    ls.files.open(item.uri, item.version, item.text)
    ls.checking.changed(item.uri)


def changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    item = params.text_document
    ls.files.change(item.uri, item.version, params.content_changes)
    ls.checking.changed(item.uri)


def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    ls.checking.closed(params.text_document.uri)


def changed_on_disk(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
    for event in params.changes:
        if event.uri not in ls.files.documents:
            ls.checking.dependents(event.uri)


def folders_changed(ls: Server, params: types.DidChangeWorkspaceFoldersParams) -> None:
    gone, added = ([uris.to_fs_path(f.uri) for f in folders] for folders in (params.event.removed, params.event.added))
    ls.files.roots = (*(r for r in ls.files.roots if r not in gone), *(path for path in added if path))


def ignored(ls: Server, params: Any) -> None:
    """Do nothing for a saved file, whose text is known, and for settings, of which there are none.

    Clients send both without being asked.
    """


WATCHED = "**/*.moe"
SESSION: dict[str, Callable[[Server, Any], None]] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.TEXT_DOCUMENT_DID_OPEN: opened,
    types.TEXT_DOCUMENT_DID_CHANGE: changed,
    types.TEXT_DOCUMENT_DID_SAVE: ignored,
    types.TEXT_DOCUMENT_DID_CLOSE: closed,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: changed_on_disk,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: folders_changed,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: ignored,
}
"""Requests and notifications about the session, files and folders."""
