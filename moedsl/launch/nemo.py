"""NeMo-Run itself: imported when it is needed, kept from standard input and half-written files, with its connections.

A login node is connected to once for each command, so that a password is typed once.
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
"""The variable that names the folder of experiments."""


@cache
def nemo_run() -> Any:
    """Import NeMo-Run (3 to 6 s) and keep it from printing on standard output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it imports
        import nemo_run
        from nemo_run.core.frontend.console.api import CONSOLE
    CONSOLE.quiet = True
    return nemo_run


@contextmanager
def no_input() -> Generator[None]:
    """Empty standard input: NeMo-Run's local commands (invoke) would read what is meant for others."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextmanager
def whole_files() -> Generator[None]:
    """Replace each file of an experiment in one step.

    NeMo-Run empties a file and then writes it (nemo_run 0.11.1 run/experiment.py:383, :405), even the list of submitted
    jobs; without it nobody finds them again.
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
"""The sessions of this process (fabric.Connection), by user, host, port and key."""
_failed: dict[tuple[Any, ...], BaseException] = {}
"""Failed connections; they are not tried again, so that a list of experiments asks for no password twice."""


NO_CONNECTION = "launch.no_connection"
"""The diagnostic of a connection that cannot be made or is lost."""
ANSWERS_WITHIN_S = 30.0
"""How long an open session has for a sign of life before it counts as lost."""
PAUSES_S = (15.0, 30.0, 60.0, 120.0, *(300.0,) * 143)
"""Seconds before each new attempt to connect, twelve hours in all: a login node that is maintained comes back."""


def failures() -> tuple[type[BaseException], ...]:
    """The exceptions of a connection that cannot be made or is lost."""
    from nemo_run.run.torchx_backend.schedulers.slurm import PersistentSacctFailure
    from paramiko import SSHException

    return SSHException, OSError, EOFError, SystemExit, PersistentSacctFailure


def connect(tunnel: Any) -> None:
    """Open a tunnel of NeMo-Run, over an open session of this process if there is one; raises `failures`."""
    if not hasattr(tunnel, "session") or not hasattr(tunnel, "identity"):  # local: nothing is opened
        tunnel.connect()
        return
    place = (tunnel.user, tunnel.host, tunnel.port, tunnel.identity)
    session = _sessions.get(place)
    if session is not None and session.is_connected:
        with suppress(*failures()):  # that the other side is gone may not have been noticed
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
    """Let failed connections be made again."""
    _failed.clear()


def why_not(problem: BaseException) -> str:
    """Write why a session could not be opened; NeMo-Run's tunnel raises SystemExit if no key or password works."""
    return "it accepts neither a key nor a password" if isinstance(problem, SystemExit) else str(problem)


def try_it(user: str, host: str) -> str:
    """Suggest how to test the connection by hand."""
    return f"try `ssh {user}@{host}`; a key that has a passphrase must be in ssh-agent (`ssh-add`)"


def unreached(tunnel: Any, id: str, problem: BaseException) -> Diagnostic:
    """Report that the login node of an experiment does not answer."""
    text = f"no connection to {tunnel.user}@{tunnel.host}, which has the jobs of {id}: {why_not(problem)}"
    return error(NO_CONNECTION, text, help=try_it(tunnel.user, tunnel.host))


@contextmanager
def copying() -> Generator[None]:
    """Make NeMo-Run copy experiments over the open session.

    By default it uses rsync (nemo_run 0.11.1 run/experiment.py:738), whose ssh is another connection.
    """
    with patch("nemo_run.run.experiment.rsync", copy_folder):
        yield


def copy_folder(session: Any, source: str, target: str) -> None:
    """Copy a folder of scripts, some hundred kilobytes, into one of the login node; OSError with its message."""
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
        except OSError as problem:  # the connection is lost, or the command has ended, and says why
            lost = problem
        said = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        status = channel.recv_exit_status()  # -1 where none came
    if lost is not None and status <= 0:
        raise lost
    if status:
        raise OSError(f"{target} on {session.host} is not writable: {said}")
