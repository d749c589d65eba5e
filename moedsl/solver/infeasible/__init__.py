"""Explain why a run has no layout: the smallest set of wishes and laws that collide, and the changes that open one.

`analyse.py` finds the conflict, `relax.py` and `together.py` the changes that help, alone or together, `more_gpus.py`
the next number of GPUs that works, `nearest.py` the layout that comes closest; `report.py` writes all of it as JSON and
as one diagnostic, `tree.py` an expression with the values of its parts.
"""
