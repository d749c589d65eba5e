"""The search for the best layout, and what its queries share."""
