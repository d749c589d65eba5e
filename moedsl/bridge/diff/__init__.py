"""Compare two runs: what changes the experiment, and what changes only how it runs."""
