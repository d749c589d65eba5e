"""Price weights, gradients, optimizer state and saved inputs by number format.

Columns are codes of `moedsl.facts.axes`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from moedsl.cost.rows import UNSAID, Floats, Ints, Table
from moedsl.facts.axes import BY_NAME, PRECISION

Columns = Table | Mapping[str, Ints]
BF16 = 2.0
QUANTISED = {"bf16": 0.0, "fp8_blockwise": 2.0, "fp8_current": 2.0, "mxfp8": 2.0625, "nvfp4": 1.125}
"""Bytes per parameter of a linear's quantised copy, by rows and by columns; MXFP8 has a scale for 32 numbers, NVFP4 for
16."""
SENT = {"bf16": 2.0, "fp8_blockwise": 1.03, "fp8_current": 1.0, "mxfp8": 2.0, "nvfp4": 2.0}
"""Bytes per parameter that data parallelism gathers, if the parameter is kept in FP8. MXFP8 quantises rows and columns
differently: Megatron gathers BF16 in the gradient buffer, and quantises on each rank (core
distributed/param_and_grad_buffer.py:303-325, optimizer/distrib_optimizer.py:2880)."""
CAN_KEEP = {"bf16": 0.0, "fp8_blockwise": 1.0, "fp8_current": 1.0, "mxfp8": 1.0, "nvfp4": 0.0}
"""1 for a format in which a run can set that parameters are kept in FP8."""
KEPT = {**CAN_KEEP, "fp8_blockwise": 0.0}
KEPT_SHARDED = {**KEPT, "fp8_current": 0.0}
"""1 for a format in which parameters are kept in FP8 by default: `KEPT` without FSDP, this with FSDP
(`emit/fields.py`)."""
SAVED = {"bf16": 2.0, "fp8_blockwise": 1.03, "fp8_current": 1.0, "mxfp8": 1.03, "nvfp4": 0.5625}
"""Bytes per element of a linear's input that is kept for its weight gradient."""


def by_precision(values: dict[str, float], t: Columns) -> Floats:
    """Return the value of each row's precision."""
    return np.array([values[p] for p in PRECISION])[t["precision"]]


def kept(t: Columns) -> NDArray[np.bool_]:
    """Whether, by row, a linear's parameter is kept in FP8; otherwise it is in BF16, with a quantised copy."""
    by_default = np.where(fsdp(t) > 0, by_precision(KEPT_SHARDED, t), by_precision(KEPT, t))
    own = t["fp8_weights"]
    return np.where(own == UNSAID, by_default, by_precision(CAN_KEEP, t) * own) > 0


def quantised(t: Columns, transposes: bool | NDArray[np.bool_]) -> Floats:
    """Return the bytes per quantised parameter, with or without the transpose of per-tensor FP8."""
    return np.where(transposes, by_precision(QUANTISED, t), by_precision({**QUANTISED, "fp8_current": 1.0}, t))


def sent(t: Columns) -> Floats:
    """Return the bytes per parameter that data parallelism gathers."""
    return np.where(kept(t), by_precision(SENT, t), BF16)


def gradient(t: Columns) -> Floats:
    """Return the bytes per gradient element in Megatron's buffer."""
    return np.where(t["grad_reduce"] == BY_NAME["grad_reduce"].words.index("bf16"), 2.0, 4.0)


def moments(t: Table) -> Floats:
    """Return the bytes per parameter of both moments."""
    return np.where(t["moments"] == BY_NAME["moments"].words.index("bf16"), 4.0, 8.0)


def master(t: Table) -> Floats:
    """Return the bytes per parameter of the master copy: FP32 whatever the formats of moments and parameters.

    A precision-aware optimizer without an FP8 recipe would keep only the 16 bits that a BF16 parameter does not contain
    (core optimizer/optimizer_config.py:404-411). Bridge gives it an FP8 recipe even in BF16: its mixed precision sets
    every field of the same name, and the default `fp8_recipe` is "tensorwise" (bridge training/mixed_precision.py:50
    and :138-155).
    """
    return np.full(t.rows, 4.0)


def fsdp(t: Columns) -> Floats:
    """Return 1 where Megatron FSDP shards everything, else 0."""
    return (t["sharding"] == BY_NAME["sharding"].words.index("fsdp")).astype(float)
