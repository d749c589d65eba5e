"""Fit the constants of the estimates to measured runs, and report how far the estimates are from the runs.

`runs` reads and writes measured runs, one JSON object a line; `fit` fits the constants of speed, `memory` those of
memory.
"""
