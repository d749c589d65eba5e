"""Explain why a value is what it is, and why no layout fits: JSON first, text from JSON."""
