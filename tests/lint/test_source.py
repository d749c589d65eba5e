"""`moedsl lint` without Megatron Bridge: what the source says is judged, what it leaves open is named."""

import textwrap
from pathlib import Path

import pytest

from moedsl.bridge.lint import rules, run
from moedsl.bridge.lint.report import Lint
from moedsl.bridge.lint.run import against_plan
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, devices
from moedsl.bridge.verify.client import Server
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.facts.fields import ELSEWHERE, lookup
from moedsl.lang import reader
from moedsl.support.diagnostics import to_json
from moedsl.support.files import write_all
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES, ROOT, example_path
from tests.helpers.programs import example, written
from tests.helpers.tables import table_of
from tests.oracles.wheel_messages import path_of

LIBRARY = load_stdlib()
BOOK, WRONG = rules.read_rules(LIBRARY)
HEAD = "from megatron.bridge.recipes.common import _pretrain_common\n\n"


def lint(folder: Path, text: str, gpu: str = "h100", world: int = 16) -> Lint:
    file = folder / "recipe.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    read = cases.read(str(file), gpu, world)
    assert isinstance(read, Case)
    return run.one(read, None, BOOK, LIBRARY)


def places(found: Lint) -> dict[str, list[tuple[str, int]]]:
    shown = [to_json(d, found.sources) for d in found.diagnostics]
    return {d["id"]: [(Path(x["file"]).name, x["line"]) for x in d["labels"]] for d in shown}


def mesh(ep: int, before: str = "", after: str = "") -> str:
    return f"""{HEAD}{before}
def my_config():
    cfg = _pretrain_common()
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.expert_tensor_parallel_size = 1
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.expert_model_parallel_size = {ep}
{after}
    return cfg
"""


def test_the_rules_for_recipes_are_well_typed() -> None:
    assert not WRONG


def test_a_literal_is_judged_on_its_line(tmp_path: Path) -> None:
    assert ("recipe.py", 9) in places(lint(tmp_path, mesh(32)))["std.mesh.expert_mesh"]
    assert "std.mesh.expert_mesh" not in places(lint(tmp_path, mesh(16)))


def test_a_helper_is_followed_and_its_caller_named(tmp_path: Path) -> None:
    helper = "def tune(c, ep):\n    m = c.model\n    m.expert_model_parallel_size = ep\n\n"
    found = places(lint(tmp_path, mesh(16, helper, "    tune(cfg, 32)")))
    assert found["std.mesh.expert_mesh"][:1] == [("recipe.py", 5)] or ("recipe.py", 5) in found["std.mesh.expert_mesh"]


def test_a_helper_in_a_file_beside_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text("def tune(cfg):\n    cfg.model.expert_model_parallel_size = 32\n")
    found = places(lint(tmp_path, mesh(16, "from common import tune\n", "    tune(cfg)")))
    assert ("common.py", 2) in found["std.mesh.expert_mesh"]


def test_a_known_branch_is_taken_and_an_unknown_one_left_open(tmp_path: Path) -> None:
    taken = mesh(16, "BIG = True\n", "    if BIG:\n        cfg.model.expert_model_parallel_size = 32")
    assert "std.mesh.expert_mesh" in places(lint(tmp_path, taken))
    left = mesh(32, "import os\n", "    if os.environ.get('X'):\n        cfg.model.expert_model_parallel_size = 16")
    found = lint(tmp_path, left)
    assert "std.mesh.expert_mesh" not in places(found)
    assert any("expert_model_parallel_size" in text for text in found.unread)


def test_keywords_of_a_section_are_read(tmp_path: Path) -> None:
    text = f"""{HEAD}
from megatron.bridge.training.comm_overlap import CommOverlapConfig

def my_config():
    cfg = _pretrain_common()
    cfg.comm_overlap = CommOverlapConfig(
        tp_comm_overlap=False,
        overlap_moe_expert_parallel_comm=True,
    )
    cfg.model.moe_shared_expert_overlap = True
    return cfg
"""
    found = places(lint(tmp_path, text))["std.recipe_overlap.no_shared_expert_overlap"]
    assert found == [("recipe.py", 12), ("recipe.py", 10)]


