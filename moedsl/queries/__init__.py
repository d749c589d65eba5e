"""Answer questions about runs that take more than one compile, or more than one layout.

In: the `Result` of compiler.py. Out: a JSON value for each answer, and its text.

- `explain_run.py` is `moedsl explain FILE NAME`; `explain/` finds why a value is what it is: the rule, pin or default
  behind it (`origin.py`), the rules that read it (`bearing.py`), the other values and their prices (`alternatives.py`,
  `other_values.py`), the recipe's field (`fields.py`), and prints it (`text.py`, `value_text.py`).
- `top.py` lists the best layouts, `pareto.py` the trade-offs of memory, speed and GPUs, `lengths.py` other sequence
  lengths, `what_if.py` single changes (`changes.py`, `gpus.py`), `experiments.py` runs next to each other.
- `amounts.py` and `figures.py` turn a plan into tokens, days and money; `text.py` prints tables; `pages.py` is the page
  of several plans.

Why no layout fits is not here but in solver/infeasible, since each compile may need it. Imports everything up to
`compiler`, and `emit`.
"""
