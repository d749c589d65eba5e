"""Connections to login nodes: one for all that a command asks, so that a password is asked for once."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_open: dict[tuple[Any, ...], Any] = {}
"""The sessions of this process (fabric.Connection), by where they go and with which key."""


def connect(tunnel: Any) -> None:
    """Opens a tunnel of NeMo-Run, over this process's session to that place where it has one."""
    if not hasattr(tunnel, "session") or not hasattr(tunnel, "identity"):  # local: nothing is opened
        tunnel.connect()
        return
    place = (tunnel.user, tunnel.host, tunnel.port, tunnel.identity)
    if place in _open and _open[place].is_connected:
        tunnel.session = _open[place]
        return
    tunnel.connect()
    _open[place] = tunnel.session


def why_not(problem: BaseException) -> str:
    """What kept a session from being opened; NeMo-Run's tunnel gives up with SystemExit where nothing let it in."""
    return "it takes neither a key nor a password" if isinstance(problem, SystemExit) else str(problem)


def try_it(user: str, host: str) -> str:
    """How to find out more."""
    return f"try `ssh {user}@{host}`; a key that has a passphrase must be in ssh-agent (`ssh-add`)"


@contextmanager
def copying() -> Generator[None]:
    """Inside, NeMo-Run copies experiments over the session that is open.

    Its own way is rsync (nemo_run 0.11.1 run/experiment.py:738), whose ssh is another connection.
    """
    with patch("nemo_run.run.experiment.rsync", copy):
        yield


def copy(session: Any, source: str, target: str) -> None:
    """Copies a folder into a folder of the login node; OSError with what the node says where it does not take it."""
    folder = shlex.quote(target)
    channel = session.transport.open_session()
    with channel:
        channel.exec_command(f"mkdir -p {folder} && tar -xzf - -C {folder}")
        with channel.makefile_stdin("wb") as stdin:
            stdin.write(_archive(Path(source)))
        said = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        if channel.recv_exit_status():
            raise OSError(f"{target} on {session.host} takes no files: {said}")


def _archive(folder: Path) -> bytes:
    """A folder of scripts, some hundred kilobytes, as a tar file of its own name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return out.getvalue()
