"""One recipe as the rules see it, however it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.schema.facts import Hardware

Place = tuple[str, int]
"""File and line, counted from 1."""


@frozen
class Recipe:
    """Fields by dotted name, and where each was set. A field that is not in `fields` is not known, or has no place."""

    target: str
    """As the user named it."""
    function: str
    file: str
    line: int
    """Of the function's `def`."""
    fields: Mapping[str, Any]
    """As the recipe builds them, plain JSON values; `env_vars` is one of them."""
    hardware: Hardware
    world: int
    settled: Mapping[str, Any] = field(factory=dict)
    """The same after Bridge's update; empty if the update did not run."""
    classes: Mapping[str, str] = field(factory=dict)
    """Section -> the name of the class that fills it."""
    places: Mapping[str, tuple[Place, ...]] = field(factory=dict)
    """Innermost first: the line that sets a field, then the lines that called it."""
    asked: str | None = None
    """The flex dispatcher that Bridge's helper was asked for last."""
    whole: bool = True
    """Whether a field that is not in `fields` is unset, and not merely unknown."""
    model: Mapping[str, Any] | None = None
    """Facts of the model that its fields do not say, where the stdlib declares it."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that are fields of nothing."""
    unread: tuple[str, ...] = ()
    """What the reading could not know, in words."""

    def get(self, name: str, otherwise: Any = None) -> Any:
        """A field's value; `otherwise` where it is unset or unknown."""
        value = self.fields.get(name)
        return otherwise if value is None else value

    def knows(self, *names: str) -> bool:
        """Whether each of these fields has a known value, none included."""
        return self.whole or all(n in self.fields for n in names)

    @property
    def env(self) -> Mapping[str, Any]:
        """The recipe's environment variables."""
        return self.fields.get("env_vars") or {}
