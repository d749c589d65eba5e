"""Answer questions about runs that take more than one compile, or more than one layout.

Input: the `Result` of compiler.py. Output: a JSON value for each answer, and its text.

- `explain.py` implements `moedsl explain FILE NAME`: the rule, pin or default behind a value, the rules that read
  it, and the recipe's field. `explain_layouts.py` prices other values of the explained layout, and each piece of
  advice; `explain_text.py` prints the explanation.
- `layouts.py` lists the best layouts, with tokens, days and money, and makes the cells of all tables. `pareto.py` finds
  the trade-offs of memory, speed, GPUs and sequence length, `what_if.py` tries single changes. All return records, from
  which both text and JSON are made. `layouts.py` also prints the plans of a file.
- `amounts.py` reads amounts on a command line.

solver/infeasible.py, not this package, explains why no layout fits, since each compile may need that. Imports
everything up to `compiler`, and `emit`.
"""
