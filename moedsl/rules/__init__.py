"""Rules: how they are read, typed and evaluated, and the standard library."""
