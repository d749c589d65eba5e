"""Name the function of a recipe."""

from __future__ import annotations

import re

from moedsl.planner.model.plan import Plan


def function_name(plan: Plan) -> str:
    """Name the recipe as Bridge does (recipes/utils/naming.py:34): ``MODEL_TASK_Ngpu_HARDWARE_PRECISION_config``."""
    name = f"{plan.model}_{plan.task}_{plan.gpus}gpu_{plan.hardware}_{plan.policy.precision}_config"
    return re.sub(r"\W", "_", name, flags=re.ASCII)