def test_the_flex_helper_sets_three_fields(tmp_path: Path) -> None:
    text = f"""{HEAD}
from megatron.bridge.training.flex_dispatcher_backend import apply_flex_dispatcher_backend

def my_config():
    cfg = _pretrain_common()
    cfg.model.num_moe_experts = 128
    apply_flex_dispatcher_backend(cfg.model, moe_flex_dispatcher_backend="deepep")
    return cfg
"""
    assert places(lint(tmp_path, text, "gb200"))["std.dispatch.deepep_gpu"] == [("recipe.py", 9)]
    assert "std.dispatch.deepep_gpu" not in places(lint(tmp_path, text, "h100"))


def test_an_unknown_attribute_is_named(tmp_path: Path) -> None:
    found = places(lint(tmp_path, mesh(16, after="    cfg.model.moe_a2a_overlap = True")))
    assert found["lint.unknown_field"] == [("recipe.py", 10)]


@pytest.mark.parametrize(("name", "field"), table_of("lint", "source: an unknown attribute"))
def test_an_unknown_attribute_names_the_field_that_is_meant(tmp_path: Path, name: str, field: str) -> None:
    found = lint(tmp_path, mesh(16, after=f"    cfg.{name} = 1"))
    (d,) = [d for d in found.diagnostics if d.id == "lint.unknown_field"]
    assert f"`{field}`" in d.help[0] and "moe_shared_expert_overlap" not in d.help[0]


@pytest.mark.parametrize(("name", "value", "word"), table_of("lint", "source: a value outside the annotation"))
def test_a_value_outside_the_annotation_names_the_word_that_is_meant(
    tmp_path: Path, name: str, value: str, word: str
) -> None:
    found = lint(tmp_path, mesh(16, after=f'    cfg.{name} = "{value}"'))
    (d,) = [d for d in found.diagnostics if d.id == "lint.unknown_word"]
    assert f'"{word}"' in d.message and f"did you mean `{word}`?" in d.help
    assert places(found)["lint.unknown_word"] == [("recipe.py", 10)]
    right = lint(tmp_path, mesh(16, after=f'    cfg.{name} = "{word}"'))
    assert "lint.unknown_word" not in [d.id for d in right.diagnostics]


def test_what_other_names_mean_are_fields() -> None:
    assert all(lookup(m.field) and not lookup(name) for name, m in ELSEWHERE.items())


