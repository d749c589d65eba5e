"""Rules and checked runs: type and evaluate rules, load the standard library, and turn statements into a `Program`.

In: syntax trees (`lang.ast`). Out: `rule.Rule` values that both evaluators take, a `library.Library` of models,
machines, clusters and rules, and `check.program.Program`, in which every name is resolved and every value typed.

- Rules: `collect.py` makes them of declarations and statements, `types.py` types their expressions, `interpreter.py`
  evaluates one row and `vectorizer.py` compiles to NumPy columns; tests compare the two. `ids.py` has the ids that
  Python names, which must exist in the stdlib. `effects.py` says whether a change is another experiment.
- Library: `stdlib.py` loads stdlib/, `library.py` joins it with a user's declarations, `declarations.py` reads blocks
  of facts, `calibrations.py` constants, `documents.py` the claims of documents that rules implement.
- Recipes and launches: `recipe_scope.py` and `launch_variables.py` are the names that their rules may read.
- Runs: `check/check.py` reads every statement (`run_draft.py`), with a module for each kind of option (adapters, data,
  VLM, weights, resilience, overrides); `check/clusters/` reads clusters.

To add a statement: grammar/moe.lark, lang/ast.py, `check/run_draft.py`. To add a rule: stdlib/rules, no Python.
Imports `cost`, `lang`, `facts`, `support`.
"""
