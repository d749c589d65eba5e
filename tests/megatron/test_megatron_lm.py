"""What `--backend megatron_lm` writes, judged by Megatron-LM's own functions and by the recipe of the same plan."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.client import Server
from moedsl.cli.main import main as moedsl
from moedsl.compiler import Result, load_stdlib
from moedsl.emit import megatron_lm
from moedsl.emit.settings import known_values
from moedsl.facts import megatron_arguments as table
from tests.helpers import bridge_process, programs, rotation
from tests.helpers.cost_models import enough_gpus, model
from tests.helpers.paths import EXAMPLES
from tests.helpers.programs import written

ASK = """
import json, os, sys
from moedsl.bridge.verify import megatron_lm, stand_ins
from moedsl.bridge.verify.cases import Device
found = []
for name, words, device, world, environment in json.load(sys.stdin):
    stand_ins.answer(Device.from_json(device), world, 0)
    os.environ.update(environment)
    found.append(megatron_lm.configuration(megatron_lm.validated(megatron_lm.parsed(words))))
print(json.dumps(found))
"""
RUNS: list[Path | str] = [*EXAMPLES, *sorted(load_stdlib().models)]


def result_of(run: Path | str) -> Result:
    if isinstance(run, Path):
        return programs.example(run)
    return programs.compiled(f"model {run}; gb300 x {enough_gpus(model(run))}; seq 4k; fit first")


@pytest.mark.bridge
@pytest.mark.timeout(1200)
def test_the_configuration_is_that_of_the_recipe(server: Server, tmp_path: Path) -> None:
    asked: list[tuple[Any, ...]] = []
    of: list[tuple[str, cases.Case, Any]] = []
    for run in rotation.some("runs of Megatron-LM", RUNS, 3):
        result = result_of(run)
        assert not result.failed, result.diagnostics
        folder = tmp_path / (f"example_{run.stem}" if isinstance(run, Path) else run)
        for case, plan, chosen in zip(written(result, folder), result.plans, result.chosen, strict=True):
            m = chosen.problem.program.model
            if not megatron_lm.refusals(plan, m):
                device = cases.from_plan(plan).to_json()
                words, environment = megatron_lm.words(plan, m), megatron_lm.environment(plan)
                asked.append((plan.name, words, device, plan.gpus, environment))
                of.append((folder.name, case, known_values(plan, m).get("model.activation_func")))
    done = bridge_process.run("-c", ASK, text=json.dumps(asked))
    assert not done.returncode, done.stderr[-3000:]
    made = json.loads(done.stdout.splitlines()[-1])
    wrong: list[Any] = []
    for (name, _, function), ours, bridge in zip(of, made, server.resolve([c for _, c, _ in of]), strict=True):
        assert bridge.resolved and bridge.refusal is None, (name, bridge.refusal)
        assert ours["model.activation_func"] == f"<{function}>", name
        wrong += [
            (name, path, value, bridge.resolved[path])
            for path, value in ours.items()
            if path.startswith("model.") and path in bridge.resolved and path not in table.notes()["differences"]
            if not str(value).startswith("<") and value != bridge.resolved[path]
        ]
    assert not wrong, wrong


@pytest.mark.parametrize("run", rotation.some("scripts read back", RUNS, 1), ids=lambda r: getattr(r, "stem", r))
def test_the_script_is_read_back_as_the_same_plan(
    run: Path | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(run)
    for plan, chosen in zip(result.plans, result.chosen, strict=True):
        m = chosen.problem.program.model
        if megatron_lm.refusals(plan, m):
            continue
        script, back = tmp_path / f"{plan.name}.sh", tmp_path / f"{plan.name}.moe"
        script.write_text(megatron_lm.script_text(plan, m))
        if plan.hardware not in load_stdlib().hardware:  # `import` has no place for a declaration of GPUs
            continue
        assert not moedsl(["import", str(script), "--gpu", plan.hardware, "-o", str(back)]), capsys.readouterr().err
        result = programs.compiled(back.read_text())
        again, own = result.plans[0], result.chosen[0].problem.program.model
        # the name is not compared: Nemotron 3 Nano and 3.5 Lightning differ in MTP alone, and either may be read;
        # nor is what a run with free axes would do at 4,096 tokens
        read = [(p.gpus, p.layout.to_json(), p.batch.to_json(), p.policy.to_json()) for p in (plan, again)]
        for _, _, batch, _ in read:
            batch.pop("against_4k", None)
        assert read[0] == read[1]
        assert not megatron_lm.refusals(again, own)
        assert megatron_lm.words(again, own) == megatron_lm.words(plan, m)


CLUSTER = """
model qwen3_30b_a3b; h100 x 16; seq 4k; fit first
cluster lab { executor slurm; hardware h100; partition batch; account me; job_dir "/shared/runs"
  megatron_lm "/shared/Megatron-LM" }
"""


def test_compile_writes_it_and_run_submits_the_same_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.moe"
    run.write_text(CLUSTER)
    assert not moedsl(["compile", str(run), "--backend", "megatron_lm", "-o", str(tmp_path / "out")])
    text = (tmp_path / "out" / "pretrain.sh").read_text()
    arrays = text.partition("torchrun ")[0]
    arguments = [word for line in arrays.splitlines() if line.startswith("    --") for word in shlex.split(line)]
    capsys.readouterr()
    assert not moedsl(["run", str(run), "--backend", "megatron_lm", "--cluster", "lab", "--dryrun", "--json"])
    (job,) = [f for n, f in json.loads(capsys.readouterr().out)["files"].items() if "/scripts/" in n]
    wanted = json.loads(job.partition("megatron_lm.json\" <<'MOEDSL_END_OF_FILE'\n")[2].partition("\nMOEDSL")[0])
    assert wanted["folder"] == "/shared/Megatron-LM" and wanted["entry"] == "pretrain_gpt.py"
    assert sorted(wanted["arguments"]) == sorted(arguments) and "--num-experts" in arguments


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model qwen3_30b_a3b; h100 x 16; seq 4k", ""),
        ("model qwen3_vl_30b_a3b; h100 x 16; seq 4k", "has a vision tower"),
        ("model olmoe_7b; h100 x 16; seq 4k", "olmoe_layer_spec"),
        ("model qwen3_30b_a3b; h100 x 16; seq 4k; set model.tp_comm_overlap_disable_fc1 = true", "the run sets"),
        ('model qwen3_30b_a3b; h100 x 16; seq 4k; set model.cross_entropy_fusion_impl = "te"', "the run sets"),
        ("model qwen3_30b_a3b; h100 x 16; seq 4k; target bridge 0.5", "Megatron-Core 0.19.2, and Bridge 0.5.1"),
    ],
)
def test_what_no_argument_states_is_an_error(text: str, says: str) -> None:
    result = programs.compiled(text)
    found = megatron_lm.refusals(result.plans[0], result.chosen[0].problem.program.model)
    assert [says in d.message for d in found] == [True] * bool(says)
