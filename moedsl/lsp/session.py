"""What the modules of the server need of it: the open files, the solver, and the client."""

from __future__ import annotations

from typing import Any, Protocol

from lsprotocol import types

from moedsl.lsp.solving import Solving
from moedsl.lsp.workspace import Workspace


class Session(Protocol):
    """The server as `Checking` sees it."""

    files: Workspace
    solving: Solving

    def text_document_publish_diagnostics(self, params: types.PublishDiagnosticsParams) -> Any: ...
