"""Measure the samples of a text for fine-tuning: how long they are, and how much of a sequence they fill."""
