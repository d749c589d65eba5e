"""What a rehearsal says of itself: kept, shrunk, or not rehearsed at all, each with the plan's value and its own."""

from __future__ import annotations

from typing import Any

from attrs import frozen

KEPT, SHRUNK, LEFT_OUT = "kept", "shrunk", "not rehearsed"
KINDS = (KEPT, SHRUNK, LEFT_OUT)


@frozen
class Note:
    """One thing of the plan: `kind` is kept, shrunk or not rehearsed; `here` is what the rehearsal has in its place."""

    what: str
    kind: str
    plan: Any
    here: Any
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "plan": self.plan, "here": self.here, "because": self.because}


def sized(what: str, plan: Any, here: Any) -> Note:
    """A size: kept where it is the same, else shrunk."""
    return Note(what, KEPT if plan == here else SHRUNK, plan, here)
