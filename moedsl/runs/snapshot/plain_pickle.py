"""Read a pickle that holds only plain values, without executing it.

A fork of the process reads it first. The hash of a key that is nested deep enough ends the process that asks for it,
and keys with the same hash take hours that no signal interrupts.
"""

from __future__ import annotations

import faulthandler
import io
import os
import pickle
import resource
import signal
from typing import Any, BinaryIO, NoReturn

SECONDS = 20
"""Of a core, for the fork; a snapshot that is read in the memory of a command takes a few."""


class NotPlain(ValueError):
    """Says what a pickle holds besides plain values, or that it is damaged."""


class _Plain(pickle.Unpickler):
    """Lists, dictionaries, numbers and texts need no global, so none is looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"it names {module}.{name}, and reading it would run code")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("it refers to another file")


def load(stream: BinaryIO) -> Any:
    """Read one value; raises NotPlain."""
    whole = stream if stream.seekable() else io.BytesIO(stream.read())
    if hasattr(os, "fork"):
        _try_in_a_fork(whole)
        whole.seek(0)
    try:
        return _Plain(whole).load()
    except NotPlain:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as e:
        raise NotPlain(f"it is damaged or no pickle: {e}") from None


def _try_in_a_fork(stream: BinaryIO) -> None:
    """Raise NotPlain if reading ends a process, or takes too long."""
    child = os.fork()
    if child == 0:
        _read_and_end(stream)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    if not os.WIFSIGNALED(status):
        return
    slow = os.WTERMSIG(status) == signal.SIGXCPU
    raise NotPlain(f"reading it takes over {SECONDS} s of a core" if slow else "its keys are nested too deep")


def _read_and_end(stream: BinaryIO) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        _Plain(stream).load()
    finally:  # what is wrong, the parent finds too
        os._exit(0)
