"""Measure finished runs from their logs, and compare them with each other and with what was predicted.

`gather` finds the runs and the numbers that turn seconds into tokens, `log` reads their lines, `measure` makes a row of
figures of each run and tells where a log is not that of its plan, and `compare` judges rows.
"""
