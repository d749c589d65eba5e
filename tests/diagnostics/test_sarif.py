"""`check` and `lint` print SARIF 2.1.0 that a code host reads."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from moedsl.cli.main import main

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
REGION = {
    "type": "object",
    "required": ["startLine"],
    "properties": {k: {"type": "integer", "minimum": 1} for k in ("startLine", "startColumn", "endLine", "endColumn")},
}
PHYSICAL = {
    "type": "object",
    "required": ["artifactLocation"],
    "properties": {
        "artifactLocation": {
            "type": "object", "required": ["uri"], "properties": {"uri": {"type": "string", "pattern": r"^\S*$"}}
        },
        "region": REGION,
    },
}  # fmt: skip
LOCATIONS = {
    "type": "array",
    "items": {"type": "object", "properties": {"physicalLocation": PHYSICAL, "message": TEXT}},
}
RESULT = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "message": TEXT,
        "level": {"enum": ["none", "note", "warning", "error"]},
        "locations": LOCATIONS,
        "relatedLocations": LOCATIONS,
    },
}
DRIVER = {
    "type": "object",
    "required": ["name"],
    "properties": {"rules": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
}
TOOL = {"type": "object", "required": ["driver"], "properties": {"driver": DRIVER}}
RUN = {
    "type": "object",
    "required": ["tool"],
    "properties": {"tool": TOOL, "results": {"type": "array", "items": RESULT}},
}
LOG = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {"version": {"const": "2.1.0"}, "runs": {"type": "array", "items": RUN}},
}
"""What the schema of SARIF 2.1.0 requires of the parts that are written."""


def log(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(words) == code
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, LOG)
    (run,) = found["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def test_a_mistake_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my run.moe").write_text("qwen3_30b_a3b\nh100 x 16\npin tq=1\n", encoding="utf-8")
    (result,) = log(["check", "--sarif", "my run.moe"], 1, capsys)["results"]
    assert (result["level"], result["ruleId"]) == ("error", "check.unknown_axis")
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "my%20run.moe"
    assert (where["region"]["startLine"], where["region"]["startColumn"]) == (3, 5)
    assert "help: an axis is one of pp" in result["message"]["text"]


def test_a_conflict_names_every_place(capsys: pytest.CaptureFixture[str]) -> None:
    run = log(["check", "--sarif", "-e", "deepseek_v3; h100 x 8; seq 128k"], 1, capsys)
    assert run["results"][0]["level"] == "error"


def test_nothing_found_is_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert log(["check", "--sarif", "-e", "qwen3_30b_a3b; h100 x 16"], 0, capsys)["results"] == []


def test_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "-e", "qwen3_30b_a3b; h100 x 16; pin ep=4", "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    recipe = tmp_path / "out/recipe.py"
    recipe.write_text(recipe.read_text().replace("context_parallel_size = 1", "context_parallel_size = 3"))
    words = ["lint", "--sarif", "--read-only", "--gpu", "h100", "--world", "16", str(recipe)]
    main(words)
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, LOG)
    assert found["runs"][0]["results"]
