"""Read a log: name its symptoms, and the edit of the run file that fixes each.

In go the bytes of a log and the `symptom` rules of a library; out come a `Report`, and with a run file the edits that
compile. Whether an edit cures the run, only the run shows.

- scan.py searches a log of any size, block by block: `symptoms` prepares the rules, `diagnose` reads a whole log, and
  `Scan` one that still grows. It also finds the rank that failed first (`failures`, `first_to_fail`).
- edit.py applies the edits that a symptom's `fix` names and plans again (`compile_edits`). For a run out of memory it
  reads how much was asked for, and whether the GPU in the message can be the one of the run file.
- text.py writes both as JSON and prints that.

Commands, `launch`, `runs` and `rehearse` use this package. It may import the compiler and everything below it.
"""
