"""Runs of Megatron-LM are read from scripts, YAML, logs and command lines; bash itself says what a script calls."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge import run_files
from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.megatron_lm import arguments, shell
from moedsl.bridge.recipe_import import imported
from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.support.source import Source
from tests.helpers.paths import ROOT

DATA = ROOT / "tests" / "data" / "megatron_lm"
PROGRAMS: dict[str, Any] = tomllib.loads((DATA / "programs.toml").read_text(encoding="utf-8"))
ROWS = [json.loads(line) for line in (DATA / "measured.jsonl").read_text(encoding="utf-8").splitlines()]
NEWER = ("deepseek_v4_flash", "deepseek_v4_pro")
"""Models whose attention Megatron-LM 0.19.2 does not have."""
STAND_IN = """#!/bin/bash
case "${0##*/}" in
  srun) while [ "$1" != sh ] && [ "$1" != bash ]; do shift; done; exec "$@" ;;
  torchrun | python) printf '%s\\0' "$@" > "$CALLED" ;;
esac
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_bash_calls_the_program_with_the_words_that_are_read(name: str, tmp_path: Path) -> None:
    env = PROGRAMS[name].get("env", {})
    commands = tmp_path / "bin"
    commands.mkdir()
    for command in ("torchrun", "python", "srun", "nvidia-smi", "module", "scontrol", "shuf"):
        (commands / command).write_text(STAND_IN)
        (commands / command).chmod(0o755)
    script = tmp_path / f"{name}.sh"
    script.write_bytes((DATA / f"{name}.sh").read_bytes())
    (tmp_path / "common_env.sh").write_text("")
    (tmp_path / "Megatron-LM").mkdir()
    scheduled = shell.scheduled(script.read_text())
    given = {n: v for n, v in env.items() if not n.isdigit()}
    settings = {
        "PATH": f"{commands}:{os.environ['PATH']}", "CALLED": str(tmp_path / "called"), "HOME": str(tmp_path),
        "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "CONTAINER_IMAGE": "image", **scheduled, **given,
    }  # fmt: skip
    positional = [v for n, v in env.items() if n.isdigit()] or ["one", "two", "three"]
    subprocess.run(["bash", str(script), *positional], cwd=tmp_path, env=settings, capture_output=True, check=False)
    called = (tmp_path / "called").read_bytes().decode().split("\0")[:-1]
    words = called[next(i for i, w in enumerate(called) if w.endswith(".py")) + 1 :]
    read = shell.read(script.read_text(), {**given, **{str(i): v for i, v in enumerate(positional, 1)}})
    found = [[w.text for w in c.words] for c in read.commands if not c.words[0].text.startswith(("echo", "eval"))]
    assert words in [c[-len(words) :] for c in found]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_script_has_its_layout_and_lists_what_is_no_statement(name: str) -> None:
    want = PROGRAMS[name]
    made = imported(str(DATA / f"{name}.sh"), want["gpu"] or None, None, want.get("env", {}))
    assert made.text is not None, made.diagnostics
    lines = {line.strip() for line in made.text.splitlines()}
    assert [line for line in want["lines"] if line not in lines] == []
    listed = " ".join(line.lstrip("# ") for line in made.text.partition("# Of the recipe")[2].splitlines())
    assert [a for a in want["listed"] if a not in listed] == []
    assert not compile_source(Source("x.moe", made.text)).failed


