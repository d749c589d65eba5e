"""The real Megatron Bridge builds every sample plan's recipe and resolves each field to what the plan decided."""

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields, function_name
from moedsl.facts.common import COPIED
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.helpers.plans import PLANS

pytestmark = pytest.mark.bridge
TAKEN = rotation.some("resolved plans", [*PLANS], 1)
ORACLE = ROOT / "tests/oracles/emit_oracle.py"


def oracle(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of the real Bridge, in the order of the jobs."""
    ran = bridge_process.run(str(ORACLE), text=json.dumps(jobs))
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout)


def recipe_job(plan: Plan, folder: Path, on_gpu: bool) -> dict[str, Any]:
    file = folder / f"{function_name(plan)}_{len(list(folder.iterdir()))}.py"
    file.write_text(recipe_text(plan))
    return {
        "recipe": str(file),
        "function": function_name(plan),
        "gpu": plan.hardware,
        "world": plan.gpus,
        "on_gpu": on_gpu,
        "fields": list(decided_fields(plan)),
    }


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("recipes")
    keys = [(name, on_gpu) for name in TAKEN for on_gpu in (True, False)]
    return dict(zip(keys, oracle([recipe_job(PLANS[n], folder, g) for n, g in keys]), strict=True))


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("on_gpu", [True, False], ids=["worker", "login"])
def test_bridge_resolves_every_decided_field(name: str, on_gpu: bool, answers: dict[Any, dict[str, Any]]) -> None:
    answer, decided = answers[name, on_gpu], decided_fields(PLANS[name])
    assert "error" not in answer, answer["error"]
    assert {k: v for k, v in answer["built"].items() if v != decided[k] and k not in COPIED} == {}
    assert {k: v for k, v in answer["fields"].items() if v != decided[k]} == {}


@pytest.mark.parametrize("name", TAKEN)
def test_bridge_carries_the_plans_environment(name: str, answers: dict[Any, dict[str, Any]]) -> None:
    env = answers[name, True]["env"]
    assert {k: env.get(k) for k in PLANS[name].env} == {k: str(v) for k, v in PLANS[name].env.items()}
