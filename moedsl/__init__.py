"""moedsl turns a few words into a training recipe for NVIDIA Megatron Bridge.

The names in `__all__` are the public API and follow semantic versioning. Everything else in this package is private
and may change in any release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moedsl.api import Checked, Compiled, Explained, Planned, check, compile, explain, plan  # noqa: A004
    from moedsl.planner.plan import Plan
    from moedsl.support.diagnostics import Diagnostic

__all__ = [
    "Checked", "Compiled", "Diagnostic", "Explained", "Plan", "Planned", "check", "compile", "explain", "plan",
]  # fmt: skip
_HOMES = {
    "moedsl.api": ("Checked", "Compiled", "Explained", "Planned", "check", "compile", "explain", "plan"),
    "moedsl.support.diagnostics": ("Diagnostic",),
    "moedsl.planner.plan": ("Plan",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import moedsl` costs nothing."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'moedsl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
