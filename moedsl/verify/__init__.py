"""Ask the real Megatron Bridge: everything that touches it is here.

Importing this package is fast. One warm process imports Bridge once and forks for each recipe. The modules named for a
question (update, groups, stages, runtime) run inside the fork, as do te, gpu and meta; the others run in the parent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moedsl.verify.client import Server as Server
    from moedsl.verify.client import verify as verify
    from moedsl.verify.report import Report as Report
    from moedsl.verify.report import render as render

_HOMES = {"Server": "client", "verify": "client", "Report": "report", "render": "report"}
__all__ = ["Report", "Server", "render", "verify"]


def __getattr__(name: str) -> Any:
    """Import the client when it is needed: a plan uses only the table of Bridge's fields."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
