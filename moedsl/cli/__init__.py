"""Run the command line: the parser of arguments, and the commands.

Data goes to stdout, messages to stderr. The exit code is 0 if the user's file is fine, 1 if it is wrong, and 2 for a
bug of moedsl.

What to open, in reading order:

- `main.py`: finds and runs the command. `arguments.py`: one table of every command with its arguments and examples, and
  with the module and the function that run it.
- `commands/`: a function for each command, which takes the arguments and returns the exit code: `check`, `plan`,
  `answers`, `compile` for run files; `run_files` to write and format them; `recipes`, `verify` for recipes; `launch`,
  `jobs`, `fine_tuning` for clusters; `results`, `diagnose`, `tune` for finished and running jobs; `lists` for what a
  run may name; `integrations` with shells, editors and the browser.
- `console.py`: reads a program, prints diagnostics and progress. `terminal.py`: what a terminal shows.
- `printing.py`: prints plans, and the output of one stage.
- `reference/`: pages of `explain`. `serve/`: the page to plan on.

To add a command, write a function in `commands/` and an entry in `arguments.COMMANDS`.

It may import every package. A command imports only what it needs when it runs, so that `--help` imports nothing else:
no torch, NeMo-Run or pygls in `--help`, `check` and `plan`.
"""
