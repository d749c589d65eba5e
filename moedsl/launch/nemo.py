"""Import NeMo-Run on demand, protect standard input and files from it, and open its SSH connections.

Each command connects to a login node only once, so that the user types a password only once.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
import tarfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moedsl.support import files
from moedsl.support.diagnostics import Diagnostic, error

HOME = "NEMORUN_HOME"
"""The environment variable for NeMo-Run's folder."""


@cache
def nemo_run() -> Any:
    """Import NeMo-Run (3 to 6 s), stop it from printing to standard output, and return it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from packages that NeMo-Run imports
        import nemo_run
        from nemo_run.core.frontend.console.api import CONSOLE
    CONSOLE.quiet = True
    return nemo_run


@contextmanager
def no_input() -> Generator[None]:
    """Empty standard input while inside: NeMo-Run's local commands (invoke) would read what is meant for others."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextmanager
def whole_files() -> Generator[None]:
    """Make NeMo-Run replace each file of an experiment in one step.

    By default, NeMo-Run empties a file and then writes it (nemo_run 0.11.1 run/experiment.py:383, :405). If it is
    killed in between, even the list of submitted jobs is lost, and nobody finds the jobs again.
    """

    @contextmanager
    def written_whole(path: str) -> Generator[io.StringIO]:
        text = io.StringIO()
        yield text
        files.replace_file(Path(path), text.getvalue())

    def open_(path: str, mode: str = "r") -> Any:
        return written_whole(path) if "w" in mode else open(path, mode)

    with patch("nemo_run.run.experiment.open", open_, create=True):
        yield


_sessions: dict[tuple[Any, ...], Any] = {}
"""The open sessions of this process (fabric.Connection), by user, host, port and key."""
_failed: dict[tuple[Any, ...], BaseException] = {}
"""The errors of failed connections, which are not tried again, so that a list of experiments asks for no password
twice.
"""


NO_CONNECTION = "launch.no_connection"
"""The id of the diagnostic for a connection that cannot be made or is lost."""
ANSWERS_WITHIN_S = 30.0
"""Seconds within which an open session must answer before it counts as lost."""
PAUSES_S = (15.0, 30.0, 60.0, 120.0, *(300.0,) * 143)
"""Seconds before each attempt to reconnect, twelve hours in total: a login node under maintenance comes back."""


def failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions for a connection that cannot be made or is lost."""
    from nemo_run.run.torchx_backend.schedulers.slurm import PersistentSacctFailure
    from paramiko import SSHException

    return SSHException, OSError, EOFError, SystemExit, PersistentSacctFailure


def connect(tunnel: Any) -> None:
    """Open a NeMo-Run tunnel, reusing this process's open session to the same login node; raises one of `failures`."""
    if not hasattr(tunnel, "session") or not hasattr(tunnel, "identity"):  # a local tunnel opens no session
        tunnel.connect()
        return
    place = (tunnel.user, tunnel.host, tunnel.port, tunnel.identity)
    session = _sessions.get(place)
    if session is not None and session.is_connected:
        with suppress(*failures()):  # a lost connection may still look open
            session.transport.open_session(timeout=ANSWERS_WITHIN_S).close()
            tunnel.session = session
            return
    if place in _failed:
        raise _failed[place]
    try:
        tunnel.connect()
    except failures() as problem:
        _failed[place] = problem
        raise
    _sessions[place] = tunnel.session


def was_open() -> bool:
    """Whether this process was connected to a login node."""
    return bool(_sessions)


def try_again() -> None:
    """Forget failed connections, so that `connect` tries them again."""
    _failed.clear()


def why_not(problem: BaseException) -> str:
    """Explain why a session could not be opened; NeMo-Run's tunnel raises SystemExit if no key or password works."""
    return "it accepts neither a key nor a password" if isinstance(problem, SystemExit) else str(problem)


def try_it(user: str, host: str) -> str:
    """Suggest how to test the connection by hand."""
    return f"try `ssh {user}@{host}`; a key that has a passphrase must be in ssh-agent (`ssh-add`)"


def unreached(tunnel: Any, id: str, problem: BaseException) -> Diagnostic:
    """Report that an experiment's login node does not answer."""
    text = f"no connection to {tunnel.user}@{tunnel.host}, which has the jobs of {id}: {why_not(problem)}"
    return error(NO_CONNECTION, text, help=try_it(tunnel.user, tunnel.host))


@contextmanager
def copying() -> Generator[None]:
    """Make NeMo-Run copy experiments over the open session.

    By default it uses rsync (nemo_run 0.11.1 run/experiment.py:738), whose ssh opens another connection.
    """
    with patch("nemo_run.run.experiment.rsync", copy_folder):
        yield


def copy_folder(session: Any, source: str, target: str) -> None:
    """Copy a folder of scripts, some hundred kilobytes, into a folder of the login node.

    Raises OSError with the login node's error message.
    """
    archive, folder = io.BytesIO(), shlex.quote(target)
    with tarfile.open(fileobj=archive, mode="w:gz") as packed:
        packed.add(source, arcname=Path(source).name)
    channel = session.transport.open_session()
    lost: OSError | None = None
    with channel:
        channel.exec_command(f"mkdir -p {folder} && tar -xzf - -C {folder}")
        try:
            with channel.makefile_stdin("wb") as stdin:
                stdin.write(archive.getvalue())
        except OSError as problem:  # the connection is lost, or the command ended early; its stderr says why
            lost = problem
        said = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        status = channel.recv_exit_status()  # -1 if no status arrived
    if lost is not None and status <= 0:
        raise lost
    if status:
        raise OSError(f"{target} on {session.host} is not writable: {said}")
