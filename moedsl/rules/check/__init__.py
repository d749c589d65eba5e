"""Check a run: read every statement, resolve every name, type every value."""
