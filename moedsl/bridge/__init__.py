"""Read what others wrote for Megatron Bridge, and ask the real Bridge.

- `importer/`: a Hugging Face configuration becomes the declaration of a model (`moedsl models add`).
- `recipe_import.py`: a Bridge recipe or a run_config.yaml becomes a program (`moedsl import`). `recipe_words.py` reads
  what has a word and writes the program; everything else becomes a `set` statement or a comment.
- `lint/`: a recipe is judged by every rule, from its fields as Bridge resolves them or as its source states them.
- `run_sides.py` reads two runs for `moedsl diff`; `diff.py` compares them: what changes the experiment, and what
  changes only how it runs.
- `verify/`: the real Megatron Bridge, in processes of its own, accepts a recipe or says why not, and what it made of
  it is compared with the plan. Everything that imports Bridge or torch is there and in rehearse/.
- `fields.py` brings the fields of plans and recipes into one form, for `import`, `diff` and `verify --read-only`;
  emit/fields.py is the table of what they mean.

To add a model family: importer/families.py. To add a check of what Bridge makes of a plan: a module in verify/ and a
line in its worker. Imports `queries`, `compiler` and what is below them.
"""
