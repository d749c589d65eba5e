"""Explain a measured speed: against the estimate, the nearest published run and NVIDIA's recipe.

`report` puts it together and prints it; `settings` prices what two runs set differently by the estimate, `published` by
measured pairs, and `log_problems` finds in the log what no estimate knows.
"""
