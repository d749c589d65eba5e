"""One question about a space, which of its meshes, policies and rows answer it, and the answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import field, frozen

from moedsl.schema import axes
from moedsl.schema.axes import HELD, MESH, MOVED
from moedsl.solver.laws import Law
from moedsl.solver.queue import Floats
from moedsl.solver.table import Mask, Row, Table, as_mask

POLICIES = frozenset(HELD + MOVED)


@frozen
class Variant:
    """One question: `only` fixes axes or lets to a value, `law` must hold, `dropped` advice does not count."""

    only: Mapping[str, int] = field(factory=dict)
    law: Law | None = None
    dropped: str | None = None


@frozen
class Found:
    """The best row of a variant, or none; `legal` is how many meshes obey the laws with its values, prices aside."""

    row: Row | None
    legal: int
    least_memory: float
    """Bytes that every legal mesh needs at least; infinite where there is none."""


def rows_of(table: Table, v: Variant) -> Mask:
    """The priced rows that answer a variant's question."""
    keep = np.ones(table.rows, dtype=bool)
    for name, value in v.only.items():
        keep = keep & as_mask(np.equal(table[name], value), table.rows)
    return keep if v.law is None else keep & v.law.holds(table)


def meshes_of(meshes: Table, v: Variant) -> Mask:
    """The meshes that may, as far as their axes alone tell."""
    keep = np.ones(meshes.rows, dtype=bool)
    for name, value in v.only.items():
        if name not in POLICIES:
            keep = keep & as_mask(np.equal(meshes[name], value), meshes.rows)
    if v.law is not None and v.law.needs <= frozenset(MESH):
        keep = keep & v.law.holds(meshes)
    return keep


def policies_of(policies: Table, v: Variant) -> Mask:
    """The policies that may, as far as they alone tell."""
    keep = np.ones(policies.rows, dtype=bool)
    for name, value in v.only.items():
        if name in POLICIES:
            keep = keep & (policies.axes[name] == value)
    if v.law is not None and v.law.needs <= POLICIES:
        keep = keep & v.law.holds(policies)
    return keep


def best_of(keys: Floats, table: Table, mask: Mask) -> int | None:
    """The first of some rows by the keys and then by the axes; none where the mask is empty."""
    at = np.flatnonzero(mask)
    for column in (*keys, *(table.axes[a.name] for a in axes.AXES)):
        if len(at) < 2:
            break
        values = column[at]
        at = at[values == values.min()]
    return int(at[0]) if len(at) else None
