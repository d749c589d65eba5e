"""What a run sets arrives in the real Bridge, field by field, or the plan says that it does not."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.emit.fields import SET
from moedsl.emit.overrides import library_recipe, overrides
from moedsl.emit.recipe import function_name, recipe_text
from moedsl.emit.set_fields import judged
from moedsl.emit.settings import decided_fields
from moedsl.emit.settings import known_values as values
from moedsl.facts import facts, fields
from moedsl.facts.common import BY_FIELD
from moedsl.facts.families import CHOICES, dataset_class, provider
from moedsl.facts.fields import Field
from moedsl.facts.symbols import SWITCHES
from moedsl.support.source import Source
from tests.emit.test_recipe_bridge import oracle, recipe_job
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled

pytestmark = pytest.mark.bridge
ORACLE = ROOT / "tests/oracles/set_oracle.py"
SAMPLE = 16
COUNTED = (*(field for field, _, _ in BY_FIELD), *(field for field, _ in SWITCHES.values()))
"""Fields with which another layout is chosen; tests of their laws set them."""
PROGRAMS = {
    "text": "qwen3_30b_a3b; h100 x 16; pin pp=2 vpp=1",
    "sft": 'qwen3_30b_a3b; h100 x 16; task sft; data "/data/x"; set checkpoint.pretrained_checkpoint = "/c"',
    "images": "qwen3_vl_30b_a3b; h100 x 16",
    "energon": 'qwen3_vl_30b_a3b; h100 x 16; data "/data/x"; set checkpoint.pretrained_checkpoint = "/c"',
    "hybrid": "nemotron_3_nano; h100 x 16",
    "latent": 'moonlight_16b; h100 x 16; data "/data/x"',
}
"""A program of each class of model and of dataset."""


@frozen
class SetCase:
    """A field and a value of it, in a program that has the field."""

    program: str
    field: Field
    value: Any

    @property
    def id(self) -> str:
        return f"{self.program}-{self.line}"

    @property
    def line(self) -> str:
        return f"set {self.field.path} = {written(self.value)}"


def written(value: Any) -> str:
    """A value in the language."""
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else json.dumps(value)


@cache
def classes(program: str) -> Mapping[str, str]:
    p = compile_source(Source("run.moe", PROGRAMS[program]), "check").programs[0]
    return {"model": provider(p.model), "dataset": dataset_class(p.model.vision is not None, p.task, p.data == "mock")}


def program_of(field: Field) -> str:
    """The first program whose model or dataset has the field."""
    section = field.path.partition(".")[0]
    of = field if section == field.path.rpartition(".")[0] else fields.lookup(field.path.rpartition(".")[0])
    assert of is not None
    return next((n for n in PROGRAMS if not of.classes or classes(n).get(section) in of.classes), "")


def every() -> Iterator[SetCase]:
    """Each field with its own default, with each word that its annotation lists, and with other values."""
    for field in fields.fields().values():
        program = program_of(field)
        if not program or field.path in (*CHOICES, *COUNTED):
            continue
        plain = field.default is None or isinstance(field.default, bool | int | float | str | list)
        plain = plain and field.default != math.inf
        own = [field.default] if plain and field.default not in ("required", "factory") else []
        if fields.is_writable(field.type) or own == [None]:
            listed = [v for v in fields.choices(field.type) if not any(v is o or v == o for o in own)]
            others = [] if listed else _others(field)
            yield from (SetCase(program, field, v) for v in [*own, *listed, *others])


def _others(field: Field) -> list[Any]:
    """Values of the field's type that are not its default: a flag turned, a number that is 0, small or large."""
    if isinstance(field.default, bool):
        return [not field.default]
    numbers = {"int": [0, 1, 8, 1000], "float": [0.0, 0.5, 2.0]}
    kind = next((k for k in numbers if k in fields.alternatives(field.type)), "")
    return [v for v in numbers.get(kind, ()) if v != field.default]


CASES = list(every())
DRAWN = rotation.some("set", CASES, SAMPLE)


@cache
def base_of(program: str) -> Result:
    """The program without a `set`."""
    return compiled(PROGRAMS[program])


def lines(text: str) -> list[str]:
    """The imports of a recipe, and what it assigns for the run file."""
    own = [p for p in text.split("\n\n    # ") if p.startswith((SET, "Sections that Bridge leaves out"))]
    imports = text[text.index('"""', 3) + 3 : text.index("\ndef ")]
    assigned = [line.strip() for part in own for line in part.splitlines() if line.startswith("    cfg.")]
    return [imports, *built(text), *assigned]


def built(text: str) -> Iterator[str]:
    """The data set of a recipe, which its plan builds whole: a `set` of one of its arguments is in this call."""
    (recipe,) = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
    for n in recipe.body:
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "cfg.dataset":
            yield ast.unparse(n)


