"""What moedsl knows before it reads a program: axes, machines' and models' facts, Bridge's fields and releases.

All of it is data and small functions over it; nothing here reads a run file or prices a layout.

- `axes.py` is the one table of axes: what a plan decides, each with its kind, words and role. `operators.py` and
  `symbols.py` have the operators and names of expressions.
- `facts.py` has the classes of models, GPUs and towers, `adapter.py`, `weights.py`, `samples.py` and `site.py` those of
  runs and clusters, `calibration.py` the constants of the estimates; `units.py` their units.
- `machines.py`, `gpu_counts.py`, `rank_groups.py`, `batch_shapes.py`: which GPU counts, rank groups and batches exist.
- `fields.py` reads the packed tables of Bridge's fields for each release (`releases.py`, `versions.py`) without
  Bridge. `families.py`, `architecture.py`, `values.py`, `common.py` and `adapters.py` say what Bridge makes of a model
  family, `unbuilt.py` and `validation.py` what it refuses. `recipes.py` has the recipes of the wheel, `secrets.py` the
  fields that hide values, `field_suggestions.py` words for a mistyped field, `differences.py` renamed fields.

To add an axis or a GPU: CONTRIBUTING.md lists the places. Imports `support` only.
"""
