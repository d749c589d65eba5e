"""Hold one recipe for the rules, from any reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.facts.facts import Hardware

Place = tuple[str, int]
"""File and line, counted from 1."""


@frozen
class Recipe:
    """Fields by dotted name, and where each was set. A field that is not in `fields` is unknown."""

    target: str
    """The name that the user gave."""
    function: str
    file: str
    line: int
    """The line of the function's `def`."""
    fields: Mapping[str, Any]
    """The fields as built, plain JSON values, including `env_vars`."""
    hardware: Hardware
    world: int
    settled: Mapping[str, Any] = field(factory=dict)
    """The fields after Bridge's update; empty if the update did not run."""
    classes: Mapping[str, str] = field(factory=dict)
    """The name of the class that fills each section."""
    places: Mapping[str, tuple[Place, ...]] = field(factory=dict)
    """The line that sets a field, then its callers, innermost first."""
    asked: str | None = None
    """The flex dispatcher of the last call to Bridge's helper."""
    whole: bool = True
    """Whether a field that is not in `fields` is unset, and not merely unknown."""
    model: Mapping[str, Any] | None = None
    """Facts of the model without a field, if the stdlib declares the model."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that are not fields."""
    unread: tuple[str, ...] = ()
    """What could not be read, in words."""

    def get(self, name: str, otherwise: Any = None) -> Any:
        """A field's value; `otherwise` if it is unset or unknown."""
        value = self.fields.get(name)
        return otherwise if value is None else value

    def knows(self, *names: str) -> bool:
        """Whether each of these fields has a known value, none included."""
        return self.whole or all(n in self.fields for n in names)

    @property
    def env(self) -> Mapping[str, Any]:
        """The recipe's environment variables."""
        return self.fields.get("env_vars") or {}
