"""Whether any layout is legal, by growing every mesh: the judge of the solver's own question, which groups laws."""

from collections.abc import Sequence

import numpy as np

from moedsl.facts.axes import MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.solver.laws import Compiled, Law, Table, obeying
from moedsl.solver.space import combinations_of, policy_table


def some_layout(c: Compiled, chunk: int = 20_000) -> bool:
    """Whether any mesh and policy obey the laws, prices aside. Depth first: a space with few laws is not built."""
    laws = [law for law in c.laws if not law.priced]
    mixed = [w for w in laws if w.needs & frozenset(MEMORY_POLICIES + TRANSPORT_POLICIES) and w.needs & frozenset(MESH)]
    policies = _distinct(policy_table(c, MEMORY_POLICIES + TRANSPORT_POLICIES), mixed)

    def extend(table: Table, at: int) -> bool:
        if at == len(MESH):
            return bool(obeying(table.times(policies.axes), mixed).rows)
        table = table.grow(MESH[at], np.sort(c.problem.domains[MESH[at]]))
        before, bound = frozenset(MESH[:at]), frozenset(MESH[: at + 1])
        table = obeying(table, [w for w in laws if w.needs <= bound and (at == 0 or not w.needs <= before)])
        size = chunk if at + 1 < len(MESH) else max(1, chunk * 4 // max(1, policies.rows))
        return any(
            extend(table.take(np.arange(i, min(i + size, table.rows))), at + 1) for i in range(0, table.rows, size)
        )

    return bool(policies.rows) and extend(c.empty(), 0)


def _distinct(policies: Table, laws: Sequence[Law]) -> Table:
    """The combinations of the policies that some laws read, each once."""
    read = tuple(n for n in policies.axes if any(n in law.needs for law in laws)) or MEMORY_POLICIES[:1]
    return Table(combinations_of(policies, read), {}, {}) if policies.rows else policies
