"""Whether every microbatch has one shape: plans pad to the full length, and a run's `set` statements can undo it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BY_FIELD = (
    ("model.variable_seq_lengths", True, "variable"),
    ("dataset.enable_in_batch_packing", True, "packed"),
    ("dataset.pad_to_max_length", False, "unpadded"),
)
"""The fields of Bridge that make lengths vary, with the value that does; the strongest first."""


def shapes(sets: Mapping[str, Any]) -> str:
    """Choose a word of `symbols.SHAPES` for the fields of a run: `static` unless one of `BY_FIELD` is among them."""
    return next((word for field, value, word in BY_FIELD if sets.get(field) is value), "static")
