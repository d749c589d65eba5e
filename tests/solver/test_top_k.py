"""The best row of a question, against a sort of all rows."""

from __future__ import annotations

import numpy as np
from attrs import astuple

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.rules.check.program import Program
from moedsl.solver.search import Question, Search, least
from moedsl.solver.solve import solve
from moedsl.support.source import Source


def test_the_least_position_is_the_first_of_a_sort() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        columns = [rng.choice([0.0, 1.0, 2.0, np.nan], 12) for _ in range(3)]
        columns.append(rng.permutation(12))
        at = np.flatnonzero(rng.random(12) < 0.7)
        ordered = at[np.lexsort([c[at] for c in reversed(columns)])]
        assert least(columns, at).tolist() == ordered[:1].tolist()


def _program(text: str) -> Program:
    (p,) = compile_source(Source("a.moe", text), "check").programs
    return p


def test_a_peak_that_no_rule_reads_is_priced_for_the_kept_rows() -> None:
    priced: list[int] = []

    class Counted(Cost):
        def memory(self, cols, way=None, policies=()):  # type: ignore[no-untyped-def]
            found = super().memory(cols, way, policies)
            priced.append(len(found))
            return found

    p = _program("qwen3_30b_a3b; h100 x 16")
    plain = solve(p, 16, keep=3)
    cost = Counted(*astuple(plain.cost, recurse=False))
    found = Search(plain.compiled, cost, keep=3)
    rows = found.run().rows
    (answer,) = found.answers([Question({"tp": rows[0].codes["tp"]})])
    assert [r.peak_memory for r in rows] == [float(plain.cost.memory(r.codes)[0]) for r in rows]
    assert answer.row is not None and answer.row.peak_memory == rows[0].peak_memory
    assert sum(priced) <= 4 < found.run().priced
