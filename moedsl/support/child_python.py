"""Start another Python that does not search the working directory for modules: a `torch.py` may lie there."""

from __future__ import annotations

import os
import sys

from moedsl.support.resources import PACKAGE


def environment() -> dict[str, str]:
    """The environment of this process for a child and all that the child starts.

    The child finds the same moedsl, even if this process found it in the working directory.
    """
    root, path = str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")
    first = [] if root in sys.path[1:] else [root]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, [*first, path]))}
