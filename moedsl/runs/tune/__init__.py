"""Choose the next experiment from what was measured, and repeat that through the launcher.

`candidates` reads what was tried, estimates the rest from it, ranks single changes, and prints and draws them; `loop`
submits jobs until the budget is spent, with its state in a journal, and `run_file` writes the run file of each job.
"""
