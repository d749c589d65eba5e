"""Build the plan: the chosen layout with its reasons, memory and speed, its notes, and its text."""
