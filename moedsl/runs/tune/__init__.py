"""Choose the next experiment from what was measured, and repeat that through the launcher."""
