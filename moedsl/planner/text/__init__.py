"""Print the plan as text."""
