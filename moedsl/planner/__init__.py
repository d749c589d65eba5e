"""The plan: the chosen layout with its reasons, memory and speed."""
