"""Choose the next experiment from what was measured, and repeat that through the launcher.

`evidence` reads what was tried and estimates the rest from it, `candidates` ranks single changes, `report` prints and
draws them; `loop` submits jobs until the budget is spent, with its state in a `journal` and a `run_file` for each job.
"""
