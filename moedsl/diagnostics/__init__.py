"""Define sources, spans and diagnostics, and show them."""
