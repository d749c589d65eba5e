"""`moedsl schema`: print the JSON Schema of plan.json, which tools/make_plan_schema.py makes from the plan's classes,
or that of `moedsl results --json`."""

from __future__ import annotations

from argparse import Namespace
from importlib.resources import files

_PACKAGES = {"plan": "moedsl.planner", "results": "moedsl.runs.results"}


def run(a: Namespace) -> int:
    print(files(_PACKAGES[a.what]).joinpath(f"{a.what}.schema.json").read_text(encoding="utf-8"), end="")
    return 0
