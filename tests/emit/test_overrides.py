"""Overrides say what the recipe says: Bridge's own override code applied to its own library recipes agrees."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moedsl.emit.overrides import LIBRARY, OTHER_GPUS, hydra, library_recipe, overrides, overrides_text
from moedsl.emit.settings import RESETS, decided_fields
from moedsl.facts.fields import DATA, LATEST
from moedsl.facts.recipes import of_benchmark
from moedsl.planner.plan import Plan
from moedsl.support.files import stamp
from tests.emit.test_recipe_bridge import oracle
from tests.helpers import bridge_process, rotation
from tests.helpers.plans import PLANS
from tests.helpers.programs import plan_of
from tests.helpers.tables import table_of

TAKEN = rotation.some("overridden plans", [*PLANS], 1)
ODD = table_of("emit", "overrides: odd")


@pytest.mark.parametrize("name", PLANS)
def test_the_file_survives_a_shell(name: str, tmp_path: Path) -> None:
    (tmp_path / "o.txt").write_text(overrides_text(PLANS[name]))
    ran = subprocess.run(
        ["bash", "-c", r"grep -v '^#' o.txt | xargs printf '%s\n'"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == overrides(PLANS[name])
    assert shlex.split(overrides_text(PLANS[name]), comments=True) == overrides(PLANS[name])


def other_gpus() -> list[str]:
    return [n for n, p in PLANS.items() if library_recipe(p) in LIBRARY.values() and p.hardware != "h100"]


@pytest.mark.parametrize("name", other_gpus())
def test_a_recipe_for_another_gpu_says_why(name: str) -> None:
    said = " ".join(line for line in overrides_text(PLANS[name]).splitlines() if line.startswith("#"))
    assert f"no recipe to train this model on {PLANS[name].hardware}" in said


@pytest.mark.parametrize("name", ["qwen3_30b_h100_bf16", "nemotron_3_super_gb200_mxfp8"])
def test_a_recipe_for_this_gpu_has_nothing_to_explain(name: str) -> None:
    assert "no recipe to train this model" not in overrides_text(PLANS[name])


NAMED = table_of("emit", "overrides: named")
"""Runs for whose model and GPUs Bridge has a recipe to train with; Bridge looks for the folder of the weights."""


@pytest.mark.parametrize("text", NAMED)
def test_the_recipe_is_the_one_that_the_plan_is_compared_with(text: str) -> None:
    plan = plan_of(text)
    assert plan.shipped is not None and library_recipe(plan) == plan.shipped.name
    assert f"recipe {plan.shipped.name}.\n# Fields that the plan does not decide" in overrides_text(plan)


@pytest.mark.parametrize("text", ["qwen3_235b_a22b; gb200 x 256", "deepseek_v3; h100 x 1024; precision fp8"])
def test_a_benchmark_is_no_recipe_to_train_with(text: str) -> None:
    """And the file says so, because the plan names it."""
    plan = plan_of(text)
    assert plan.shipped is not None and library_recipe(plan) in LIBRARY.values()
    assert f"# {plan.shipped.name}, which the plan is compared with, is a benchmark" in overrides_text(plan)


NAMES = """
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
import megatron.bridge.recipes as recipes
print(*dir(recipes))
"""
TORCHRUN = """#!/bin/bash
[ -f "$3" ] && shift 3 && printf '%s\\n' "$@"
"""


@pytest.mark.parametrize("name", [n for n, p in PLANS.items() if library_recipe(p)])
def test_the_command_in_the_file_is_one_to_type(name: str, tmp_path: Path) -> None:
    """Typed as it stands, with a checkout in which the script lies where NVIDIA's documents have it."""
    text = overrides_text(PLANS[name])
    (command,) = (line.removeprefix("# ") for line in text.splitlines() if "torchrun" in line)
    script = tmp_path / "a checkout" / "scripts" / "training" / "run_recipe.py"
    script.parent.mkdir(parents=True)
    script.touch()
    (tmp_path / "overrides.txt").write_text(text)
    (tmp_path / "torchrun").write_text(TORCHRUN)
    (tmp_path / "torchrun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MEGATRON_BRIDGE": str(tmp_path / "a checkout")}
    ran = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    step = ["--step_func", "qwen3_vl_step"] if "_vl_" in PLANS[name].model else []
    assert ran.stdout.splitlines() == ["--recipe", library_recipe(PLANS[name]), *step, *overrides(PLANS[name])]


@pytest.mark.bridge
def test_bridge_has_no_recipe_to_train_with_for_another_gpu() -> None:
    """Its library, asked; what there is for other GPUs is a functional test, or lies among the benchmarks."""
    ran = bridge_process.run("-c", NAMES)
    assert ran.returncode == 0, ran.stderr
    names = set(ran.stdout.split())
    models = "|".join({model for model, _ in LIBRARY})
    other = re.compile(rf"({models})_(pretrain|sft)_\d+gpu_(?!h100_)\w+_config")
    found = {n for n in names if other.fullmatch(n) and "_functional_" not in n}
    assert found == {n for n in OTHER_GPUS.values() if other.fullmatch(n)}
    assert {*LIBRARY.values(), *OTHER_GPUS.values()} <= names
    table = (DATA / f"bridge_recipes_{LATEST}.jsonl").read_text("utf-8").splitlines()
    assert {r["name"] for r in map(json.loads, table) if not of_benchmark(r["module"])} <= names


