"""Every example answers a question, is laid out by `fmt`, compiles, and its plan keeps the contract's keys."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.emit.artifact import files_of
from moedsl.support.files import write_all
from tests.helpers import programs, rotation
from tests.helpers.paths import EXAMPLES, ROOT


def words(text: str) -> set[str]:
    return set(text.split())


KEYS = words("version model hardware gpus phase layout batch policy estimate decisions diagnostics alternatives")
LAYOUT = words("tp cp dp pp vpp ep etp edp sequence_parallel pipeline_layout")
BATCH = words("global_batch micro_batch num_microbatches seq")
POLICY = words("precision dispatcher recompute offload cuda_graph ep_overlap delay_wgrad sharding")
ESTIMATE = words("memory step_time_s tokens_per_s_per_gpu model_tflops_per_gpu breakdown")
DECISION = words("name value origin rule because cite alternatives")
STAGE = words("stage params weights_gib optimizer_gib activations_gib")
ORIGINS = ("pinned", "defaulted", "derived", "chosen")
STATEMENTS = words(
    "ModelStmt BareStmt SeqStmt BatchStmt PrecisionStmt TaskStmt PhaseStmt VlmStmt DataStmt PinStmt Require Prefer "
    "AllowStmt SweepStmt SetStmt TargetStmt HardwareDecl ModelDecl ClusterDecl RulesDecl RunDecl"
)

every = pytest.mark.parametrize("file", EXAMPLES, ids=lambda p: p.stem)
some = pytest.mark.parametrize("file", rotation.some("commands", EXAMPLES, 2), ids=lambda p: p.stem)


def plans(file: Path) -> list[dict[str, Any]]:
    """The plans of an example as JSON."""
    return [json.loads(json.dumps(plan.to_json())) for plan in programs.example(file).plans]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 20


def test_the_first_folder_is_short_and_its_page_lists_every_example() -> None:
    """examples/README.md orders the first folder by question."""
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\S+\.moe)\)", page)
    assert len([*(ROOT / "examples").glob("*.moe")]) <= 12
    assert sorted(listed) == sorted(str(p.relative_to(ROOT / "examples")) for p in EXAMPLES)
    for path in listed:
        question = (ROOT / "examples" / path).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert question.split("?")[0] in page, path


@every
def test_opens_with_its_question(file: Path) -> None:
    first = file.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and "?" in first


@every
def test_is_laid_out(file: Path) -> None:
    assert main(["fmt", "--check", str(file)]) == 0


@every
def test_plan_keeps_the_contract(file: Path) -> None:
    for plan in plans(file):
        assert plan.keys() >= KEYS and plan["version"] == 1
        assert plan["layout"].keys() >= LAYOUT and plan["batch"].keys() >= BATCH and plan["policy"].keys() >= POLICY
        assert plan["estimate"].keys() >= ESTIMATE
        assert all(d.keys() >= DECISION and d["origin"] in ORIGINS for d in plan["decisions"])
        assert all(s.keys() >= STAGE for s in plan["estimate"]["memory"]["stages"])


@every
def test_meshes_cover_the_gpus_and_the_batch(file: Path) -> None:
    for plan in plans(file):
        m, b = plan["layout"], plan["batch"]
        assert m["tp"] * m["cp"] * m["dp"] * m["pp"] == plan["gpus"] == m["etp"] * m["ep"] * m["edp"] * m["pp"]
        assert b["micro_batch"] * b["num_microbatches"] * m["dp"] == b["global_batch"]


@every
def test_fits_and_says_how_much(file: Path) -> None:
    for plan in plans(file):
        memory = plan["estimate"]["memory"]
        assert 0 < memory["peak_gib"] <= memory["visible_gib"]
        assert len(memory["stages"]) == plan["layout"]["pp"]


@some
def test_plan_prints_its_plans(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["plan", str(file.relative_to(ROOT)), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.get("runs", [data]) == plans(file)


@some
def test_compiles_to_a_recipe_twice_alike(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes, byte for byte, what another compile of the file makes."""
    monkeypatch.chdir(ROOT)
    assert main(["compile", str(file.relative_to(ROOT)), "-o", str(tmp_path / "a")]) == 0
    made = programs.example(file)
    below = "{}/" if len(made.plans) > 1 else ""
    again = {
        below.format(plan.name) + name: text
        for plan in made.plans
        for name, text in files_of(plan, made.source, made.library).items()
    }
    assert {"recipe.py", "plan.json"} <= {Path(name).name for name in again}
    assert write_all(tmp_path / "b", again) == []
    assert content(tmp_path / "a") == content(tmp_path / "b")


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_one_line_of_the_design_is_an_example() -> None:
    text = (ROOT / "examples/vlm/vlm_bring_up.moe").read_text(encoding="utf-8")
    assert "\nfit first; gb200; seq 128k; vlm freeze_vision\n" in text


def test_examples_say_every_statement(capsys: pytest.CaptureFixture[str]) -> None:
    """What no example uses, nobody finds."""
    kinds: set[str] = set()
    for file in EXAMPLES:
        assert main(["plan", str(file), "--stop-after", "parse"]) == 0
        kinds |= _kinds(json.loads(capsys.readouterr().out))
    assert kinds >= STATEMENTS


def _kinds(tree: Any) -> set[str]:
    if isinstance(tree, list):
        return set().union(*map(_kinds, tree))
    if not isinstance(tree, dict):
        return set()
    return {str(tree.get("kind"))}.union(*map(_kinds, tree.values()))
