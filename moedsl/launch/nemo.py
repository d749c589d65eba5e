"""Import NeMo-Run when it is needed, and choose where it keeps its files."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def nemo_run() -> Any:
    """Import NeMo-Run (3 to 6 s) and keep it from printing on standard output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it imports
        import nemo_run
        from nemo_run.core.frontend.console.api import CONSOLE
    CONSOLE.quiet = True
    return nemo_run


HOME = "NEMORUN_HOME"
