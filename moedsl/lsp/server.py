"""Run the server: the table of its requests and commands, and its wiring."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

from attrs import frozen
from cattrs import transform_error
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter
from pygls.protocol.language_server import LanguageServerProtocol, lsp_method

from moedsl.lsp import legend, sync
from moedsl.lsp.checking import Checking
from moedsl.lsp.document import Document, Solved
from moedsl.lsp.solving import Solving, undisturbed
from moedsl.lsp.workspace import Workspace

log = logging.getLogger(__name__)


PATIENCE = 10.0
"""Seconds that an answer waits for the solver if the client cannot be asked to refresh."""


@frozen
class Feature:
    """One request, which `function` of ``moedsl.lsp.features.MODULE`` answers; it is imported at the first request.

    The function takes a `Document` and the request's parameters if `of` is ``document``; a file that is not open or is
    refused has the answer None. If `of` is ``workspace``, it takes the `Workspace` instead.
    """

    method: str
    module: str
    function: str = "answer"
    options: Any = None
    of: str = "document"
    waits: float = 0.0
    """Seconds that the answer may wait for the solver; then it is made without `Document.plan`."""


FEATURES: tuple[Feature, ...] = (
    Feature(
        types.TEXT_DOCUMENT_COMPLETION,
        "completion",
        options=types.CompletionOptions(trigger_characters=["=", ".", " ", '"', "[", "/"]),
    ),
    Feature(types.TEXT_DOCUMENT_HOVER, "hover"),
    Feature(types.TEXT_DOCUMENT_INLAY_HINT, "hints", waits=0.6),
    Feature(types.TEXT_DOCUMENT_DEFINITION, "definition", of="workspace"),
    Feature(types.TEXT_DOCUMENT_REFERENCES, "references", of="workspace"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, "references", "highlight"),
    Feature(types.TEXT_DOCUMENT_PREPARE_RENAME, "rename", "prepare", of="workspace"),
    Feature(types.TEXT_DOCUMENT_RENAME, "rename", of="workspace"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, "symbols"),
    Feature(types.WORKSPACE_SYMBOL, "symbols", "workspace", of="workspace"),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, "tokens", "full", options=legend.TOKENS),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, "tokens", "delta", options=legend.TOKENS),
    Feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, "tokens", "ranged", options=legend.TOKENS),
    Feature(types.TEXT_DOCUMENT_FORMATTING, "formatting", "whole"),
    Feature(types.TEXT_DOCUMENT_RANGE_FORMATTING, "formatting", "ranged"),
    Feature(types.TEXT_DOCUMENT_FOLDING_RANGE, "folding"),
    Feature(types.TEXT_DOCUMENT_SELECTION_RANGE, "folding", "selection"),
    Feature(types.TEXT_DOCUMENT_DOCUMENT_LINK, "links", of="workspace"),
    Feature(types.TEXT_DOCUMENT_CODE_ACTION, "actions", options=legend.ACTIONS, of="workspace"),
    Feature(types.TEXT_DOCUMENT_CODE_LENS, "lenses", waits=0.6),
)
"""Every request, in one line each."""

COMMANDS: dict[str, tuple[str, str]] = {
    "moedsl.pin": ("hints", "pin"),
    "moedsl.pinAll": ("commands", "pin_all"),
    legend.SHOW_PLAN: ("commands", "show_plan"),
    legend.SHOW_REPORT: ("commands", "show_report"),
}
"""Module and function of `moedsl.lsp.features` for each command.

