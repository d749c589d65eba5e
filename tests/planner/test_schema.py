"""The JSON Schema of plan.json is made from the classes of a plan, and every plan keeps it."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from moedsl.cli.main import main
from moedsl.planner.plan import Plan
from tests.helpers import rotation
from tests.helpers.plans import PLANS
from tests.helpers.programs import compiled
from tests.helpers.tables import table_of
from tools import make_plan_schema

RUNS = table_of("planner", "schema: runs")


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    made = make_plan_schema.schema()
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def wrong(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)]


def test_the_shipped_file_is_up_to_date() -> None:
    assert make_plan_schema.FILE.read_text(encoding="utf-8") == make_plan_schema.text()


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == make_plan_schema.schema()


@pytest.mark.parametrize("run", rotation.some("kept by plans", [*RUNS], 1))
def test_plans_keep_it_and_come_back_from_json(run: str, validator: Draft202012Validator) -> None:
    plans = compiled(RUNS[run]).plans
    assert plans
    for plan in plans:
        text = json.dumps(plan.to_json())
        assert wrong(validator, json.loads(text)) == []
        assert json.dumps(Plan.from_json(json.loads(text)).to_json()) == text


def test_answers_beside_a_plan_keep_it(validator: Draft202012Validator, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--json", "--ladder", "--top", "2", "--pareto", "--tokens", "1T", "--price", "2"]
    assert main(["plan", "-e", RUNS["text"], *asked]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"ladder", "top", "pareto", "budget"} <= data.keys() and wrong(validator, data) == []
    assert json.dumps(Plan.from_json(data).to_json()) == json.dumps(data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": "many"}, "$.gpus"),
        ({"colour": 1}, "colour"),
        ({"layout": {}}, "$.layout"),
        ({"ladder": None}, "$.ladder"),
    ],
)
def test_what_is_no_plan_breaks_it(change: dict[str, Any], said: str, validator: Draft202012Validator) -> None:
    data = PLANS["qwen3_30b_h100_bf16"].to_json()
    assert wrong(validator, data) == []
    (found, *_) = wrong(validator, data | change)
    assert said in found


@pytest.mark.parametrize("data", [[], {"version": 1}, {"layout": 3}])
def test_what_is_no_plan_is_not_read(data: Any) -> None:
    with pytest.raises(ValueError, match=r"Plan (has no|is not)"):
        Plan.from_json(data)
