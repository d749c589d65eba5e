"""Questions about a space and their answers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import field, frozen

from moedsl.facts import axes
from moedsl.facts.axes import MESH
from moedsl.solver.laws import Law
from moedsl.solver.table import Mask, Row, Table, as_mask


@frozen
class Question:
    """Ask for the best layout: `only` fixes axes or lets, `law` must hold, `dropped` advice does not count, and `but`
    is no answer."""

    only: Mapping[str, int] = field(factory=dict)
    """Values of axes, or of lets that read only meshes."""
    law: Law | None = None
    dropped: str | None = None
    but: Mapping[str, int] | None = None

    def rows(self, table: Table, known: frozenset[str] | None = None) -> Mask:
        """A mask of the rows that may answer it, judged by the `known` axes, or by all if None."""
        keep = np.ones(table.rows, dtype=bool)
        for name, value in self.only.items():
            if known is None or known.issuperset({name} if name in axes.BY_NAME else MESH):
                keep &= as_mask(np.equal(table[name], value), table.rows)
        if self.law is not None and (known is None or self.law.needs <= known):
            keep &= self.law.holds(table)
        return keep

    def others(self, table: Table) -> Mask:
        """A mask of the rows that are not `but`."""
        if self.but is None:
            return np.ones(table.rows, dtype=bool)
        return np.logical_or.reduce([table.axes[name] != code for name, code in self.but.items()])


@frozen
class Answer:
    """The best row for a question, or None; `legal` counts the meshes that obey the laws except those on prices."""

    row: Row | None
    legal: int
    least_needed: float
    """The least bytes that any legal mesh needs in the case of the memory estimate that must fit; infinite if there is
    none."""
