"""One module for each command: `run(arguments)` returns the exit code."""
