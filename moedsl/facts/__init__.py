"""What moedsl knows before it reads a program: axes, machines' and models' facts, Bridge's fields and releases.

All of it is data and small functions over it; nothing here reads a run file or prices a layout.

- `axes.py` is the one table of axes: what a plan decides, each with its kind, words and role. `operators.py` and
  `symbols.py` have the operators and names of expressions.
- `facts.py` has the classes for models, GPUs, vision towers and sites, `fine_tuning.py` for adapters, weights and
  samples, `calibration.py` the constants of the estimates and `units.py` their units.
- `machines.py`: which GPU counts and rank groups exist, and where ranks are placed.
- `fields.py` reads the packed tables of Bridge's fields for each release (`releases.py`) without Bridge, and suggests
  fields for mistyped ones. `families.py`, `values.py` and `common.py` state how Bridge treats a model family and what
  it refuses. `recipes.py` has the recipes in Bridge's wheel.

To add an axis or a GPU: CONTRIBUTING.md lists the places. Imports `support` only.
"""
