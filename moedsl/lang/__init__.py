"""The language of .moe files: from a text to its syntax tree, and back.

In: a path or a text. Out: an `ast.Module`, whose nodes have their spans in the text, and diagnostics. Nothing here
knows what a name means; `rules` does.

- Reading: `reader.py` reads a path to a `Source`. `tokens.py` splits a text into words without the grammar and pairs
  its brackets, for the nesting limit, error recovery and the formatter.
- Trees: `ast.py` has a frozen class for each rule of grammar/moe.lark, and `tree_builder.py` builds it from the rule's
  children. `parser.py` drives Lark word by word, continues after a wrong statement, so that each gives one error,
  and lists the words that may follow, for completion.
- Errors: `parse_errors.py` says what was found and what was expected. `foreign_syntax.py` has a function for each form
  of other tools that it recognises (`gb200 * 256`), `foreign_statements.py` handles their keywords and arguments.
- Back to text: `printer.py` prints a tree without comments, `formatter.py` is `moedsl fmt`, which moves words but loses
  none, and `text_edits.py` turns a diagnostic's fix into edits.
- Editors: `keywords.py` lists the grammar's words by role; `pygments_lexer.py` colours documents with them.

To add a statement: its rule in grammar/moe.lark, its class in `ast.py`, a line in the tables of `tree_builder.py` and
`printer.py`, and its word in `foreign_syntax.STATEMENTS`; rules/check/run_draft.py then reads it. Words that may start
a line inside a statement are `tokens.CLAUSES`; units are facts/units.py and the grammar's NUMBER. To explain a form of
another tool: a function in `foreign_syntax.py`, where the first that answers wins. Imports `facts`, `support`.
"""
