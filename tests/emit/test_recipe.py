"""A recipe's text: safe, the same each time, every decided field assigned with its reason, Bridge not imported."""

import ast
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.compiler import compile_source
from moedsl.emit.overrides import overrides, overrides_text
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields, function_name, stated
from moedsl.facts import fields, releases, values
from moedsl.facts.common import COMMON, COPIED, VARIABLES
from moedsl.facts.fields import provided
from moedsl.facts.values import normalise
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.helpers import bridge_process, programs, rotation
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.plans import PLANS, changed
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of

BUILT = ("mixed_precision.", "comm_overlap.")
"""Sections that a call of Bridge fills."""
SHARED = "moe_shared_expert_overlap"
BASE = PLANS["qwen3_30b_h100_real_data"]
ANY = st.text(min_size=0, max_size=30)


def assigned(text: str) -> dict[str, Any]:
    """The last literal value assigned to each ``cfg.`` path."""
    out: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            path = ast.unparse(node.targets[0]).removeprefix("cfg.")
            out[path] = (
                ast.literal_eval(node.value)
                if isinstance(node.value, ast.Constant | ast.List)
                else ast.unparse(node.value)
            )
    return out


@pytest.mark.parametrize("name", PLANS)
def test_every_decided_field_is_assigned(name: str) -> None:
    """A field without a line has the value that Bridge gives; `test_recipe_bridge.py` asks Bridge for all of them."""
    plan, found = PLANS[name], assigned(recipe_text(PLANS[name]))
    decided = decided_fields(plan)
    wrong = {p: v for p, v in decided.items() if p in found and values.normalise(p, found[p]) != v}
    assert wrong == {}
    given = {*COMMON[plan.task].values, *COPIED}
    given |= set() if provided(plan.hf).get(SHARED, False) else {f"model.{SHARED}"}
    silent = {p for p in decided if p not in found and p not in given and not p.startswith(BUILT)}
    assert silent <= {"dataset.seq_length"}


@pytest.mark.parametrize("name", PLANS)
def test_one_public_function_and_a_main(name: str) -> None:
    body = ast.parse(recipe_text(PLANS[name])).body
    assert [n.name for n in body if isinstance(n, ast.FunctionDef)] == [function_name(PLANS[name])]
    assert isinstance(body[-1], ast.If)
    assert ("finetune" in ast.unparse(body[-1])) == (PLANS[name].task == "sft")
    assert ("qwen3_vl_step" in ast.unparse(body[-1])) == ("vl" in PLANS[name].model)


def test_names_are_bridges_own() -> None:
    """As megatron.bridge.perf_recipes.qwen.h100.qwen3_moe names its recipe."""
    assert function_name(PLANS["qwen3_30b_h100_bf16"]) == "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"


def test_same_plan_same_bytes() -> None:
    assert recipe_text(changed(BASE)) == recipe_text(BASE)


def test_the_users_own_settings_come_last() -> None:
    text = recipe_text(BASE)
    assert 'cfg.model.moe_router_dtype = "fp32"' not in text and "train_iters = 300000" not in text
    last = max(text.rindex(f"cfg.{p} = ") for p in decided_fields(BASE) if p in assigned(text) and p not in BASE.set)
    assert last < text.index('cfg.model.moe_router_dtype = "fp64"') < text.index("cfg.train.train_iters = 7")
    assert '"NCCL_DEBUG": "WARN",' in text
    assert decided_fields(BASE)["model.moe_router_dtype"] == "fp64"
    assert decided_fields(BASE)["optimizer.main_params_dtype"] == "torch.float32"


def checkpoints(plan: Plan) -> tuple[Any, Any]:
    """Where a recipe saves and loads."""
    said = assigned(recipe_text(plan))
    return said["checkpoint.save"], said["checkpoint.load"]


def test_a_run_goes_on_from_where_it_saves() -> None:
    mock = PLANS["qwen3_30b_h100_bf16"]
    assert checkpoints(mock) == (None, None)
    own = f"nemo_experiments/{function_name(BASE)}/checkpoints"
    assert checkpoints(BASE) == (own, own)
    for plan in (BASE, mock):
        assert checkpoints(changed(plan, set={"checkpoint.save": "/shared/run"})) == ("/shared/run", "/shared/run")


def test_reasons_and_warnings_stand_beside_what_they_explain() -> None:
    text = recipe_text(PLANS["qwen3_235b_gb200_mxfp8_overlap"])
    assert "# tp: the smallest that fits\n    cfg.model.tensor_model_parallel_size = 1\n" in text
    assert "benchmarks only" in text and "benchmarks only" not in recipe_text(BASE)
    assert max(map(len, text.splitlines())) <= 120


