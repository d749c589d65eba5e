"""Search all layouts of a problem for the best ones, exactly, and answer questions about the space.

In: a checked run (`rules.check.program.Program`) and a number of GPUs. Out: `solve.Chosen`, the problem with its best
rows, or `solve.NoLayout`. A row is a layout: a code for each axis of `facts/axes.py`, and its prices.

- `problem.py` lowers a run: each axis gets its domain from a pin, a rule's candidates or a default.
- `laws.py` has the tables of layouts, and compiles the rules of the run and the library to functions over columns;
  `intervals.py` finds rows that may obey a law while prices are only bounded.
- `space.py` enumerates the legal meshes and policies, and knows the fastest and smallest policies; `bounded_space.py`
  gives each mesh a lower bound of its rank; `search.py` prices the rows that the bounds do not exclude. The search is
  exact: a row is skipped only if a bound proves that it cannot win or breaks a law. Tests compare it with the naive
  search in tests/oracles.
- `solve.py` is the entry point: it solves one run on one number of GPUs or on the fewest that work. `uncertainty.py`
  says how well the speed is known, and prefers layouts near to those that ran.
- `fits.py` says whether anything fits, here or on more GPUs; `neighbours.py` compares rows next to the plan. A
  `Question` asks a search for the best row under other conditions.
- `conflicts.py`, `relaxations.py`, `nearest.py` and `infeasible.py` explain why nothing fits: the smallest set of
  wishes and laws that collide, the changes that open a layout, the layout that comes closest, and the report.

To add a search bound: `space.py`, with a case in tests/solver that compares with the naive search. Imports `rules`,
`cost`, `lang`, `facts`, `support`.
"""
