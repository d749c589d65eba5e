"""`moedsl schema`: print the JSON Schema of plan.json, which tools/make_plan_schema.py makes from the plan's
classes."""

from __future__ import annotations

from argparse import Namespace
from importlib.resources import files


def run(_: Namespace) -> int:
    print(files("moedsl.planner").joinpath("plan.schema.json").read_text(encoding="utf-8"), end="")
    return 0
