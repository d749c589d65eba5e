"""Hold one recipe for the rules, from any reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.emit.read_back import Configuration
from moedsl.facts.facts import Hardware

Place = tuple[str, int]
"""File and line, counted from 1."""


@frozen(kw_only=True)
class Recipe(Configuration):
    """One recipe's fields as built, and where each was set."""

    target: str
    """The name that the user gave."""
    function: str
    file: str
    line: int
    """The line of the function's `def`."""
    hardware: Hardware
    world: int
    settled: Mapping[str, Any] = field(factory=dict)
    """The fields after Bridge's update; empty if the update did not run."""
    places: Mapping[str, tuple[Place, ...]] = field(factory=dict)
    """The line that sets a field, then its callers, innermost first."""
    asked: str | None = None
    """The flex dispatcher of the last call to Bridge's helper."""
    model: Mapping[str, Any] | None = None
    """Facts of the model without a field, if the stdlib declares the model."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that are not fields."""
    unread: tuple[str, ...] = ()
    """What could not be read, in words."""

    @property
    def env(self) -> Mapping[str, Any]:
        """The recipe's environment variables."""
        return self.fields.get("env_vars") or {}
