"""Build the plan: the chosen layout with its reasons, memory and speed, its notes, its text and its HTML.

Input: `solver.solve.Chosen`, a solved problem. Output: `plan.Plan`, which is saved as `plan.json` and read by every
later command; printing it computes nothing more.

- `plan.py` is the plan's record. Each section is a file with its record, its builder and, where it has one, its text:
  `estimate.py` (memory and speed), `advice.py`, `layout.py` (with batch, policy and racks), `decisions.py`,
  `other_layouts.py`, `container.py`, `checkpoints.py`, `walls.py`, `ladder.py`, `experiment.py`. None imports
  `plan.py`.
- `build.py` assembles the plan from its sections.
- `notes.py` makes the diagnostics that a reader should see first: low goodput, tight memory. `advice.py` adds ignored
  advice.
- `text.py` prints the whole plan or the short page; `several.py` prints several runs; `report.py` makes the HTML page.
- `isolate.py` varies one axis and keeps one layout for all variants otherwise.

To add a section: write a file like `checkpoints.py`, add its field to `plan.py` and its line to `build.py` and
`text.py`, then run `tools/make_plan_schema.py`. Imports `solver`, `rules`, `cost`, `facts`, `lang`, `support`; names no
Bridge fields.
"""
