"""Run the command line: the parser of arguments, and one module for each command.

Words go in; data goes to stdout, messages to stderr, and the exit code says whether the user's file is fine (0), wrong
(1), or whether moedsl has a bug (2).

Open for what:

- `main.py`: how a command is found and how it ends. `arguments.py`: every command with its arguments, one table.
- `commands/NAME.py`: a command, whose `run` takes the arguments and returns the exit code.
- `console.py`: reading a program, printing diagnostics and progress. `terminal.py`: what a terminal shows.
- `printing.py`, `answers.py`, `stages.py`: plans, the tables of `plan`, and the output of one stage.
- `foreground.py`: submit jobs and wait. `own_rules.py`: the rules and plans of `--run`.
- `reference/`: pages of `explain`. `serve/`: the page to plan on.

It may import every room. A command imports what it needs, so that `--help` imports nothing else: no torch, NeMo-Run or
pygls in `--help`, `check` and `plan`.
"""
