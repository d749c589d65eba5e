"""Choose the next experiment from the measured ones, and run such experiments unattended through the launcher.

`candidates` reads what was tried, predicts other layouts from it, ranks single changes, and prints and draws them.
`loop` submits jobs until the budget is spent, with its state in a journal, and writes the run file of each job.
"""
