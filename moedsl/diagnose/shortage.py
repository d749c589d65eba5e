"""Read what a run asked for when memory ran out, and tell which peak is enough below the one that failed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from moedsl.diagnose.scan import Sighting

_MEMORY = "memory"
_REFUSED = re.compile(r"Tried to allocate ([0-9.]{1,12}) (GiB|MiB|KiB|bytes)")
"""PyTorch's message (torch lib/libc10_cuda.so)."""
_UNITS = {"GiB": 1.0, "MiB": 2**-10, "KiB": 2**-20, "bytes": 2**-30}


def ran_out(id: str) -> bool:
    """Whether a symptom means insufficient memory: its name is ``memory``, or ends in ``_memory``."""
    name = id.rpartition(".")[2]
    return name == _MEMORY or name.endswith(f"_{_MEMORY}")


def refused_gib(sightings: Iterable[Sighting]) -> float:
    """Return the GiB that a run asked for and did not get: a layout that saves less fails at the same place."""
    found = (_REFUSED.search(s.text) for s in sightings if ran_out(s.rule.id))
    return max((_size(m) for m in found if m), default=0.0)


def _size(m: re.Match[str]) -> float:
    try:
        return float(m[1]) * _UNITS[m[2]]
    except ValueError:  # several points
        return 0.0


def saves(was_gib: float, now_gib: float, refused: float) -> bool:
    """Whether a predicted peak is enough below that of the run that failed."""
    return now_gib < was_gib and now_gib <= was_gib - refused
