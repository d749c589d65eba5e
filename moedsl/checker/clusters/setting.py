"""One variable of an environment, and what set it."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Setting:
    """One derived value: its name, its text, and why it is so."""

    name: str
    value: Any
    """A number, a text, or true for an option without a value."""
    origin: str
    """rule (of a launch), plan (the recipe sets the same) or cluster (its declaration says so)."""
    rule: str | None
    because: str | None
    cites: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The value as a variable or an option writes it."""
        return str(int(self.value)) if isinstance(self.value, bool) else str(self.value)
