"""Who computes when: an answer goes before the solver's thread, since somebody waits for it at the keyboard."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

SHORT, LONG = 0.001, 0.2
"""Seconds that a thread computes before it gives way to another: at rest, and while an answer is made."""


@contextmanager
def undisturbed() -> Generator[None]:
    """Inside, the solver waits for the server's thread to be done; Python would else give each the same share."""
    sys.setswitchinterval(LONG)
    try:
        yield
    finally:
        sys.setswitchinterval(SHORT)
