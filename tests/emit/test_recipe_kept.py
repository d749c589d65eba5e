"""A recipe is kept in git: short, each reason once and whole, no estimates, one line of difference for another batch."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import stated
from moedsl.facts.common import COMMON, VARIABLES
from moedsl.facts.values import normalise
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process, programs, rotation
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.plans import PLANS, changed

LONGEST = 130
HEAD = re.compile(r"^ +# ([a-z_]+(?:, [a-z_]+)*): ", re.M)
"""The keywords before their reason."""
FIGURES = re.compile(r"\d (GiB|TFLOPS|tokens/s|s a step)|% step time|\bMFU\b")


def plans(example: Path) -> tuple[Plan, ...]:
    result = programs.example(example)
    assert not result.failed, result.diagnostics
    return tuple(result.plans)


every = pytest.mark.parametrize("example", rotation.some("kept recipes", EXAMPLES, 3), ids=lambda p: p.stem)


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
    same, asked = 0, rotation.some("twice the batch", [*doubled()], 2)
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
from moedsl.bridge.verify import configs, hub, stand_ins
from moedsl.bridge.verify.cases import devices
home = Path(tempfile.mkdtemp())
models = hub.build(home, Path("stdlib/hf"), home / "none")
os.environ.update(hub.environment(home))
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
    for name, fields in answer.items():
        given = {p: v for p, v in COMMON[name.split()[0]].values.items() if p != unlisted}
        plain = {p: str(normalise(p, v)).removeprefix("torch.") for p, v in given.items()}
        assert {p: v for p, v in plain.items() if str(fields.get(p)) != v} == {}, name


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
