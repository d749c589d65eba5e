"""Read, type and evaluate rules, and load the standard library."""
