"""Run the language server over the stages of the compiler; docs/internals.md has its contracts.

An editor's messages go in over stdio, through pygls; values of lsprotocol come out. Each text is parsed whole by the
compiler's own parser, checked at once, and solved in a thread.

Open for what:

- `server.py`: the table of requests and commands. `sync.py`: opening, changing and closing files.
- `features/`: one module for each request, a function of a `Document` (or the `Workspace`) and its parameters.
- `document.py`, `workspace.py`: one version of a text, and all open files. `positions.py`: offsets and positions.
- `analysis.py`: parse and check. `checking.py`, `solving.py`: when a file is checked, and the thread of the solver.
- `place.py`: what is around a cursor, and what the grammar accepts there. `offers*.py`, `legal.py`: what to offer.
- `names.py`, `index.py`: every name in a file, and symbols over files. `describe.py`: their text for hover.
- `edits.py`: edits for the client, and the pins of a plan's choices.

It may import every room below `cli`; `moedsl --help`, `check` and `plan` never import it.
"""
