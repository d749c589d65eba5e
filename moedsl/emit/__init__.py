"""Write a plan as files: a Megatron Bridge recipe, the same as overrides, and a lock file.

In: `planner.plan.Plan`. Out: the text of each file, in memory; support/files.py writes them all or none.

- `fields.py` is the one table of which Bridge field states which decision; `read_back.py` has the functions with which
  its rows read a decision back from a recipe, for `lint`, `diff`, `import` and `verify`.
- `settings.py` takes the rows that hold for a plan, with what rules derive and a run sets, and leaves out what Bridge's
  common functions give anyway. `dataset.py` chooses the dataset.
- `recipe.py` writes `recipe.py` from templates/, `overrides.py` the same as Hydra overrides, `artifact.py` all files of
  a run with the lock.
- `set_fields.py` judges the fields that a run sets, and what an older release does not have.
- `isolation_table.py` compares the plans of an isolation by the recipe fields that differ.

To add a field of Bridge: a row of `fields.py`. Imports `planner` and what is below it.
"""
