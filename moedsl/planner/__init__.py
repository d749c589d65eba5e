"""Build the plan: the chosen layout with its reasons, memory and speed, its notes, its text and its HTML.

In: `solver.solve.Chosen`, a solved problem. Out: `plan.Plan`, which `plan.json` holds and every later command reads;
nothing that is printed is computed after it.

- `plan.py` is the plan's record. Each section is a file with its record, its builder and, where it has one, its text:
  `estimate.py` (memory and speed), `advice.py`, `layout.py` (with batch, policy and racks), `decisions.py`,
  `other_layouts.py`, `container.py`, `checkpoints.py`, `walls.py`, `ladder.py`, `experiment.py`. None imports
  `plan.py`.
- `build.py` makes the plan of its sections.
- `notes.py` has what a reader should know first, as diagnostics: goodput, tight memory; `advice.py` ignored advice.
- `text.py` prints the whole plan, and the short page; `several.py` several runs; `report.py` makes the HTML page.
- `isolate.py` varies one axis while every variant keeps the same layout otherwise.

To add a section: a file like `checkpoints.py`, its field in `plan.py`, its line in `build.py` and `text.py`; then
`tools/make_plan_schema.py`. Imports `solver`, `rules`, `cost`, `facts`, `lang`, `support`; no field of Bridge.
"""
