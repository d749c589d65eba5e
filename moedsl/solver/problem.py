"""The space to search: a program on a number of GPUs, and a domain for each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.checker.program import Pin, Program
from moedsl.rules.rule import Rule


@frozen
class Problem:
    """A program on a number of GPUs: facts as scalars, and a domain for each axis."""

    program: Program
    gpus: int
    global_batch: int
    values: Mapping[str, Any]
    """Everything that is the same in every row, as plain values."""
    codes: Mapping[str, Any]
    """The same, encoded for columns."""
    domains: Mapping[str, NDArray[np.int64]]
    origins: Mapping[str, Rule | Pin | None]
    """What gave each axis its domain."""
    defaults: Mapping[str, Rule | None]
    """What gave each defaulted value that is not an axis."""
