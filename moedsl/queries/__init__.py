"""Answer questions about runs that take more than one compile, or more than one layout.

In: the `Result` of compiler.py. Out: a JSON value for each answer, and its text.

- `explain.py` is `moedsl explain FILE NAME`. `explain_value.py` finds why a value is what it is: the rule, pin or
  default behind it, the rules that read it, and the recipe's field. `explain_layouts.py` has the layout that
  is explained, other values and their prices, and the price of every advice; `explain_text.py` prints it.
- `layouts.py` lists the best layouts, with tokens, days and money, and has the cells of all tables. `pareto.py` has the
  trade-offs of memory, speed and GPUs, `lengths.py` other sequence lengths, `what_if.py` single changes. All four make
  records, from which both text and JSON are made.
- `pages.py` prints the plans of a file; `amounts.py` reads amounts on a command line.

Why no layout fits is not here but in solver/infeasible.py, since each compile may need it. Imports everything up to
`compiler`, and `emit`.
"""
