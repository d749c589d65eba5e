"""Run the command line: the parser of arguments, and the commands.

Words go in; data goes to stdout, messages to stderr, and the exit code says whether the user's file is fine (0), wrong
(1), or whether moedsl has a bug (2).

Open for what, in reading order:

- `main.py`: how a command is found and how it ends. `arguments.py`: every command with its arguments and examples, one
  table, which names the module and the function of each.
- `commands/`: a function for each command, which takes the arguments and returns the exit code:
  `check`, `plan`, `answers`, `compile` for run files; `run_files` to write and format them; `recipes`, `verify` for
  recipes; `launch`, `jobs`, `fine_tuning` for clusters; `results`, `diagnose`, `tune` for what ran; `lists` of what a
  run may name; `integrations` with shells, editors and the browser.
- `console.py`: reading a program, printing diagnostics and progress. `terminal.py`: what a terminal shows.
- `printing.py`: plans, and the output of one stage.
- `reference/`: pages of `explain`. `serve/`: the page to plan on.

A new command is a function in `commands/` and an entry in `arguments.COMMANDS`.

It may import every room. A command imports what it needs, so that `--help` imports nothing else: no torch, NeMo-Run or
pygls in `--help`, `check` and `plan`.
"""
