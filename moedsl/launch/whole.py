"""What NeMo-Run keeps of an experiment, written whole or not at all: its launcher may be killed at any moment."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch


@contextmanager
def files() -> Generator[None]:
    """Inside, each of an experiment's files is replaced in one step.

    NeMo-Run empties a file and then writes it (nemo_run 0.11.1 run/experiment.py:383, :405), the list of the jobs that
    were submitted too: without it nobody finds them again.
    """
    with patch("nemo_run.run.experiment.open", _open, create=True):
        yield


def _open(path: str, mode: str = "r") -> Any:
    return _replacing(Path(path), mode) if "w" in mode else open(path, mode)


@contextmanager
def _replacing(path: Path, mode: str) -> Generator[Any]:
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with own.open(mode) as file:
            yield file
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)
