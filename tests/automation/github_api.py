"""The part of GitHub's REST API that holds the comments of issues, on this machine.

https://docs.github.com/en/rest/issues/comments: a list has at most 100 of them a page, one has at most 65,536 characters,
and a token without the permission is refused with 403.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN, READ_ONLY = "token-that-writes", "token-that-reads"
_OF_AN_ISSUE = re.compile(r"/repos/(?P<repository>[^/]+/[^/]+)/issues/(?P<issue>\d+)/comments")
_COMMENT = re.compile(r"/repos/(?P<repository>[^/]+/[^/]+)/issues/comments/(?P<id>\d+)")


class Comments(ThreadingHTTPServer):
    """The comments of one repository, by their ids, and what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, issue: int, body: str) -> dict[str, Any]:
        comment = {"id": 1000 + len(self.comments), "issue": issue, "body": body}
        return self.comments.setdefault(comment["id"], comment)

    def of(self, issue: int) -> list[str]:
        return [c["body"] for c in self.comments.values() if c["issue"] == issue]


class _Handler(BaseHTTPRequestHandler):
    server: Comments  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: int(values[0]) for name, values in parse_qs(url.query).items()}
        issue = _OF_AN_ISSUE.fullmatch(url.path)
        assert issue is not None
        found = [c for c in self.server.comments.values() if c["issue"] == int(issue["issue"])]
        size = min(asked.get("per_page", 30), 100)
        start = size * (asked.get("page", 1) - 1)
        self._answer(200, found[start : start + size])

    def do_POST(self) -> None:
        issue = _OF_AN_ISSUE.fullmatch(self.path)
        assert issue is not None
        self._write(201, lambda body: self.server.add(int(issue["issue"]), body))

    def do_PATCH(self) -> None:
        comment = _COMMENT.fullmatch(self.path)
        assert comment is not None
        kept = self.server.comments[int(comment["id"])]
        self._write(200, lambda body: {**kept, **(kept.update(body=body) or {})})

    def _write(self, code: int, change: Any) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(403, {"message": "Resource not accessible by integration"})
        elif not 0 < len(body) <= 65_536:
            self._answer(422, {"message": "Validation Failed"})
        else:
            self._answer(code, change(body))

    def _answer(self, code: int, content: Any) -> None:
        self.server.asked.append(f"{self.command} {code}")
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Comments]:
    server = Comments()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
