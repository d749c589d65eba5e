"""NeMo-Run itself: imported when it is needed, and kept from reading standard input and from half-written files."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moedsl.support import files

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
    with patch("nemo_run.run.experiment.open", _open, create=True):
        yield


def _open(path: str, mode: str = "r") -> Any:
    return _written_whole(Path(path)) if "w" in mode else open(path, mode)


@contextmanager
def _written_whole(path: Path) -> Generator[io.StringIO]:
    text = io.StringIO()
    yield text
    files.replace_file(path, text.getvalue())
