"""Sources, spans and diagnostics, and how they are shown."""
