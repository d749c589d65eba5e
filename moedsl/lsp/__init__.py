"""Run the language server over the stages of the compiler; docs/internals.md has its contracts.

An editor's messages go in over stdio, through pygls; values of lsprotocol come out. Each text is parsed whole by the
compiler's own parser, checked at once, and solved in a thread.

Open for what, in reading order:

- `server.py`: the tables of requests and commands, and the session: opening, changing and closing files.
- `workspace.py`: all open files. `document.py`: one version of a text; positions, capabilities and legends.
- `analysis.py`: parse and check. `checking.py`: when a file is checked, its diagnostics, and the thread of the solver.
- `completion.py`, `describe.py`: completion and hover. `place.py`: what is around a cursor, and what the grammar
  accepts there. `offers.py`, `legal.py`: what to offer.
- `navigation.py`: definition, references, rename, links. `names.py`, `index.py`: every name in a file, and over files.
- `structure.py`: outline, folds, selections, semantic tokens, formatting.
- `plans.py`, `actions.py`: hints, lenses and commands of a plan; code actions, and the edits that pin a plan's choices.

A new request is a function of a `Document` (or the `Workspace`) and its parameters, and a line of `server.FEATURES`.

It may import every room below `cli`; `moedsl --help`, `check` and `plan` never import it.
"""
