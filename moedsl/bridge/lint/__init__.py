"""Check an existing recipe against every rule, from its fields as Bridge resolves them or as its source states them.

Start with run.py, which lints targets. It gets a `Recipe` (facts.py) from the real Bridge or from source.py, which
reads Python and runs nothing; rules.py collects and applies the rules; report.py makes diagnostics that point into the
source.
"""
