"""NeMo-Run's local commands kept from this process's standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_input() -> Generator[None]:
    """Inside, standard input is empty: NeMo-Run's local commands (invoke) would read what is meant for others."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before
