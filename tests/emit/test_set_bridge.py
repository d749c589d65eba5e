"""What a run sets arrives in the real Bridge, field by field, or the plan says that it does not."""

import ast
import fnmatch
import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from moedsl.bridge.recipe_import import Draft, draft, of_bridge, written
from moedsl.bridge.verify.cases import Case, read
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
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
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.emit.test_recipe_bridge import oracle, recipe_job
from tests.helpers import bridge_process, rotation
from tests.helpers.paths import DATA, ROOT
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of
from tests.stdlib.test_recipes import IN_TRAINING, LATE, REFUSED, REFUSED_OTHERWISE, UNSAYABLE

pytestmark = pytest.mark.bridge
ORACLE = ROOT / "tests/oracles/set_oracle.py"
SAMPLE = 16
COUNTED = (*(field for field, _, _ in BY_FIELD), *(field for field, _ in SWITCHES.values()))
"""Fields with which another layout is chosen; tests of their laws set them."""
PROGRAMS = table_of("emit", "set bridge: programs")
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
        return f"set {self.field.path} = {written_recipe(self.value)}"


def written_recipe(value: Any) -> str:
    """A value in the language."""
    if isinstance(value, list):
        return f"[{', '.join(map(written_recipe, value))}]"
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
    "check.architecture", "check.model", "check.other_class", "check.size", "check.type", "check.unknown_field",
    "plan.set_decided",
)  # fmt: skip
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

# The real Megatron Bridge accepts how a run saves, and resolves each field to what the plan says.

TEXT = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; data "/data/text_document"; '
WEIGHTS = f'data "/data/squad"; set checkpoint.pretrained_checkpoint = "{ROOT}"; '
RUNS = {
    "optimizer": TEXT,
    "fsdp": f"{TEXT} pin sharding=fsdp",
    "local": f"""{TEXT} set ft.enable_ft_package = true
        cluster here {{ executor local; storage_write 1 GB/s; gpu_mtbf_days 1; local_disk "/raid" }}""",
    "blocking": f"{TEXT} set checkpoint.async_save = false",
    "adapter": f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; task peft; {WEIGHTS}",
}


@pytest.fixture(scope="module")
def saving_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("recipes")
    return dict(zip(RUNS, oracle([recipe_job(plan_of(text), folder, True) for text in RUNS.values()]), strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_bridge_saves_as_planned(name: str, saving_answers: dict[str, dict[str, Any]]) -> None:
    plan, answer = plan_of(RUNS[name]), saving_answers[name]
    assert "error" not in answer, answer["error"]
    said = {path: value for path, value in decided_fields(plan).items() if path.startswith("checkpoint.")}
    assert {path: answer["fields"][path] for path in said} == said
    saves = plan.checkpoints
    assert saves is not None and said["checkpoint.save_interval"] == saves.interval_steps
    assert said["checkpoint.most_recent_k"] == saves.kept
    assert said.get("checkpoint.async_save", False) == saves.async_save == (name not in ("fsdp", "blocking"))
    assert (
        (saves.local is not None) == (said.get("checkpoint.non_persistent_ckpt_type") == "local") == (name == "local")
    )


# Our recipe of each of NVIDIA's layouts against NVIDIA's own, field by field, as the real Bridge resolves both. A
# field that differs is decided by the plan, which gives its reason, or it is in `HARMLESS` with a reason. A run
# takes one recipe of each model; `make test-all` takes all.

HARMLESS: Mapping[str, str] = table_of("emit", "set bridge: harmless")
"""Fields that may differ although the plan does not decide them, as patterns, each with its reason."""

ROWS: list[dict[str, Any]] = [
    row
    for line in (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines()
    for row in [json.loads(line)]
    if row["kind"] == "perf" and row["task"] == "pretrain"
]
TAKEN = rotation.some(
    "differing recipes", rotation.one_of_each("recipe differences", ROWS, lambda row: row["model"]), 1
)


LEFT_OUT = {n.partition("-")[2] for n in (*UNSAYABLE, *REFUSED, *REFUSED_OTHERWISE, *LATE, *IN_TRAINING)}
"""Recipes whose layout has no words, or that Megatron refuses; others test them."""


def drafts(server: Server) -> dict[str, tuple[Draft, Resolved]]:
    """The program of each recipe's words, with what Bridge makes of the recipe."""
    asked = [read(f"megatron.bridge.{row['module']}:{row['function']}", row["hardware"], row["gpus"]) for row in TAKEN]
    cases, library, out = [c for c in asked if isinstance(c, Case)], load_stdlib(), dict[str, Any]()
    for c, theirs in zip(cases, server.resolve(cases), strict=True):
        made = draft(of_bridge(c, theirs, library), library) if theirs.built and theirs.refusal is None else None  # type: ignore[arg-type]
        if isinstance(made, Draft) and not made.result.failed and not made.stated.unknown:
            out[c.file] = made, theirs
    return out


def undecided(plan: Plan, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ, that the plan does not decide and that no reason covers."""
    decided = {*decided_fields(plan), *plan.set}
    differing = {k: (ours.get(k), theirs.get(k)) for k in {*ours, *theirs} if ours.get(k) != theirs.get(k)}
    return {
        k: v
        for k, v in sorted(differing.items())
        if k not in decided and not any(fnmatch.fnmatchcase(k, pattern) for pattern in HARMLESS)
    }


def test_each_field_that_differs_from_nvidias_recipe_is_decided_or_harmless(server: Server, tmp_path: Path) -> None:
    known = drafts(server)
    assert {name.partition(":")[2] for name in known} == {row["function"] for row in TAKEN} - LEFT_OUT
    answers = server.resolve([written(made, tmp_path / f"{i}") for i, (made, _) in enumerate(known.values())])
    found: dict[str, Any] = {}
    for (name, (made, theirs)), ours in zip(known.items(), answers, strict=True):
        assert ours.refusal is None and not ours.message, (name, ours.refusal, ours.message)
        found[name] = undecided(made.result.plans[0], ours.resolved, theirs.resolved)
    assert {name: fields for name, fields in found.items() if fields} == {}
