"""Measure finished runs from their logs, and compare them with each other and with their predictions.

`gather` finds the runs and the numbers that turn seconds into tokens, `measure` parses their logs, makes a row of
figures of each run and reports where a log contradicts its plan, and `compare` compares rows.
"""
