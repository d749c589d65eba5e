"""The legal meshes of a small problem, by a constraint solver: the structural laws written again."""

from typing import Any

from ortools.sat.python import cp_model

from moedsl.facts.axes import MESH
from moedsl.solver.problem import Problem


def legal_meshes(problem: Problem, cost: Any) -> set[tuple[int, ...]]:
    m, v = cp_model.CpModel(), problem.values
    at = {
        n: m.new_int_var_from_domain(cp_model.Domain.from_values([int(x) for x in problem.domains[n]]), n) for n in MESH
    }
    pairs = [(pp, vpp) for pp in problem.domains["pp"] for vpp in problem.domains["vpp"]]
    m.add_allowed_assignments(
        [at["pp"], at["vpp"]], [(int(a), int(b)) for a, b in pairs if cost.has_layout(a, b) and (b == 1 or a > 1)]
    )
    model = problem.program.model
    dp, edp = m.new_int_var(1, problem.gpus, "dp"), m.new_int_var(1, problem.gpus, "edp")
    _product(m, [at["tp"], at["cp"], at["pp"], dp], problem.gpus)
    _product(m, [at["etp"], at["ep"], at["pp"], edp], problem.gpus)
    microbatches = m.new_int_var(1, problem.global_batch, "microbatches")
    _product(m, [at["micro_batch"], dp, microbatches], problem.global_batch)
    for n, size in (
        ("tp", model.heads),
        ("tp", model.ffn_hidden if model.dense_layers else 0),
        ("tp", model.vocab),
        ("ep", model.experts),
        ("etp", model.expert_hidden),
        ("tp", model.shared_expert_hidden),
    ):
        _divides(m, at[n], size, problem.gpus)
    groups = [t for t in range(1, problem.gpus + 1) if model.query_groups % t == 0 or t % model.query_groups == 0]
    m.add_allowed_assignments([at["tp"]], [(t,) for t in groups])
    m.add_allowed_assignments(
        [at["cp"]], [(c,) for c in range(1, problem.gpus + 1) if c == 1 or v["seq"] % (2 * c) == 0]
    )
    shards = [
        (t, c)
        for t in range(1, problem.gpus + 1)
        for c in range(1, problem.gpus + 1)
        if t == 1 or v["seq"] % (t * c) == 0
    ]
    m.add_allowed_assignments([at["tp"], at["cp"]], shards)
    interleaved = m.new_bool_var("interleaved")
    m.add(at["vpp"] > 1).only_enforce_if(interleaved)
    m.add(at["vpp"] == 1).only_enforce_if(~interleaved)
    rest = m.new_int_var(0, problem.gpus, "rest")
    m.add_modulo_equality(rest, microbatches, at["pp"])
    m.add(rest == 0).only_enforce_if(interleaved)
    return _all(m, [at[n] for n in MESH])


def _product(m: Any, factors: list[Any], value: int) -> None:
    first, *rest = factors
    for i, f in enumerate(rest):
        product = m.new_int_var(1, value, f"product{i}{f}")
        m.add_multiplication_equality(product, [first, f])
        first = product
    m.add(first == value)


def _divides(m: Any, divisor: Any, value: int, most: int) -> None:
    m.add_allowed_assignments([divisor], [(d,) for d in range(1, most + 1) if value % d == 0])


def _all(m: Any, variables: list[Any]) -> set[tuple[int, ...]]:
    class Collect(cp_model.CpSolverSolutionCallback):
        def __init__(self) -> None:
            super().__init__()
            self.found: set[tuple[int, ...]] = set()

        def on_solution_callback(self) -> None:
            self.found.add(tuple(self.value(x) for x in variables))

    solver, collect = cp_model.CpSolver(), Collect()
    solver.parameters.enumerate_all_solutions = True
    assert solver.solve(m, collect) == cp_model.OPTIMAL
    return collect.found
