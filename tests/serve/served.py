"""The page's server in a thread of the test, on a free port of this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from moedsl.cli.serve import app


@contextmanager
def served(processes: int = 2) -> Iterator[str]:
    """The address of a server that is ready."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = app.Server(uvicorn.Config(app.make(["127.0.0.1", "plans.example"], processes), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
