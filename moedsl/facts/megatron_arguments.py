"""Read the table of Megatron-LM's arguments, which tools/make_megatron_arguments.py makes from the wheel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from moedsl.facts.fields import DATA


@cache
def table() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return Megatron-LM's arguments: each name with an entry for each group of flags (see the tool that makes it)."""
    return json.loads((DATA / "megatron_arguments.json").read_text(encoding="utf-8"))["arguments"]


@cache
def flags() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return each flag with its argument's name and entry."""
    return {f: (dest, e) for dest, entries in table().items() for e in entries for f in e["flags"]}


@cache
def defaults() -> Mapping[str, Any]:
    """Return each argument's default."""
    return {dest: entries[0].get("default") for dest, entries in table().items()}
