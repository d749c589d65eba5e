"""Rules and checked runs: type and evaluate rules, load the standard library, and turn statements into a `Program`.

In: syntax trees (`lang.ast`). Out: `rule.Rule` values that both evaluators take, a `library.Library` of models,
machines, clusters and rules, and `check.program.Program`, in which every name is resolved and every value typed.

- Rules: `collect.py` builds them from declarations and statements, `types.py` types their expressions, `evaluators.py`
  evaluates one row or whole NumPy columns; tests compare the two. `rule.py` also says whether a change affects the
  experiment; `patterns.py` compiles the regular expressions of symptoms.
- Library: `stdlib.py` loads stdlib/ and lists the ids that Python names, `library.py` joins it with a user's
  declarations. `blocks.py` reads every block of facts and line of options by a table of names and values,
  `declarations.py` models, hardware and constants, `documents.py` the claims of documents that rules implement.
- Recipes and launches: `recipe_scope.py` has the names that rules of recipes may read; `launch_variables.py` says which
  environment variables a launch may set.
- Runs: `check/check.py` reads every statement (`run_draft.py`), with `options.py`, `statements.py` and `overrides.py`
  for statements with their own form; `suspicious.py` warns of what is probably not meant. `cluster_facts.py`,
  `cluster_reader.py` and `cluster_rules.py` read clusters.

To add a statement: grammar/moe.lark, lang/ast.py, `check/run_draft.py`. To add an option or a fact: its name with a
`blocks.Kind` in the table of its block. To add a rule: stdlib/rules, no Python.
Imports `cost`, `lang`, `facts`, `support`.
"""
