"""moedsl turns a few words into a training recipe for NVIDIA Megatron Bridge.

The names in `__all__` are the public API and follow semantic versioning. Everything else in this package is private
and may change in any release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moedsl.api import (
        Answered,
        Checked,
        Compiled,
        Explained,
        Planned,
        check,
        compile,  # noqa: A004
        diff,
        explain,
        gap,
        plan,
        profile,
        results,
        sweep,
        what_if,
    )
    from moedsl.planner.plan import Plan
    from moedsl.support.diagnostics import Diagnostic

__all__ = [
    "Answered", "Checked", "Compiled", "Diagnostic", "Explained", "Plan", "Planned", "check", "compile", "diff",
    "explain", "gap", "plan", "profile", "results", "sweep", "what_if",
]  # fmt: skip
_HOMES = {"Diagnostic": "moedsl.support.diagnostics", "Plan": "moedsl.planner.plan"}
"""The modules of the names that are not in `moedsl.api`."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import moedsl` costs nothing."""
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "moedsl.api")), name)
    raise AttributeError(f"module 'moedsl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
