"""Price weights, gradients, optimizer state and saved inputs by number format. Columns are codes of
`moedsl.schema.axes`."""

from __future__ import annotations

import numpy as np

from moedsl.cost.rows import Floats, Table
from moedsl.schema.axes import BY_NAME, PRECISION

BF16 = 2.0
WEIGHT = {"bf16": 2.0, "fp8_blockwise": 4.0, "fp8_current": 2.0, "mxfp8": 2.0625, "nvfp4": 3.125}
"""Bytes of a linear's parameter: primary copy, and rows and columns quantised; MXFP8 has a scale for 32 numbers,
NVFP4 for 16."""
SAVED = {"bf16": 2.0, "fp8_blockwise": 1.03, "fp8_current": 1.0, "mxfp8": 1.03, "nvfp4": 0.5625}
"""Bytes of a number in a linear's input that is kept for its weight gradient."""
GATHERED = {"bf16": 2.0, "fp8_blockwise": 2.0, "fp8_current": 1.0, "mxfp8": 1.03, "nvfp4": 2.0}
"""Bytes of a parameter on the wire when data parallelism gathers it."""


def by_precision(values: dict[str, float], t: Table) -> Floats:
    """Return the value of each row's precision."""
    return np.array([values[p] for p in PRECISION])[t["precision"]]


def weight(t: Table, hopper: bool) -> Floats:
    """Return a linear parameter's bytes; Blackwell multiplies per-tensor FP8 in any orientation, with no transpose."""
    values = WEIGHT if hopper else {**WEIGHT, "fp8_current": 1.0}
    return by_precision(values, t)


def gradient(t: Table) -> Floats:
    """Return the bytes of a gradient in Megatron's buffer."""
    return np.where(t["grad_reduce"] == BY_NAME["grad_reduce"].words.index("bf16"), 2.0, 4.0)


def moments(t: Table) -> Floats:
    """Return the bytes of both moments."""
    return np.where(t["moments"] == BY_NAME["moments"].words.index("bf16"), 4.0, 8.0)


def master(t: Table) -> Floats:
    """Return the bytes of the master copy: FP32 whatever the formats of moments and parameters.

    A precision-aware optimizer without an FP8 recipe would keep only the 16 bits that a BF16 parameter does not contain
    (core optimizer/optimizer_config.py:404-411). Bridge gives it an FP8 recipe even in BF16: its mixed precision sets
    every field of the same name, and the default `fp8_recipe` is "tensorwise" (bridge training/mixed_precision.py:50
    and :138-155).
    """
    return np.full(t.rows, 4.0)


def fsdp(t: Table) -> Floats:
    """Return 1 where Megatron FSDP shards everything."""
    return (t["sharding"] == BY_NAME["sharding"].words.index("fsdp")).astype(float)
