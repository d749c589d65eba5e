"""Read clusters: their facts, and the rules that a run file may add."""
