"""Measure the samples of a text for fine-tuning: how long they are, and how much of a sequence they fill.

`measure` reads the lines and counts their tokens, `report` sums them up and prints them.
"""
