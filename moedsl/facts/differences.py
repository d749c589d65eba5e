"""Write a table of one release as what differs from another's, and read it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GONE = "-"
"""The key of the names that only the other table has."""


def of(table: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What to change in `other` to get `table`; mappings are compared inside."""
    out: dict[str, Any] = {}
    for name, value in table.items():
        if name not in other or value != other[name]:
            inside = isinstance(value, Mapping) and isinstance(other.get(name), Mapping)
            out[name] = of(value, other[name]) if inside else value
    gone = sorted(other.keys() - table.keys())
    return out | ({GONE: gone} if gone else {})


def applied(changes: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The table of which `changes` are the differences from `other`."""
    out = {name: value for name, value in other.items() if name not in changes.get(GONE, ())}
    for name, value in changes.items():
        if name != GONE:
            inside = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
            out[name] = applied(value, out[name]) if inside else value
    return out
