"""Read what others wrote for Megatron Bridge, and ask the real Bridge.

- `importer/`: turns a Hugging Face configuration into the declaration of a model (`moedsl models add`).
- `recipe_import.py`: turns a Bridge recipe or a run_config.yaml into a program (`moedsl import`). `recipe_words.py`
  reads the values that have keywords and writes the program; everything else becomes a `set` statement or a comment.
- `lint/`: checks a recipe against every rule, from its fields as Bridge resolves them or as its source states them.
- `run_sides.py` reads two runs for `moedsl diff`; `diff.py` compares them: what changes the experiment, and what
  changes only how it runs.
- `verify/`: runs the real Megatron Bridge in separate processes. Bridge accepts a recipe or says why not, and the
  result is compared with the plan. All code that imports Bridge or torch is there and in rehearse/.
- `fields.py` normalises the fields of plans and recipes for `import`, `diff` and `verify --read-only`; emit/fields.py
  is the table of what they mean.

To add a model family, edit importer/families.py. To add a check of Bridge's result, add a module in verify/ and a line
in its worker. Imports `queries`, `compiler` and the packages below them.
"""
