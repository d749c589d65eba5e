"""Show a plan as one self-contained HTML page."""
