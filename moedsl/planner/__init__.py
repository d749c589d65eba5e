"""Build the plan: the chosen layout with its reasons, memory and speed, its notes, its text and its HTML.

In: `solver.solve.Chosen`, a solved problem. Out: `model.plan.Plan`, which `plan.json` holds and every later command
reads; nothing that is printed is computed after it.

- `build.py` makes a plan: meshes, batch, policy, memory by stage, step time, and each decision with its reason and its
  alternatives. `compare_4k.py`, `interval.py`, `memory_verdict.py`, `experiment.py` and `vlm_parts.py` build parts.
- `walls.py`, `ladder.py`, `shipped.py`, `racks.py`, `checkpoints.py` build a section each; `other_layouts.py` finds
  layouts next to the plan.
- `model/` has the records: `plan.py`, `decisions.py`, `estimate.py`, `sections.py`, `answers.py`.
- `notes/` has what a reader should know first, as diagnostics: ignored advice, goodput, tight memory.
- `text/` prints: `page.py` the short page, `plan.py` the whole plan, `sections.py` its sections. `report/` is the
  page of `moedsl report`.
- `isolate/` varies one axis while every variant keeps the same layout otherwise.

To add a section: a record in `model/sections.py`, a builder beside `walls.py`, its text in `text/sections.py`; then
`tools/make_plan_schema.py`. Imports `solver`, `rules`, `cost`, `facts`, `lang`, `support`; no field of Bridge.
"""
