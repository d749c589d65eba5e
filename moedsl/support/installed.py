"""Find the version of an installed distribution without importing anything."""

from __future__ import annotations

import os
import sys


def version(name: str) -> str | None:
    """The version in the name of the first ``NAME-VERSION.dist-info`` on the path: importlib.metadata is slow."""
    for entry in filter(os.path.isdir, sys.path):
        for found in os.listdir(entry):
            if found.startswith(f"{name}-") and found.endswith(".dist-info"):
                return found.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None
