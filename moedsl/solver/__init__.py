"""Search all layouts of a problem for the best ones, exactly, and answer questions about the space.

In: a checked run (`rules.check.program.Program`) and a number of GPUs. Out: `solve.Chosen`, the problem with its best
rows, or `solve.NoLayout`. A row is a layout: a code for each axis of `facts/axes.py`, and its prices.

- `problem.py` lowers a run: each axis gets its domain from a pin, a rule's candidates or a default.
- `laws.py` compiles the rules of the run and the library to functions over columns; `intervals.py` judges them while
  prices are only bounded.
- `space.py` enumerates the legal meshes and policies; `bounds.py` finds the fastest and smallest policies;
  `bounded_space.py` gives each mesh a lower bound of its rank; `search.py` prices what the bounds leave open. It is
  exact: a row is skipped only if a bound proves that it cannot win or breaks a law. tests/oracles has the naive search
  that judges it.
- `solve.py` is what others call: one run, one number of GPUs or the fewest that work. `several.py` bounds whole
  families of GPU counts; `saving.py` chooses the interval of checkpoints; `uncertainty.py` says how well the speed is
  known and prefers layouts near to those that ran.
- `question.py`, `fits.py`, `neighbours.py` answer what explanations ask: the best row under other conditions, whether
  anything fits, how rows next to the plan compare.
- `members.py`, `legal.py` and `infeasible/` explain why nothing fits: the smallest set of wishes and laws that collide,
  and the changes that open a layout.

To add a search bound: `bounds.py`, with a case in tests/solver that compares with the naive search. Imports `rules`,
`cost`, `lang`, `facts`, `support`.
"""