WHERE = """
import sys
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
import megatron.bridge.recipes as recipes
print(*(getattr(recipes, name).__module__.split(".")[-2] for name in sys.argv[1:]))
"""


@pytest.mark.bridge
def test_each_recipe_is_for_the_gpu_that_it_is_named_for() -> None:
    """By the folder that Bridge keeps it in: a name need not say it."""
    wanted = {**dict.fromkeys(LIBRARY.values(), "h100"), **{name: gpu for (_, _, gpu), name in OTHER_GPUS.items()}}
    ran = bridge_process.run("-c", WHERE, *wanted)
    assert ran.returncode == 0, ran.stderr
    assert dict(zip(wanted, ran.stdout.split()[-len(wanted) :], strict=True)) == wanted


@pytest.mark.bridge
@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: [t], lambda t: {"k": t}], ids=["bare", "list", "map"])
def test_hydra_reads_the_same_string(text: str, wrap: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_override(f"x={hydra(wrap(text))}").value()
    settled = OmegaConf.to_container(OmegaConf.create({"x": parsed}), resolve=True)
    assert settled == {"x": wrap(text)}


@pytest.mark.bridge
def test_values_survive_the_command(tmp_path: Path) -> None:
    """From the program through the file and the shell to the configuration that Bridge makes."""
    names = ("wandb_project", "wandb_exp_name", "wandb_save_dir", "wandb_entity", "tensorboard_dir")
    wanted = {f"logger.{n}": t for n, t in zip(names, ["a b's", *ODD[-3:], "${model.seq_length}\n"], strict=True)}
    said = "\n".join(f"set {n} = {json.dumps(t)}" for n, t in wanted.items())
    plan = plan_of(f"qwen3_30b_a3b; h100 x 16\n{said}")
    (tmp_path / "overrides.txt").write_text(stamp("overrides.txt", overrides_text(plan)))
    command = r"grep -v '^#' overrides.txt | xargs printf '%s\0'"
    words = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert words.split("\0")[:-1] == overrides(plan)
    job = {"library": library_recipe(plan), "overrides": words.split("\0")[:-1], "gpu": "h100", "world": 16}
    (answer,) = oracle([{**job, "fields": [*wanted]}])
    assert answer.get("built") == wanted, answer


APPLIED = [*TAKEN, *rotation.some("named recipes", NAMED, 1)]


def plan_named(name: str) -> Plan:
    """A plan by its name, or that of a run."""
    return PLANS[name] if name in PLANS else plan_of(name)


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    plans = {n: p for n in APPLIED if library_recipe(p := plan_named(n))}
    jobs = [
        {
            "library": library_recipe(p),
            "overrides": overrides(p),
            "gpu": p.hardware,
            "world": p.gpus,
            "fields": [*decided_fields(p), *RESETS],
        }
        for p in plans.values()
    ]
    return dict(zip(plans, oracle(jobs), strict=True))


@pytest.mark.bridge
@pytest.mark.parametrize("name", APPLIED)
def test_bridge_applies_them_to_its_own_recipe(name: str, answers: dict[str, dict[str, Any]]) -> None:
    plan = plan_named(name)
    answer, decided = answers[name], {**RESETS, **decided_fields(plan)}
    assert "error" not in answer, answer["error"]
    assert {k: v for k, v in answer["fields"].items() if v != decided[k]} == {}
    assert {k: answer["env"].get(k) for k in plan.env} == {k: str(v) for k, v in plan.env.items()}


TUNED = 'qwen3_30b_a3b; h100 x 8; task peft; data "/d"; set checkpoint.pretrained_checkpoint = "/"; adapter '


@pytest.mark.bridge
def test_bridge_takes_the_adapter_of_a_plan_where_the_recipe_has_its_kind() -> None:
    """It keeps the object, and sets its fields; of another kind the file has no command and no field."""
    plan, other = plan_of(f"{TUNED}lora rank=16 targets=[linear_qkv]"), plan_of(f"{TUNED}dora rank=16 experts=none")
    library, decided = library_recipe(plan), decided_fields(plan)
    job = {"library": library, "overrides": overrides(plan), "gpu": plan.hardware, "world": plan.gpus}
    (answer,) = oracle([{**job, "fields": [*decided]}])
    assert {k: v for k, v in answer["fields"].items() if v != decided[k]} == {}
    assert decided["peft.dim"] == 16 and library is not None and "_peft_" in library
    assert library_recipe(other) is None and not any("peft" in line for line in overrides(other))
    assert "a recipe that has the plan's adapter" in overrides_text(other)
