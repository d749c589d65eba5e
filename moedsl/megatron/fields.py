"""Which fields the real ConfigContainer has, to check `set` without Bridge; tools/bridge_fields.py writes the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from attrs import frozen

DATA = Path(__file__).resolve().parent
LATEST = "0.6.2"


@frozen
class Field:
    """One field of a section. A section several classes may fill has the fields of all; `classes` is empty for all."""

    path: str
    type: str
    default: Any
    """JSON; "required" and "factory" where there is no plain default."""
    classes: tuple[str, ...]


@cache
def versions() -> tuple[str, ...]:
    """The Bridge versions whose fields are known."""
    return tuple(sorted(f.stem.removeprefix("bridge_fields_") for f in DATA.glob("bridge_fields_*.json")))


@lru_cache(maxsize=4)
def sections(version: str = LATEST) -> Mapping[str, Mapping[str, Any]]:
    """Section -> its fields by name, as the data has them; raises FileNotFoundError as `fields` does."""
    return json.loads((DATA / f"bridge_fields_{version}.json").read_text(encoding="utf-8"))["sections"]


@lru_cache(maxsize=4)
def fields(version: str = LATEST) -> Mapping[str, Field]:
    """Dotted path -> Field of that Bridge version; raises FileNotFoundError for a version not in `versions()`."""
    return {
        f"{section}.{name}": Field(f"{section}.{name}", f["type"], f["default"], tuple(f.get("in", ())))
        for section, members in sections(version).items()
        for name, f in members.items()
    }


def field_names(version: str = LATEST) -> list[str]:
    """Every dotted path, sorted; what a did-you-mean chooses from."""
    return sorted(fields(version))


def lookup(path: str, version: str = LATEST) -> Field | None:
    """The field at a dotted path such as ``model.moe_router_dtype``, or None."""
    return fields(version).get(path)