@pytest.mark.bridge
@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_cited_line_sets_the_field(name: str) -> None:
    known = ELSEWHERE[name]
    whose, place = known.cite.split()
    file, line = place.rsplit(":", 1)
    text = path_of(whose, file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert known.field.rpartition(".")[2] in text


@pytest.mark.parametrize(("target", "gpu", "says", "help"), table_of("lint", "source: what cannot be judged", none="-"))
def test_what_cannot_be_judged_has_a_way_out(
    tmp_path: Path, target: str, gpu: str | None, says: str, help: str
) -> None:
    (tmp_path / "recipe.py").write_text(mesh(16))
    (tmp_path / "mine.moe").write_text("qwen3_30b_a3b; h100 x 16")
    (tmp_path / "many.py").write_text("def a():\n    pass\n\ndef b():\n    pass\n")
    (found,) = run.lint([str(tmp_path / target)], gpu, 16)
    (d,) = found.diagnostics
    assert says in d.message and help in d.help[0]


def test_the_gpus_of_the_stdlib_are_offered() -> None:
    assert {*devices()} == {*LIBRARY.hardware} >= {"a100_80gb", "b300", "h100"}


@pytest.mark.parametrize("gpu", devices())
def test_every_gpu_that_is_offered_can_be_judged_for(tmp_path: Path, gpu: str) -> None:
    assert lint(tmp_path, mesh(16), gpu).judged


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    found = lint(tmp_path, mesh(16))
    assert not found.through_bridge and not found.failed
    assert any("_pretrain_common" in text for text in found.unread)
    assert found.unjudged > found.judged


@pytest.mark.parametrize(
    "text",
    [
        "def my_config(:\n",
        "x = 1\n",
        "def other():\n    return 1\n\ndef more():\n    pass\n",
        f"x = {'-' * 50_000}1\n",
        f"x = {'1+' * 30_000}1\n",
    ],
    ids=["broken", "nothing", "two", "signs", "sums"],
)
def test_what_is_no_recipe_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.py").write_text(text)
    (found,) = run.lint([f"{tmp_path / 'recipe.py'}"], "h100", 16)
    assert [d.id for d in found.diagnostics] == ["verify.input"]


def test_a_name_of_two_thousand_parts(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(f"def my_config():\n    return made(a{'.b' * 2000})\n")
    (found,) = run.lint([str(tmp_path / "recipe.py")], "h100", 16, read_only=True)
    assert [d.id for d in found.diagnostics] == ["lint.source"]


# What a recipe's source states is compared with its plan, and nothing is run.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compiled run."""
    (case,) = written(example(ROOT / "examples" / "qwen3_235b_gb200_128k.moe"), tmp_path)
    return Path(case.file)


@pytest.mark.parametrize("file", rotation.some("read only", EXAMPLES, 2), ids=lambda e: e.stem)
def test_our_own_recipes_state_what_their_plans_decide(file: Path, tmp_path: Path) -> None:
    for case in written(example(file), tmp_path):
        report = against_plan(case.file)
        assert report.ok and report.verdict == "read", report
        stated, of, total, *_ = report.read[0].split()
        assert of == "of" and 20 < int(stated) < int(total) and "nothing was run" in report.read[0]


def test_an_edited_line_differs_from_the_plan(folder: Path) -> None:
    recipe = folder / "recipe.py"
    text = recipe.read_text(encoding="utf-8")
    lines = text.replace("tensor_model_parallel_size = 4", "tensor_model_parallel_size = 2")
    assert lines != text
    recipe.write_text(lines, encoding="utf-8")
    report = against_plan(str(folder))
    assert not report.ok and report.verdict == "read"
    (found,) = report.mismatches
    assert (found.field, found.planned, found.resolved) == ("model.tensor_model_parallel_size", 4, 2)


def test_without_a_plan_there_is_nothing_to_compare(folder: Path) -> None:
    (folder / "plan.json").unlink()
    report = against_plan(str(folder), "gb200", 256)
    assert (report.verdict, report.id) == ("failed", "verify.input") and "lint --read-only" in report.help


# What `moedsl compile` writes has nothing that `moedsl lint` would call an error or warn of.

EVERY = ("qwen3_235b_gb200_128k", "deepseek_v3_h100", "ep_overlap", "gpt_oss_120b", "sft", "fsdp_vlm", "vlm_gb200_3d")
NAMES = rotation.some("emitted", EVERY, 1)


@pytest.mark.bridge
def test_emitted_recipes_are_clean(server: Server, tmp_path: Path) -> None:
    wanted: list[Case] = []
    for name in NAMES:
        source, _ = reader.read(str(example_path(name)))
        assert source is not None
        result = compile_source(source)
        assert result.plans, name
        write_all(tmp_path / name, files_of(result.plans[0], source, result.library))
        read = cases.read(str(tmp_path / name))
        assert isinstance(read, Case)
        wanted.append(read)
    library = load_stdlib()
    book, _ = rules.read_rules(library)
    found = [run.one(c, r, book, library) for c, r in zip(wanted, server.resolve(wanted), strict=True)]
    assert all(x.judged > 60 for x in found)
    said = {
        x.file: [(d.id, dict(d.values)) for d in (*x.diagnostics, *x.inherited) if d.severity != "note"] for x in found
    }
    assert said == {str(tmp_path / name): [] for name in NAMES}
