"""Search all layouts of a problem for the best ones, and answer what its users ask about the space."""
