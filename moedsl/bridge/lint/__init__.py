"""Judge an existing recipe by every rule, from its fields as Bridge resolves them or as its source states them.

run.py lints targets: start there. It gets a `Recipe` (facts.py) from the real Bridge or from source.py, which reads
Python and runs nothing; rules.py collects the rules and judges; report.py makes diagnostics that point into the source.
"""
