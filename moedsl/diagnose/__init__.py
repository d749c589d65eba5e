"""Read a log: name its symptoms, and the edit of the run file that fixes each.

In go the bytes of a log and the `symptom` rules of a library; out come a `Report`, and with a run file the edits that
compile. Whether an edit cures the run, only the run shows.

- scan.py searches a log of any size, block by block: `symptoms` prepares the rules, `diagnose` reads a whole log, and
  `Scan` one that still grows. It also finds the rank that failed first (`failures`, `first_to_fail`).
- errors.py follows tracebacks of every rank and what loggers mark as errors. messages.py finds each in NVIDIA's code by
  messages.jsonl.gz, a table of every error of the wheels that tools/make_messages.py writes: the place, what it checks,
  the statement of a run file that decides that, and the law that states it.
- log_lines.py reads the lines that a run prints of itself; health.py judges its steps. `runs` uses both.
- memory.py reads the numbers of an out-of-memory message and compares them with the parts of a plan.
- edit.py applies the edits that a symptom's `fix` names and plans again (`compile_edits`); for a run out of memory, all
  that save what was missing.
- text.py writes all of that as JSON and prints that.

Commands, `launch`, `runs` and `rehearse` use this package. It may import the compiler and everything below it. A new
symptom is a rule in stdlib/rules/symptoms_*.moe with a line of tests/data/symptoms.toml.
"""
