"""Whether any layout of a problem obeys every law, prices included: the first that is found will do."""

from __future__ import annotations

from typing import Any

import numpy as np

from moedsl.explain.legal import legal_on
from moedsl.solve import HELD, LARGEST_CHUNK, MOVED, Search, mesh_table, policy_table
from moedsl.tables import Compiled


def fits(c: Compiled, prices: Any) -> bool:
    """Whether some layout is legal and its prices are within bounds."""
    return legal_on(c) and _Any(c, prices, 1).found()


def could_fit(c: Compiled, prices: Any) -> bool:
    """Whether some legal mesh is within the memory with the policies that hold the least; false is certain."""
    return legal_on(c) and _Any(c, prices, 1).possible()


class _Any(Search):
    """A search that stops at its first row, the leanest meshes first."""

    def possible(self) -> bool:
        meshes = mesh_table(self.c)
        return bool(meshes.rows) and bool(self._could_fit(meshes).rows)

    def found(self) -> bool:
        meshes, policies = mesh_table(self.c), policy_table(self.c, HELD + MOVED)
        if not meshes.rows or not policies.rows:
            return False
        meshes = self._could_fit(meshes)
        order = np.argsort(meshes.axes["peak_memory"], kind="stable")
        at, step = 0, max(1, 4096 // policies.rows)
        while at < len(order):
            if self._expand(meshes.take(order[at : at + step]), policies, [])[0]:
                return True
            at, step = at + step, min(step * 4, max(1, LARGEST_CHUNK // policies.rows))
        return False
