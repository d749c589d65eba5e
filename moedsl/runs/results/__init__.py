"""Measure finished runs from their logs, and compare them with what was predicted."""
