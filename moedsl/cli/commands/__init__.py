"""Run one command each: `run(arguments)` returns the exit code."""
