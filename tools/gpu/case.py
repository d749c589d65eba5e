"""Define one measurement: what is measured, its shape and precision, by which library, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpu.timing import Bench, Times

TE, TORCH, FLA, MEGATRON = "transformer_engine", "torch", "fla", "megatron_core"
"""Libraries whose code is measured. What Megatron does not run itself is never compared with the estimate."""


class Case(NamedTuple):
    """One measurement, which makes its tensors when it runs."""

    what: str
    shape: Mapping[str, int]
    """Names are those of a model's facts, with `tokens`, `seq` and `local_experts`."""
    precision: str
    by: str
    run: Callable[[Bench], dict[str, Times]]
    """Return the times by direction: forward, backward, or what else the part measures."""