def test_every_argument_of_a_published_run_is_a_statement_or_listed_and_the_run_is_planned(tmp_path: Path) -> None:
    library = load_stdlib()
    for row in ROWS:
        file = tmp_path / row["hardware"] / f"{row['id']}_{row['gpus']}GPU.yaml"
        file.parent.mkdir(exist_ok=True)
        blocks = {"ENV_VARS": row["env"], "MODEL_ARGS": {f"--{n.replace('_', '-')}": v for n, v in row["args"].items()}}
        file.write_text(json.dumps(blocks))
        read = run_files.read(str(file), None, None, library)
        if row["model"] in NEWER:
            assert isinstance(read, tuple) and "dsv4_hybrid" in read[0].message
            continue
        assert isinstance(read, Recipe) and read.world == row["gpus"]
        flags = {a.flag.removeprefix("--").replace("-", "_") for a in read.given}
        assert {n for n, v in row["args"].items() if v is not False} == flags
        made = imported(str(file))
        assert made.text is not None
        result = compile_source(Source("x.moe", made.text))
        assert not result.failed and result.plans[0].model == row["model"], result.diagnostics
        assert result.plans[0].estimate.model_tflops_per_gpu == pytest.approx(row["tflops_per_gpu"], rel=0.2)


def test_the_block_of_a_log_has_the_values_of_its_script() -> None:
    log = arguments.of_log((DATA / "qwen3_30b.log").read_text(), "log")  # as Megatron-LM 0.19.2 prints it
    script = arguments.of_script((DATA / "qwen3_30b.sh").read_text(), "script", {})
    assert log is not None and script is not None and log.world == script.world == 32
    mine, theirs = log.values(), script.values()
    bare = [{n: v[0] if isinstance(v, list) and len(v) == 1 else v for n, v in x.items()} for x in (mine, theirs)]
    assert {n for n in mine if bare[0][n] != bare[1][n]} == {
        "expert_tensor_parallel_size"
    }  # which is TP where nothing states it
    made, of_script = (imported(str(DATA / f"qwen3_30b.{kind}"), "h100").text for kind in ("log", "sh"))
    pins = [
        [line for line in (t or "").splitlines() if line.startswith(("pin", "set", "seq"))] for t in (made, of_script)
    ]
    assert pins[0] == pins[1] != []


def test_what_cannot_be_resolved_is_named_and_given() -> None:
    words = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers $LAYERS --micro-batch-size 1 --bf16 --lr x"
    found = arguments.of_script(words, "x", {})
    assert found is not None and found.arguments[0].holes == ("LAYERS",) and "no number" in found.arguments[3].wrong
    given = arguments.of_script(words, "x", {"LAYERS": "4"})
    assert given is not None and given.given["num_layers"].value == 4


def test_a_damaged_script_is_answered() -> None:
    """200 scripts: lines cut, words swapped, characters lost, quotes doubled."""
    library, rng = load_stdlib(), random.Random(41)
    texts = [(DATA / f"{name}.sh").read_text() for name in PROGRAMS]
    answers = 0
    for _ in range(200):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 12)):
            at, length = rng.randrange(len(text)), rng.choice((1, 1, 2, 9, 60, 400))
            piece = rng.choice(("", "'", '"', "(", ")", "$", "${", "$((", "|", "\\", "\n", "fi\n", "done", "\0", "é"))
            text = text[:at] + piece + text[at + (0 if piece else length) :]
        call = arguments.of_script(text, "x", {"1": "dsw"})
        if call is None:
            continue
        found = run_files.megatron_lm.recipe(call, "h100", 64, library)
        answers += isinstance(found, Recipe) or all(d.message for d in found)
    assert answers > 100


STAGES = """  num_layers: 48
  pipeline_model_parallel_size: 1
  num_layers_in_last_pipeline_stage: 20
"""


def test_a_run_config_is_judged_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "run_config.yaml", tmp_path / "other.yaml"
    target = "megatron.bridge.models.gpt_provider.GPTModelProvider"
    one.write_text(f"model:\n  _target_: {target}\n{STAGES}")
    other.write_text(one.read_text().replace("20", "null"))
    assert main(["lint", str(one), "--gpu", "h100", "--world", "16", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    broken = {d["id"]: d["labels"][0]["line"] for d in found["diagnostics"]}
    assert broken["std.recipe_layout.ends_need_pipeline"] == 5
    assert main(["diff", str(one), str(other), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [x["name"] for group in changes.values() for x in group] == ["model.num_layers_in_last_pipeline_stage"]
