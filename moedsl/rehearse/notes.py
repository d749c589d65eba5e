"""Describe a rehearsal: what is kept, shrunk, or not rehearsed, with the values of the plan and the rehearsal."""

from __future__ import annotations

from typing import Any

from attrs import frozen

KEPT, SHRUNK, LEFT_OUT = "kept", "shrunk", "not rehearsed"
KINDS = (KEPT, SHRUNK, LEFT_OUT)


@frozen
class Note:
    """One thing of the plan: `kind` is kept, shrunk or not rehearsed; `here` is its value in the rehearsal."""

    what: str
    kind: str
    plan: Any
    here: Any
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "plan": self.plan, "here": self.here, "because": self.because}


def sized(what: str, plan: Any, here: Any) -> Note:
    """Note a size: kept if it is equal, else shrunk."""
    return Note(what, KEPT if plan == here else SHRUNK, plan, here)