The function takes the `Workspace` and the arguments. The client applies a `WorkspaceEdit` that it returns; anything
else is the command's result.
"""


def _forward(method: str) -> Callable[[Any, Any], Any]:
    """A built-in handler that does nothing, because ours does all."""

    def handler(self: Any, params: Any) -> Any:
        yield self.fm.features[method], (params,), None

    return lsp_method(method)(handler)


class Protocol(LanguageServerProtocol):
    """Store no texts: only `Workspace` does, because pygls also splits lines at characters at which LSP does not."""

    lsp_text_document__did_open: Any = _forward(types.TEXT_DOCUMENT_DID_OPEN)
    lsp_text_document__did_change: Any = _forward(types.TEXT_DOCUMENT_DID_CHANGE)
    lsp_text_document__did_close: Any = _forward(types.TEXT_DOCUMENT_DID_CLOSE)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Answer a request whose parameters cannot be used: pygls only tells the user, and the client would wait."""
        try:
            return super().structure_message(data)
        except JsonRpcException as e:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=_unusable(e.__cause__).to_response_error())
            raise


def _unusable(why: BaseException | None) -> JsonRpcInvalidParams:
    return JsonRpcInvalidParams(f"{JsonRpcInvalidParams.MESSAGE}: {'; '.join(transform_error(why)) if why else ''}")


def _whole(value: Any, kind: type[int]) -> int:
    """Read a whole number: the converter would make one of `"0"` and of `true`. Flags and enumerations come too."""
    if kind is not int:
        return kind(value)
    if isinstance(value, bool | str) or value != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


class Server(LanguageServer):
    """The server of pygls with the open files."""

    def __init__(self, version: str) -> None:
        self.converter = default_converter()
        self.converter.register_structure_hook(int, _whole)
        super().__init__(
            "moedsl", version, protocol_cls=Protocol, converter_factory=lambda: self.converter, max_workers=3
        )
        self.files = Workspace()
        self.solving = Solving(self._solved)
        self.checking = Checking(self)

    def _solved(self, document: Document, plan: Solved) -> None:
        """Publish the solver's diagnostics for a snapshot, and ask the client to refresh."""
        if not self.files.keep(document, plan):
            return
        self.checking.publish(document.uri)
        if self.files.client.hint_refresh:
            self.workspace_inlay_hint_refresh(None)
        if self.files.client.lens_refresh:
            self.workspace_code_lens_refresh(None)


def make(version: str) -> Server:
    """Make a server with every feature registered; the compiler is imported when a request needs it."""
    server = Server(version)
    sync.register(server)
    for feature in FEATURES:
        server.feature(feature.method, feature.options)(_handler(server, feature))
    for name, (module, function) in COMMANDS.items():
        server.command(name)(_command(server, module, function))
    return server


def _function(module: str, name: str) -> Callable[..., Any]:
    return getattr(importlib.import_module(f"moedsl.lsp.features.{module}"), name)


def _handler(server: Server, feature: Feature) -> Callable[[Any], Any]:
    """Make the handler that pygls calls. pygls logs an exception of a feature and answers with an error."""

    def answer(params: Any) -> Any:
        with undisturbed():
            return made(params)

    def made(params: Any) -> Any:
        function = _function(feature.module, feature.function)
        if feature.of == "workspace":
            return function(server.files, params)
        document = server.files.document(params.text_document.uri)
        return None if document is None or document.refused else function(document, params)

    async def later(params: Any) -> Any:
        asks_again = server.files.client.hint_refresh
        seconds = feature.waits if asks_again else PATIENCE
        await server.solving.wait(params.text_document.uri, seconds)
        return answer(params)

    return later if feature.waits else answer


def _command(server: Server, module: str, function: str) -> Callable[..., Any]:
    async def run(*arguments: Any) -> Any:
        command = _function(module, function)
        try:
            bound = inspect.signature(command).bind(server.files, *arguments)
        except TypeError as e:
            raise JsonRpcInvalidParams(f"{JsonRpcInvalidParams.MESSAGE}: {e}") from None
        await server.solving.finished(bound.arguments["uri"])
        result = command(*bound.args)
        if not isinstance(result, types.WorkspaceEdit):
            return result
        server.workspace_apply_edit(types.ApplyWorkspaceEditParams(result))
        return None

    return run
