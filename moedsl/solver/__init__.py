"""Search all layouts of a problem for the best ones, and answer questions about the space."""
