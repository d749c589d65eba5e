"""Read a log: name its symptoms, and the edit of the run file that fixes each.

Input: the bytes of a log and the `symptom` rules of a library. Output: a `Report` and, with a run file, the edits that
compile. Only the run itself shows whether an edit cures it.

- scan.py searches a log of any size, block by block: `symptoms` prepares the rules, `diagnose` reads a whole log, and
  `Scan` reads one that still grows. It also finds the rank that failed first (`failures`, `first_to_fail`).
- errors.py collects every rank's tracebacks and what loggers mark as errors. messages.py finds each error in NVIDIA's
  code: the line that raised it, what that checks, the run-file statement that decides it, and the law that states it.
  It searches messages.jsonl.gz, the table of all errors in the wheels, which tools/make_messages.py writes.
- log_lines.py reads the lines that a run prints about its progress, and checks its steps. `runs` uses it too.
- memory.py reads the numbers in an out-of-memory message and compares them with the plan.
- edit.py applies the edits that a symptom's `fix` names and plans again (`compile_edits`); if memory ran out, it keeps
  all edits that save enough.
- text.py writes the diagnosis as JSON and prints it.

Commands, `launch`, `runs` and `rehearse` use this package. It may import the compiler and everything below it. To add a
symptom, write a rule in stdlib/rules/symptoms_*.moe and a line in tests/data/symptoms.toml.
"""
