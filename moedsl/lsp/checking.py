"""Schedule checks of files: shortly after the last change, and when a used file changes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from lsprotocol import types

from moedsl.lsp.features import diagnostics
from moedsl.lsp.solving import Solving, undisturbed
from moedsl.lsp.workspace import Workspace

log = logging.getLogger(__name__)

DELAY = 0.003
"""Seconds without a change before a file is checked."""
SLOW = 0.1
"""Seconds of the longest wait; a slow file waits half the time of its last check."""


class Session(Protocol):
    """The server, as `Checking` uses it."""

    files: Workspace
    solving: Solving

    def text_document_publish_diagnostics(self, params: types.PublishDiagnosticsParams) -> Any: ...


class Checking:
    """Checks files, with one timer for each file that changed."""

    def __init__(self, server: Session) -> None:
        self._server = server
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._took: dict[str, float] = {}
        self._new: set[str] = set()
        """Files whose text changed since their last check; files that use them are notified once."""

    def changed(self, uri: str) -> None:
        """Start the timer of an open file whose text is new."""
        self._new.add(uri)
        self._again(uri)

    def _again(self, uri: str) -> None:
        self._server.solving.expect(uri)
        self._schedule(uri)

    def closed(self, uri: str) -> None:
        """Clear the diagnostics of a closed file, and its text is the disk's again."""
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self._server.files.close(uri)
        self._server.solving.drop(uri)
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.dependents(uri)

    def dependents(self, uri: str) -> None:
        """Start the timers of files that use this one."""
        files = self._server.files
        found = files.dependents(uri)
        files.forget(found)
        for other in found:
            self._again(other)

    def _schedule(self, uri: str) -> None:
        timer = self._timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        took = self._took.get(uri, 0.0)
        delay = took / 2 if took > SLOW else DELAY
        self._timers[uri] = asyncio.get_running_loop().call_later(delay, self._check, uri)

    def _check(self, uri: str) -> None:
        """Check a file, publish its diagnostics and have it solved. Errors here are logged and stop nothing."""
        self._timers.pop(uri, None)
        start = time.monotonic()
        with undisturbed():
            self._look_at(uri)
        self._took[uri] = time.monotonic() - start
        if uri in self._new:
            self._new.discard(uri)
            self.dependents(uri)

    def _look_at(self, uri: str) -> None:
        try:
            document = self._server.files.document(uri)
            if document is None:
                return
            self.publish(uri)
            self._server.solving.start(document)
        except Exception:
            log.exception("checking %s failed", uri)
            self._server.solving.drop(uri)

    def publish(self, uri: str) -> None:
        """Publish the diagnostics of the newest snapshot."""
        document = self._server.files.document(uri)
        if document is not None:
            found = diagnostics.of(document, self._server.files)
            params = types.PublishDiagnosticsParams(uri, found, document.version)
            self._server.text_document_publish_diagnostics(params)