@given(because=ANY, path=ANY, word=ANY, hf=ANY)
def test_no_text_of_the_user_becomes_code(because: str, path: str, word: str, hf: str) -> None:
    first, *rest = BASE.to_json()["decisions"]
    own = {"decisions": [{**first, "because": because}, *rest], "set": {"model.moe_router_dtype": word}}
    plan = changed(BASE, policy={"data": f"/{path}"}, hf=hf, **own)
    tree, base = ast.parse(recipe_text(plan)), ast.parse(recipe_text(BASE))
    without_torch = [[type(n) for n in t.body if not isinstance(n, ast.Import)] for t in (tree, base)]
    assert without_torch[0] == without_torch[1]
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    assert hf in strings and f"/{path}" in strings
    assert word in strings or word.startswith("torch.")


@given(ANY)
def test_a_quoted_text_is_that_text(text: str) -> None:
    assert ast.literal_eval(values.quoted(text)) == text and "\n" not in values.quoted(text)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("Et*2|(t|)*2tL", ["Ett", "t", "t", "tL"]),
        ("Ettt|(tt|)*29,m|L", ["Ettt", *["tt"] * 29, "m", "L"]),
        ("(|t)*2L", ["", "t", "tL"]),
    ],
)
def test_stages_of_a_layout(layout: str, expected: list[str]) -> None:
    assert values.stages(layout) == expected


