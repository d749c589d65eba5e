"""Run the language server over the stages of the compiler; docs/internals.md has its contracts.

An editor's messages arrive over stdio, through pygls; the answers are values of lsprotocol. Each text is parsed whole
by the compiler's own parser, checked at once, and solved in a thread.

The modules, in reading order:

- `server.py`: the tables of requests and commands, and the session: opening, changing and closing files.
- `workspace.py`: all open files. `document.py`: one version of a text; positions, capabilities and legends.
- `analysis.py`: parse and check. `checking.py`: when a file is checked, its diagnostics, and the thread of the solver.
- `completion.py`, `describe.py`: completion and hover. `place.py`: what is around a cursor, and what the grammar
  accepts there. `legal.py`: the values of an axis that have a legal layout.
- `navigation.py`: definition, references, rename, links. `names.py`, `index.py`: the names in one file, and across
  files.
- `structure.py`: outline, folds, selections, semantic tokens, formatting.
- `actions.py`: code actions; hints, lenses and commands for a plan, and the edits that pin its choices.

To add a request, write a function of a `Document` (or the `Workspace`) and the request's parameters, and add a line to
`server.FEATURES`.

This package may import every package below `cli`; `moedsl --help`, `check` and `plan` never import it.
"""
