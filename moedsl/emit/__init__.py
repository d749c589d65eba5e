"""Write a plan as files: a Megatron Bridge recipe, the same as overrides, and a lock file.

In: `planner.plan.Plan`. Out: the text of each file, in memory; support/files.py writes them all or none.

- `fields.py` is the one table of the Bridge fields that state each decision; `read_back.py` has the functions by which
  its rows read a decision back from a recipe, for `lint`, `diff`, `import` and `verify`.
- `settings.py` takes the rows that apply to a plan and the fields that rules derive and a run sets, without those that
  Bridge's common functions set anyway. `dataset.py` chooses the dataset.
- `recipe.py` writes `recipe.py` from templates/, `overrides.py` the same as Hydra overrides, `artifact.py` all files of
  a run with the lock.
- `set_fields.py` checks the fields that a run sets, and finds what an older release lacks.
- `isolation_table.py` compares an isolation's plans by the recipe fields that differ.

To add a Bridge field, add a row to `fields.py`. Imports `planner` and what is below it.
"""
