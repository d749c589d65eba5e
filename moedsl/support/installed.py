"""Find the version of an installed distribution without importing anything."""

from __future__ import annotations

import sys
from pathlib import Path


def version(name: str) -> str | None:
    """The version in the name of the first ``NAME-VERSION.dist-info`` on the path: importlib.metadata is slow."""
    for entry in sys.path:
        info = next(Path(entry).glob(f"{name}-*.dist-info"), None) if entry else None
        if info is not None:
            return info.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None
