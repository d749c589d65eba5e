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

from moedsl.diagnostics.model import Diagnostic, error

_open: dict[tuple[Any, ...], Any] = {}
"""The sessions of this process (fabric.Connection), by where they go and with which key."""
_failed: dict[tuple[Any, ...], BaseException] = {}
"""Why there is none; nobody is asked for a password, or kept waiting, for each experiment of a list."""


def failures() -> tuple[type[BaseException], ...]:
    """What is raised where there is no connection, or none any more."""
    from nemo_run.run.torchx_backend.schedulers.slurm import PersistentSacctFailure
    from paramiko import SSHException

    return SSHException, OSError, EOFError, SystemExit, PersistentSacctFailure


def connect(tunnel: Any) -> None:
    """Opens a tunnel of NeMo-Run, over this process's session to that place where it has one; raises `failures`."""
    if not hasattr(tunnel, "session") or not hasattr(tunnel, "identity"):  # local: nothing is opened
        tunnel.connect()
        return
    place = (tunnel.user, tunnel.host, tunnel.port, tunnel.identity)
    if place in _open and _open[place].is_connected:
        tunnel.session = _open[place]
        return
    if place in _failed:
        raise _failed[place]
    try:
        tunnel.connect()
    except failures() as problem:
        _failed[place] = problem
        raise
    _open[place] = tunnel.session


def why_not(problem: BaseException) -> str:
    """What kept a session from being opened; NeMo-Run's tunnel gives up with SystemExit where nothing let it in."""
    return "it accepts neither a key nor a password" if isinstance(problem, SystemExit) else str(problem)


def try_it(user: str, host: str) -> str:
    """How to find out more."""
    return f"try `ssh {user}@{host}`; a key that has a passphrase must be in ssh-agent (`ssh-add`)"


def unreached(tunnel: Any, id: str, problem: BaseException) -> Diagnostic:
    """That the login node of an experiment does not answer."""
    text = f"no connection to {tunnel.user}@{tunnel.host}, which has the jobs of {id}: {why_not(problem)}"
    return error("launch.no_connection", text, help=try_it(tunnel.user, tunnel.host))


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
            raise OSError(f"{target} on {session.host} is not writable: {said}")


def _archive(folder: Path) -> bytes:
    """A folder of scripts, some hundred kilobytes, as a tar file of its own name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return out.getvalue()
