"""NeMo-Run, imported when it is needed, and where it keeps its files."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any


@cache
def nemo_run() -> Any:
    """The module (3 to 6 s), which from then on says nothing on standard output by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it imports
        import nemo_run
        from nemo_run.core.frontend.console.api import CONSOLE
    CONSOLE.quiet = True
    return nemo_run


HOME = "NEMORUN_HOME"
