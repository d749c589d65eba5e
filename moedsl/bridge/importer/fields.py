"""Read a configuration: mark the keys that are read, required or allowed, and refuse the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from moedsl.support.diagnostics import Diagnostic, error

LARGEST = 1 << 32
"""A count that no real model reaches."""


@define
class Fields:
    """One JSON object of a configuration, with the keys that were read and the mistakes in them.

    `path` is the dotted prefix of the object in its file (``text_config.``), empty at the top.
    """

    config: Mapping[str, Any]
    path: str = ""
    known: set[str] = field(factory=set)
    problems: list[Diagnostic] = field(factory=list)
    text: Fields | None = None
    """The language model's, of a vision tower."""

    def refuse(self, slug: str, key: str, message: str, **more: Any) -> None:
        """Record one refusal; `values` of the diagnostic hold the field's path and its value."""
        values = {"field": self.path + key, "value": self.config.get(key)}
        self.problems.append(error(slug, f"{self.path}{key}: {message}", values=values, **more))

    def get(self, key: str) -> Any:
        """Read a value, None if the key is absent; the key counts as read."""
        self.known.add(key)
        return self.config.get(key)

    def integer(self, key: str, least: int, absent: int | None, null: int | None) -> int:
        """Read a whole number of at least `least`; on a mistake record it and return `least`."""
        value = self.get(key)
        stand_in = null if key in self.config else absent
        if value is None and stand_in is not None:
            return stand_in
        if value is None:
            self._nothing(key)
        elif not is_int(value):
            self.refuse("import.wrong_type", key, f"expected a whole number, got {show(value)}")
        elif value < least:
            self.refuse("import.unsupported_value", key, f"expected {least} or more, got {show(value)}")
        elif value > LARGEST:
            self.refuse("import.unsupported_value", key, f"expected no more than {LARGEST}, got {show(value)}")
        else:
            return int(value)
        return least

    def flag(self, key: str, absent: bool | None) -> bool:
        """Read true or false; on a mistake record it and return False."""
        value = self.get(key)
        if isinstance(value, bool):
            return value
        if key not in self.config and absent is not None:
            return absent
        if value is None:
            self._nothing(key)
        else:
            self.refuse("import.wrong_type", key, f"expected true or false, got {show(value)}")
        return False

    def _nothing(self, key: str) -> None:
        if key in self.config:
            self.refuse("import.wrong_type", key, "expected a value, got null")
        else:
            self.refuse("import.missing_field", key, "missing field, which has no safe default")

    def unknown(self) -> list[str]:
        """Keys with a value that nothing has read; keys with a leading underscore are notes of the library."""
        return [k for k, v in self.config.items() if k not in self.known and v is not None and not k.startswith("_")]


def is_int(value: Any) -> bool:
    """Whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def show(value: Any) -> str:
    """Write a JSON value as a short text: ``"softmax"``, ``null``, ``[0, 0, 1, ...]``, ``{...}``."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value[:3]) + (", ...]" if len(value) > 3 else "]")
    if isinstance(value, str) and len(value) > 60:
        return f'"{value[:57]}..."'
    return json.dumps(value)