@frozen
class Answer:
    """The errors and warnings on a case, and Bridge's word where there is no error."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    bridge: Mapping[str, Any]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Answer]:
    """What moedsl and Bridge say of each drawn case; the layout of a program is chosen once."""
    library, found = load_stdlib(), dict[str, Answer]()
    for name in PROGRAMS:
        wanted: list[tuple[SetCase, Answer, list[str]]] = []
        for case in (c for c in DRAWN if c.program == name):
            errors, warned, text = said(case, library)
            wanted.append((case, Answer(errors, warned, {}), lines(text) if text else []))
        asked = [{"lines": text, "fields": [c.field.path]} for c, a, text in wanted if not a.errors]
        told = iter(ask(name, asked, tmp_path_factory.mktemp(name)))
        found |= {c.id: a if a.errors else evolve(a, bridge=next(told)) for c, a, _ in wanted}
    return found


def said(case: SetCase, library: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The errors and warnings on a case, and its recipe if there are none."""
    text = f"{PROGRAMS[case.program]}\n{case.line}"
    result = compile_source(Source("run.moe", text), "check")
    errors = tuple(d.id for d in result.diagnostics if d.is_error)
    if errors:
        return errors, (), ""
    base, p = base_of(case.program), result.programs[0]
    chosen, plan = base.chosen[0], evolve(base.plans[0], set=dict(p.sets))
    found = [*judged(p, plan, library, chosen.environment(chosen.solution.rows[0].codes))]
    errors = tuple(d.id for d in found if d.is_error)
    return errors, tuple(d.id for d in found if not d.is_error), recipe_text(plan) if not errors else ""


def ask(name: str, cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    plan = base_of(name).plans[0]
    (folder / "recipe.py").write_text(recipe_text(plan))
    job = {
        "recipe": str(folder / "recipe.py"),
        "function": function_name(plan),
        "gpu": plan.hardware,
        "world": plan.gpus,
    }
    ran = bridge_process.run(str(ORACLE), text=json.dumps(job | {"cases": cases}))
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout)


IDS = (
    "check.architecture",
    "check.model",
    "check.other_class",
    "check.size",
    "check.type",
    "check.unknown_field",
    "plan.set_decided",
)
"""The errors that these values may meet; laws are others."""


@pytest.mark.parametrize("case", DRAWN, ids=lambda c: c.id)
def test_a_set_arrives_or_is_reported(case: SetCase, answers: Mapping[str, Answer]) -> None:
    found, path = answers[case.id], case.field.path
    if found.errors:
        assert all(e in IDS or e.startswith("std.recipe_") for e in found.errors), found.errors
        assert "check.type" not in found.errors or not fields.is_writable(case.field.type)
        return
    assert "failed" not in found.bridge and "refused" not in found.bridge, found.bridge
    got, kind = found.bridge["resolved"][path]
    has = case.value.removeprefix("torch.") if isinstance(case.value, str) else case.value
    words = fields.words_of(case.field.type)
    if case.value is None or found.warnings or path in COMPUTED or (case.value == 0 and path in FACTS):
        return
    assert got == has, (got, kind)
    assert not words or case.field.default == case.value or kind == words.type, kind


COMPUTED = {
    "dataset.mock": "true without data",
    "dataset.split": "mock data is split into equal parts",
    "tokenizer.trust_remote_code": "the recipe writes it into hf_tokenizer_kwargs, from which Bridge computes it",
    "model.no_rope_freq": "one number becomes a list for the layers",
}
"""Values that Bridge replaces without a warning of the plan, with the reason."""
FACTS = {*facts.FIELDS.values()}
"""0 is the fact of a model without such layers, which is no line of its recipe: Bridge keeps a default that it does not
read."""


ABSENT = """qwen3_30b_a3b; h100 x 16; task sft; data "/data/x"
set checkpoint.pretrained_checkpoint = "/tmp"
set ft.enable_ft_package = true
set ft.simulated_fault_type = rank_hung
set straggler.log_straggler = true
set nvrx_straggler.enabled = true
set inprocess_restart.enabled = true
set inprocess_restart.granularity = rank
set tensor_inspect.log_dir = "/x"
set dataset.enable_offline_packing = true
set dataset.offline_packing_specs.packed_sequence_size = 4096
set model.attention_backend = flash
set train.exit_signal = SIGUSR1
set ddp.megatron_fsdp_grad_comm_dtype = "torch.bfloat16"
"""


def test_sections_that_bridge_leaves_out_arrive_through_the_recipe_and_through_overrides(tmp_path: Path) -> None:
    plan = compiled(ABSENT).plans[0]
    decided = decided_fields(plan)
    assert {*plan.set} <= {*decided}
    library = {"library": library_recipe(plan), "overrides": overrides(plan), "gpu": plan.hardware, "world": plan.gpus}
    for told in oracle([recipe_job(plan, tmp_path, True), library | {"fields": [*decided]}]):
        assert "error" not in told, told
        assert told["fields"] == decided


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_known_of_a_recipe_is_what_bridge_builds(name: str, tmp_path: Path) -> None:
    """The values that judge a `set`: Bridge's defaults, the template's and the plan's."""
    known = values(base_of(name).plans[0], base_of(name).programs[0].model)
    absent = {s for s in fields.absent() if known.get(s) is None}
    asked = [f.path for f in fields.fields().values() if f.path in known and f.path.rpartition(".")[0] not in absent]
    asked = [path for path in asked if path not in UNREAD and fields.is_writable(fields.fields()[path].type)]
    (told,) = ask(name, [{"lines": [], "fields": asked}], tmp_path)
    assert "built" in told, told
    built = told["built"]
    wrong = {p: (known[p], built[p]) for p in asked if built[p][0] != known[p]}
    assert not wrong and len(asked) > 500


UNREAD = ("checkpoint.async_strategy",)
"""Fields whose default depends on the packages of the machine."""
