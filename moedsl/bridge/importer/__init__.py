"""Turn a Hugging Face configuration into the declaration of a model (`moedsl models add`).

config.py reads a `config.json` by the rules of its family and writes the declaration. families.py is the table of
families, built from the rules in rules.py and layers.py. known.py lists names, ignored keys and families that cannot be
imported.
"""