@pytest.mark.bridge
@pytest.mark.parametrize(
    "layout", [text for p in PLANS.values() if (text := p.layout.pipeline_layout) and p.family != "nemotron_h"]
)
def test_megatron_reads_the_same_stages(layout: str) -> None:
    code = (
        "from moedsl.bridge.verify import stand_ins; stand_ins.install_engine()\n"
        "from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout as P\n"
        "letters = {'embedding': 'E', 'decoder': 't', 'mtp': 'm', 'loss': 'L'}\n"
        f"print('|'.join(''.join(letters[x.name] for x in s) for s in P.parse_str_to_list({layout!r})))"
    )
    ran = bridge_process.run("-c", code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().splitlines()[-1].split("|") == values.stages(layout)


def test_emission_imports_neither_bridge_nor_torch() -> None:
    code = (
        "import sys\n"
        "import moedsl.emit.recipe, moedsl.emit.overrides, moedsl.emit.artifact, moedsl.support.files\n"
        "assert 'jinja2' not in sys.modules\n"
        "from tests.helpers.plans import PLANS; moedsl.emit.recipe.recipe_text(PLANS['qwen3_30b_h100_bf16'])\n"
        "assert not {'torch', 'megatron', 'transformers', 'hydra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# A recipe is kept in git: short, each reason once and whole, no estimates, one line of difference for another batch.

LONGEST = 130
HEAD = re.compile(r"^ +# ([a-z_]+(?:, [a-z_]+)*): ", re.M)
"""The keywords before their reason."""
FIGURES = re.compile(r"\d (GiB|TFLOPS|tokens/s|s a step)|% step time|\bMFU\b")


def plans(example: Path) -> tuple[Plan, ...]:
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    return tuple(result.plans)


every = pytest.mark.parametrize("example", rotation.some("kept recipes", EXAMPLES, 2), ids=lambda p: p.stem)


def comments(text: str) -> str:
    """Every comment of a recipe, as one line."""
    return " ".join(line.strip()[2:] for line in text.splitlines() if line.strip().startswith("# "))


def test_the_first_example_is_as_short_as_nvidias_recipes() -> None:
    (plan,) = plans(ROOT / "examples" / "qwen3_235b_gb200_128k.moe")
    assert len(recipe_text(plan).splitlines()) <= LONGEST


@every
def test_each_decision_has_its_whole_reason_once(example: Path) -> None:
    for plan in plans(example):
        text = recipe_text(plan)
        words = {s.word for _, settings in stated(plan) for s in settings if s.word and not s.why}
        heads = [name for m in HEAD.finditer(text) for name in m[1].split(", ")]
        for d in plan.decisions:
            assert heads.count(d.name) <= 1, d.name
            if d.name in words and d.origin != "chosen":
                assert " ".join((d.because or "").split()).replace("\\", "/") in comments(text)
        assert " ..." not in text


@every
def test_estimates_stay_in_the_plan(example: Path) -> None:
    for plan in plans(example):
        assert not FIGURES.search(recipe_text(plan))


@every
def test_no_field_is_assigned_twice(example: Path) -> None:
    for plan in plans(example):
        nodes = (n for n in ast.walk(ast.parse(recipe_text(plan))) if isinstance(n, ast.Assign))
        paths = [ast.unparse(n.targets[0]) for n in nodes]
        assert len(paths) == len(set(paths))


def doubled() -> Iterator[tuple[str, str, str]]:
    """The examples that state their batch, as they are and with twice the batch."""
    for example in EXAMPLES:
        text = example.read_text(encoding="utf-8")
        twice = re.sub(r"^( *batch )(\d+)$", lambda m: f"{m[1]}{2 * int(m[2])}", text, flags=re.M)
        if twice != text:
            yield example.stem, text, twice


def changed_lines(before: Plan, after: Plan) -> list[str]:
    """The changed lines, without the interval of the checkpoints: that is a time, and a larger step is longer."""
    compared = difflib.ndiff(recipe_text(before).splitlines(), recipe_text(after).splitlines())
    return [line for line in compared if line.startswith(("- ", "+ ")) and ".checkpoint.save_interval = " not in line]


def test_another_batch_changes_one_line() -> None:
    text = (ROOT / "examples" / "qwen3_235b_gb200_128k.moe").read_text(encoding="utf-8")
    few, many = (programs.plan_of(f"{text}\nbatch {n}\n") for n in (32, 64))
    assert (few.layout, few.policy) == (many.layout, many.policy)
    size = "    cfg.train.global_batch_size = "
    assert changed_lines(few, many) == [f"- {size}32", f"+ {size}64"]


def changed_settings(before: Plan, after: Plan) -> set[str]:
    """The changed lines that are no reasons, wherever they stand: lines with one reason stand together."""
    found = ({line for line in recipe_text(p).splitlines() if line.startswith("    cfg.")} for p in (before, after))
    return {line for line in set.symmetric_difference(*found) if ".checkpoint.save_interval = " not in line}


def test_another_batch_of_an_example_changes_one_setting_where_the_layout_stays() -> None:
    same, asked = 0, rotation.some("twice the batch", [*doubled()], 1)
    for name, before, after in asked:
        pairs = zip(programs.compiled(before, name).plans, programs.compiled(after, name).plans, strict=True)
        for few, many in pairs:
            if (few.layout, few.policy, few.batch.micro_batch) == (many.layout, many.policy, many.batch.micro_batch):
                assert len(changed_settings(few, many)) == 2, name
                same += 1
    assert same > 5 or not rotation.ALL


# ---------------------------------------------------------------- what Bridge gives

GIVEN = """
import json, os, tempfile
from pathlib import Path
from moedsl.bridge.verify import configs, environments, stand_ins
from moedsl.bridge.verify.cases import devices
home = Path(tempfile.mkdtemp())
models = environments.build_hub(home, Path("stdlib/hf"), home / "none")
os.environ.update(environments.hub_environment(home))
stand_ins.answer(devices()["gb200"], 256, 0)
from megatron.bridge import AutoBridge
from megatron.bridge.recipes import common
from megatron.bridge.recipes.utils.environment_utils import COMMON_RECIPE_ENV_VARS
from transformers import AutoConfig
out = {"variables": COMMON_RECIPE_ENV_VARS}
for task in ("pretrain", "sft"):
    for model in models:
        config = getattr(common, f"_{task}_common")()
        remote = {"trust_remote_code": any(name in model for name in ("Kimi-K2", "MiMo"))}
        made = (
            AutoBridge.from_hf_config(AutoConfig.from_pretrained(model, **remote))
            if "MiMo" in model
            else AutoBridge.from_hf_pretrained(model, **remote)
        )
        config.model = made.to_megatron_provider(load_weights=False)
        out[f"{task} {model}"] = configs.flat(config)
print("ANSWER", json.dumps(out, default=str))
"""


@pytest.mark.bridge
def test_bridge_gives_what_a_recipe_leaves_out() -> None:
    ran = bridge_process.run("-c", GIVEN)
    assert ran.returncode == 0, ran.stderr[-3000:]
    answer = json.loads(next(x for x in ran.stdout.splitlines() if x.startswith("ANSWER"))[7:])
    assert answer.pop("variables") == VARIABLES
    assert len(answer) == 2 * len([*(ROOT / "stdlib/hf").glob("*--*")])
    unlisted = "dataset.skip_getting_attention_mask_from_dataset"  # an attribute that is no field
    for name, said in answer.items():
        given = {p: v for p, v in COMMON[name.split()[0]].values.items() if p != unlisted}
        plain = {p: str(normalise(p, v)).removeprefix("torch.") for p, v in given.items()}
        assert {p: v for p, v in plain.items() if str(said.get(p)) != v} == {}, name


TRAINS = """
import json
from megatron.bridge.recipes import common
out = {}
for task in ("pretrain", "sft", "peft"):
    c = getattr(common, f"_{task}_common")()
    out[task] = {
        "lr": c.optimizer.lr, "min_lr": c.optimizer.min_lr, "schedule": c.scheduler.lr_decay_style,
        "warmup_steps": c.scheduler.lr_warmup_iters, "optimizer": c.optimizer.optimizer,
        "weight_decay": c.scheduler.end_weight_decay, "steps": c.train.train_iters,
    }
print("ANSWER", json.dumps(out))
"""


@pytest.mark.bridge
def test_bridge_trains_with_what_a_plan_calls_its_default() -> None:
    ran = bridge_process.run("-c", TRAINS)
    answer = json.loads(next(x for x in ran.stdout.splitlines() if x.startswith("ANSWER"))[7:])
    for task, said in answer.items():
        trains = plan_of(f'qwen3_30b_a3b; h100 x 16; fit first; task {task}; data "/d"').training
        assert trains is not None
        assert {name: getattr(trains, name) for name in trains.defaults} == said, task


def test_what_a_run_states_is_no_default_and_is_the_recipes() -> None:
    short = 'lr 1e-4 min=1e-6 weight_decay=0.1; schedule linear warmup=7; checkpoints "/c" every=9 keep=2; wandb "w"'
    long = """
        set optimizer.lr = 1e-4; set optimizer.min_lr = 1e-6; set scheduler.start_weight_decay = 0.1
        set scheduler.end_weight_decay = 0.1; set scheduler.lr_decay_style = linear; set scheduler.lr_warmup_iters = 7
        set checkpoint.save = "/c"; set checkpoint.save_interval = 9; set checkpoint.most_recent_k = 2
        set logger.wandb_project = "w"
    """
    one, other = (plan_of(f'qwen3_30b_a3b; h100 x 16; fit first; data "/d"; {text}') for text in (short, long))
    assert one == other
    assert one.training is not None
    assert one.training.defaults == ("optimizer", "steps")
    assert (one.training.lr, one.training.checkpoints, one.training.wandb) == (1e-4, "/c", "w")


# ---------------------------------------------------------------- the commit of the model


def test_the_commit_of_the_model_is_pinned_where_it_is_known() -> None:
    plan = programs.plan_of('qwen3_30b_a3b; h100 x 16; data "/corpus/text"; fit first')
    commit = "ad44e777bcd18fa416d9da3bd8f70d33ebb85d39"
    assert plan.revision == commit
    assert f'revision="{commit}"' in recipe_text(plan)
    assert f'cfg.tokenizer.hf_tokenizer_kwargs = {{"revision": "{commit}"}}' in recipe_text(plan)
    assert "revision" not in recipe_text(changed(plan, revision=None))
    assert "revision" not in recipe_text(PLANS["qwen3_30b_h100_bf16"])


def test_the_commit_is_no_part_of_the_experiment() -> None:
    own = (ROOT / "stdlib/models/qwen3_30b_a3b.moe").read_text(encoding="utf-8").replace("qwen3_30b_a3b {", "mine {")
    run = "mine; h100 x 16; fit first"
    pinned = programs.plan_of(f"{own}\n{run}")
    free = programs.plan_of(re.sub(r'\n  revision "\w+"\n.*', "", own) + f"\n{run}")
    assert pinned.revision and free.revision is None
    assert pinned.experiment.fingerprint == free.experiment.fingerprint


# Recipes for older releases of Bridge: no field that a release lacks, its own names, and a word on what it lacks.

OLDER = tuple(r.bridge for r in releases.RELEASES[:-1])
_ASSIGNED = re.compile(r"^ {4}cfg\.([\w.]+) = ", re.MULTILINE)
_GRAPHS = "qwen3_30b_a3b; h100 x 16\nthroughput first\n"
TEXTS = table_of("emit", "recipe: texts")


def _plan(text: str, bridge: str) -> Plan:
    return plan_of(f"{text}\ntarget bridge {bridge}\n")


@pytest.mark.parametrize(("name", "bridge"), rotation.some("older recipes", [*product(TEXTS, OLDER)], 3))
def test_a_recipe_and_its_overrides_name_fields_that_the_release_has(name: str, bridge: str) -> None:
    plan = _plan(TEXTS[name], bridge)
    assigned = _ASSIGNED.findall(recipe_text(plan))
    assert len(assigned) > 20
    assert [p for p in assigned if not fields.has(p, bridge)] == []
    paths = [w.lstrip("+").partition("=")[0] for w in overrides(plan)]
    assert [p for p in paths if not fields.has(p, bridge)] == []


def test_each_release_has_its_own_name_of_what_graphs_capture() -> None:
    named = {
        b: [
            p
            for p in _ASSIGNED.findall(recipe_text(_plan(TEXTS["graphs"], b)))
            if "cuda_graph_" in p and "impl" not in p
        ]
        for b in fields.versions()
    }
    assert named == {
        "0.4.2": ["model.cuda_graph_scope"],
        "0.5.1": ["model.cuda_graph_modules"],
        "0.6.2": ["model.cuda_graph_modules"],
        "0.7.0": ["model.cuda_graph_modules"],
        "0.7.1": ["model.cuda_graph_modules"],
    }


def test_sms_are_those_of_the_dispatcher_before_all_have_one_field() -> None:
    text = {b: recipe_text(_plan(TEXTS["graphs"], b)) for b in fields.versions()}
    assert "cfg.model.moe_deepep_num_sms = 20" in text["0.5.1"] and "moe_flex_dispatcher_num_sms" not in text["0.5.1"]
    assert "cfg.model.moe_flex_dispatcher_num_sms = 20" in text["0.6.2"] and "moe_deepep" not in text["0.6.2"]


@pytest.mark.parametrize("bridge", OLDER)
def test_overrides_of_a_release_name_no_recipe_and_leave_variables_to_the_shell(bridge: str) -> None:
    text = overrides_text(_plan(TEXTS["pretrain"], bridge))
    assert "_config" not in text and "env_vars" not in text
    assert "\n# export CUDA_DEVICE_MAX_CONNECTIONS=8\n" in text


@pytest.mark.parametrize("bridge", OLDER)
def test_variables_are_set_by_the_recipe_where_the_configuration_has_none(bridge: str) -> None:
    text = recipe_text(_plan(TEXTS["pretrain"], bridge))
    assert "cfg.env_vars" not in text and "os.environ.setdefault(name, value)" in text and "\nimport os\n" in text


def test_a_wish_that_a_release_lacks_is_refused_with_the_release_that_has_it() -> None:
    run = "qwen3_30b_a3b; h100 x 8; task peft; adapter lora rank=8 experts=each\ntarget bridge 0.4\ndata mock\n"
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "plan.not_in_release" and "share_expert_adapters" in found.message
    assert "target bridge 0.5.1" in " ".join(found.help)


@pytest.mark.parametrize("bridge", OLDER)
def test_real_images_of_kimi_are_refused_where_a_release_reads_those_of_qwen_alone(bridge: str) -> None:
    run = f'kimi_k25; gb200 x 512; data "/data/images"; target bridge {bridge}'
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "plan.not_in_release" and "Qwen-VL's processor" in found.message


def test_a_field_of_another_release_is_refused_with_the_releases_that_have_it() -> None:
    run = "qwen3_30b_a3b; h100 x 16\ntarget bridge 0.5\nset tokenizer.use_tokenizer_vocab_size = true\n"
    (found,) = [d for d in compiled(run).diagnostics if d.is_error]
    assert found.id == "check.unknown_field" and "; 0.6.2, 0.7.0, 0.7.1 have it" in found.message


def test_a_model_that_a_release_cannot_build_is_refused_with_the_release_that_can() -> None:
    (found,) = [d for d in compiled("exaone_moe_236b_a23b; h100 x 64; target bridge 0.5").diagnostics if d.is_error]
    assert found.id == "check.target" and "ExaoneMoEForCausalLM" in found.message and "0.6.2" in found.help[0]


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    (found,) = [d for d in compiled("qwen3_30b_a3b; h100 x 16; target bridge 0.9").diagnostics if d.is_error]
    assert found.id == "check.target" and "0.4.2, 0.5.1, 0.6.2, 0.7.0, 0.7.1" in found.message
    source = Source("run.moe", "qwen3_30b_a3b; h100 x 16")
    (found,) = [d for d in compile_source(source, "check", target="0.9").diagnostics if d.is_error]
    assert (found.id, found.labels, found.help) == ("check.target", (), ("give `--target 0.6`",))
