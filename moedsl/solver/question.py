"""A question about a space: which layouts may answer it, and the answer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import field, frozen

from moedsl.schema import axes
from moedsl.schema.axes import MESH
from moedsl.solver.laws import Law
from moedsl.solver.table import Mask, Row, Table, as_mask


@frozen
class Question:
    """Ask for the best layout: `only` fixes axes or lets, `law` must hold, `dropped` advice does not count."""

    only: Mapping[str, int] = field(factory=dict)
    """Lets that read policies are not asked about."""
    law: Law | None = None
    dropped: str | None = None

    def rows(self, table: Table, known: frozenset[str] | None = None) -> Mask:
        """The rows of a table that may answer it, as far as the `known` axes tell; all axes where None."""
        keep = np.ones(table.rows, dtype=bool)
        for name, value in self.only.items():
            if known is None or known.issuperset({name} if name in axes.BY_NAME else MESH):
                keep &= as_mask(np.equal(table[name], value), table.rows)
        if self.law is not None and (known is None or self.law.needs <= known):
            keep &= self.law.holds(table)
        return keep


@frozen
class Answer:
    """The best row of a question, or none; `legal` is how many meshes obey the laws with its values, prices aside."""

    row: Row | None
    legal: int
    least_memory: float
    """Bytes that every legal mesh needs at least; infinite where there is none."""
