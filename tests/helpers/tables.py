"""Tables of cases: tests/data/cases/ has one file for each folder of tests. Arrays are tuples."""

import tomllib
from functools import cache
from typing import Any

from tests.helpers.paths import ROOT


def table_of(folder: str, name: str, none: str | None = None) -> Any:
    """The table of that name; a cell that is the word `none` stands for None."""
    return _frozen(_tables(folder)[name], none)


@cache
def _tables(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / f"tests/data/cases/{folder}.toml").read_text(encoding="utf-8"))


def _frozen(value: Any, none: str | None) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(part, none) for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(part, none) for part in value)
    return None if value == none else value
