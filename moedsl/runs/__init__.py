"""What is known after a run has trained: its measurements, and what follows from them.

Input: the files that a job leaves (logs, profiler traces, memory snapshots), its recipe's `plan.json`, lines of
measured runs, and sample files. Output: reports as JSON (`--json`) and as text, and three kinds of files: lines for
`moedsl calibrate`, declarations of constants, and the folder of `moedsl tune`.

| To see | open | command |
| --- | --- | --- |
| how fast runs were, and which one won | `results/` | `results` |
| how a run is doing while it trains | `watch_logs.py`, `watch.py` | `watch` |
| why a run is slower than predicted or published | `gap.py` | `gap` |
| what to try next, and how to try it unattended | `tune/` | `next`, `tune` |
| how the constants of the estimates are fitted | `measured_runs.py`, `calibrate.py` | `calibrate` |
| what the time of a step was spent on | `profile/` | `profile` |
| what the memory of a GPU was spent on | `snapshot.py` | `memory` |
| how long the samples for fine-tuning are | `samples.py` | `data` |

`watch`, `gap` and `tune` build on `results`: it finds a run's logs, parses their lines, and makes the row of figures
from which the others start. `measured_runs` reads and writes runs as lines of text, for all of them.

The room may import every room below it: the compiler, the planner, `bridge` (for recipes instead of plans), `diagnose`
and `launch` (to fetch logs and to submit). Only `moedsl/cli/` imports it. Only `calibrate.py` needs SciPy.
"""
