"""Who computes when: an answer goes before the solver's thread, since somebody waits for it at the keyboard."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

SHORT, LONG = 0.001, 0.2
"""Seconds that a thread computes before it gives way to another: at rest, and while an answer is made."""


@contextmanager
def undisturbed() -> Generator[None]:
    """Inside, the solver waits for the server's thread to be done, and garbage is left for later.

    Python would else give each thread the same share, and a collection in the midst of a check makes it half as long
    again.
    """
    sys.setswitchinterval(LONG)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(SHORT)
