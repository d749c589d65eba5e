"""`moedsl serve`: serve the page to plan on."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from argparse import Namespace

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_LACKING = "the page needs starlette and uvicorn: pip install 'moedsl[serve]'"
_OPEN = "everybody who reaches this address can plan here, without a password; see docs/serve.md for a proxy"


def run(a: Namespace) -> int:
    """Serve until Ctrl-C. If the page cannot be served, print why: exit code 1."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn", "lsprotocol")):
        print(_LACKING, file=sys.stderr)
        return 1
    import uvicorn

    from moedsl.cli.serve import app

    try:
        listening = _listening(a.host, a.port)
    except OSError as e:
        print(f"{a.host} port {a.port} cannot be served: {e.strerror}; name another --port or --host", file=sys.stderr)
        return 1
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    names = (*_LOCAL, a.host, *a.name)
    if host not in ("127.0.0.1", "::1"):
        print(_OPEN, file=sys.stderr)
    server = uvicorn.Server(uvicorn.Config(app.make(names, a.processes or os.cpu_count() or 1), log_level="warning"))
    print(f"{url} plans what you type; Ctrl-C ends it", flush=True)
    server.run([listening])
    return 0


def _listening(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
