"""Read a log: name its symptoms, and the edit of the run file that fixes each."""
