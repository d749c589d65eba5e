"""The environment rules against what NVIDIA's own performance recipes put into cfg.env_vars."""

import importlib.util
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnose.scan import symptoms
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.planner.layout import Layout
from moedsl.rules import collect
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import NEEDS
from moedsl.solver.fits import violations
from moedsl.support import resources
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers import bridge_process
from tests.helpers.layouts import DEFAULTS, checked, run_text, variant
from tests.helpers.paths import DATA, ROOT
from tests.helpers.programs import compiled, plan_of
from tests.helpers.tables import table_of
from tests.oracles.ask_overlap import grid

TRUTH = json.loads((DATA / "env_truth.json").read_text())
NAMES = sorted({name for group in TRUTH for name in group["env"]})
BY_HAND = {
    "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": {
        "nemotron_3_5_lightning_pretrain_16gpu_h100_bf16_config",
        "nemotron_3_super_pretrain_64gpu_h100_bf16_config",
    }
}
"""Recipes that differ from every recipe like them."""
GRAPHS = {"TORCH_NCCL_AVOID_RECORD_STREAMS", "PYTORCH_CUDA_ALLOC_CONF", "NVTE_CUTEDSL_FUSED_GROUPED_MLP"}
"""Recipes disagree among themselves about these: the same graph and precision, another value."""
MARGINS = {"NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN"}


@cache
def members() -> tuple[ast.Member, ...]:
    path = next(p for p in resources.stdlib_files() if Path(p).name == "environment.moe")
    module, found = parse(Source("environment.moe", Path(path).read_text()))
    assert module is not None and not found
    return tuple(m for item in module.items if isinstance(item, ast.RulesDecl) for m in item.members)


def evaluate_env(values: Mapping[str, Any]) -> dict[str, Any]:
    """Each variable's first entry whose condition holds."""
    known = {
        "etp": 1,
        "pads_tokens": False,
        **values,
        **{n: frozenset(values[n]) for n in ("cuda_graph", "offload_modules")},
    }
    env: dict[str, Any] = {}
    for member in members():
        if isinstance(member, ast.Let):
            known[member.name.id] = evaluate(member.expr, known)
        elif isinstance(member, ast.Env) and member.name.id not in env and holds(member.when, known):
            env[member.name.id] = evaluate(member.expr, known)
    return env


def disagreements(name: str) -> dict[str, tuple[Any, Any]]:
    """Recipe -> (our value, NVIDIA's) where they differ, recipes set by hand aside."""
    out: dict[str, tuple[Any, Any]] = {}
    for group in TRUTH:
        ours, theirs = evaluate_env(group["facts"]).get(name), group["env"].get(name)
        if str(ours) != str(theirs):
            out |= {r: (ours, theirs) for r in group["recipes"] if r not in BY_HAND.get(name, ())}
    return out


@pytest.mark.parametrize("name", sorted({*NAMES} - GRAPHS - MARGINS))
def test_every_recipe_agrees(name: str) -> None:
    assert disagreements(name) == {}


@pytest.mark.parametrize(
    ("name", "most"), [*((n, 3) for n in sorted(MARGINS)), ("TORCH_NCCL_AVOID_RECORD_STREAMS", 12)]
)
def test_nearly_every_recipe_agrees(name: str, most: int) -> None:
    assert len(disagreements(name)) <= most


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "NVTE_CUTEDSL_FUSED_GROUPED_MLP"])
def test_whole_iteration_graphs_bring_their_own(name: str) -> None:
    """Judged on recipes with such a graph alone: elsewhere recipes turn the same paths on for other reasons."""
    graphed = [g for g in TRUTH if g["facts"]["cuda_graph"]]
    wrong = [r for g in graphed if str(evaluate_env(g["facts"])[name]) != str(g["env"].get(name)) for r in g["recipes"]]
    assert len(graphed) > 20 and len(wrong) <= 1


def test_every_exception_is_one() -> None:
    for name, recipes in BY_HAND.items():
        for group in TRUTH:
            for recipe in recipes.intersection(group["recipes"]):
                assert str(evaluate_env(group["facts"])[name]) != str(group["env"][name]), recipe


def test_every_variable_of_the_rules_is_one_of_nvidias() -> None:
    assert {m.name.id for m in members() if isinstance(m, ast.Env)} == set(NAMES)


def test_fsdp_never_gets_one_connection() -> None:
    """Bridge refuses CUDA_DEVICE_MAX_CONNECTIONS=1 with Megatron FSDP (training/config.py:1102)."""
    facts = {**TRUTH[0]["facts"], "capability": 9.0, "tp": 2, "sharding": "fsdp"}
    values = {evaluate_env({**facts, "dispatcher": d})["CUDA_DEVICE_MAX_CONNECTIONS"] for d in ("alltoall", "deepep")}
    assert values == {8, 32}


# Laws on the GPU that no GPU of the stdlib breaks, on machines that a run file declares.


def broken_at(capability: str, **layout: object) -> list[str]:
    """The laws that a layout breaks on an H100 of another compute capability."""
    text = (stdlib_dir() / "hardware" / "h100.moe").read_text(encoding="utf-8")
    text = text.replace("hardware h100 {", "hardware variant {")
    text, n = re.subn(r"\bcapability 9\.0", f"capability {capability}", text)
    assert n == 1
    words = {**DEFAULTS, "model": "qwen3_30b_a3b", "hardware": "variant", "gpus": 16, "ep": 8, **layout}
    result = checked(text + run_text(words))
    assert not result.failed, [d.message for d in result.diagnostics]
    return [r.id for r in violations(result.programs[0], 16)]


@pytest.mark.parametrize(
    ("capability", "layout", "law"), table_of("stdlib", "environment: what a layout asks of its GPU", none="-")
)
def test_the_gpu_has_what_a_layout_asks_for(capability: str, layout: dict[str, object], law: str | None) -> None:
    assert broken_at(capability, **layout) == ([law] if law else [])


# Every rule of the stdlib says why and on whose word, and a cited line of NVIDIA's code is there.

RULES: tuple[Rule, ...] = collect.collect(load_stdlib().rules)[0]
_ROOTS = {"core": "megatron/core", "bridge": "megatron/bridge", "te": "transformer_engine"}


def lines_cited() -> list[tuple[str, str, str, int]]:
    """(rule, whose, file, line) of each cite that names a line."""
    found = [(r.id, re.fullmatch(r"(core|bridge|te) ([\w/]+\.py):(\d+)\b.*", c)) for r in RULES for c in r.cites]
    return [(rule, m[1], m[2], int(m[3])) for rule, m in found if m]


def test_every_rule_says_why() -> None:
    assert [r.id for r in RULES if not r.because] == []
    own = ("let", "default")  # a default may be our own choice
    assert [r.id for r in RULES if not r.cites and r.kind not in own] == []


def test_most_laws_cite_a_line() -> None:
    """A law of an older release cites a file of that release, by its version."""
    older = {r.id for r in RULES if all(re.match(r"(core|bridge) \d+\.\d+\.\d+ ", c) for c in r.cites)}
    cited = {rule for rule, *_ in lines_cited()} | older
    assert {r.id for r in RULES if r.kind == "require"} - cited == {*NEEDS}


@pytest.mark.bridge
def test_every_cited_line_exists() -> None:
    spec = importlib.util.find_spec("attrs")
    assert spec is not None and spec.origin is not None
    packages, texts = Path(spec.origin).parents[1], dict[Path, list[str]]()
    missing: list[tuple[str, str, int]] = []
    for rule, whose, file, line in lines_cited():
        path = packages / _ROOTS[whose] / file
        if path not in texts:
            texts[path] = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not "".join(texts[path][line - 1 : line]).strip():
            missing.append((rule, file, line))
    assert missing == []


# A pinned pipeline layout in the engine: the solver judges it by the law that the scalar evaluator judges it by.

RUN = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 256; fit first; pin pp=2 {vpp} tp=1 ep=8 cp=1\n"


def solved(layout: str, vpp: str = "") -> tuple[list[str], list[Layout]]:
    """Ids of the errors, and the layouts of the plans."""
    text = RUN.format(vpp=vpp) + f'pin pipeline_layout="{layout}"\n'
    result = compile_source(Source("run.moe", text))
    return [d.id for d in result.diagnostics if d.is_error], [p.layout for p in result.plans]


def test_a_pinned_layout_is_the_plans() -> None:
    errors, (layout,) = solved("Et*25|t*23L")
    assert (errors, layout.pipeline_layout, layout.vpp) == ([], "Et*25|t*23L", 1)


def test_a_pinned_layout_with_virtual_stages() -> None:
    errors, (layout,) = solved("Et*12|t*12|t*12|t*12L", "vpp=2")
    assert (errors, layout.vpp) == ([], 2)


@pytest.mark.parametrize(("layout", "vpp", "error"), table_of("stdlib", "a wrong layout is refused"))
def test_a_wrong_layout_is_refused(layout: str, vpp: str, error: str) -> None:
    errors, plans = solved(layout, vpp)
    assert set(errors) == {error}
    assert not plans


# The laws of overlap on versions and graphs: they refuse exactly what Bridge's own checks refuse.

OF_CORE = {"std.delay_wgrad.te_graph"}
"""Megatron-Core asks it when the model is made, not Bridge's set-up of the overlap."""
BASE = {"model": "moonlight_16b", "hardware": "h100", "gpus": 8, "ep": 8, "ep_overlap": True}


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """Bridge's word on the grid, from one process."""
    done = bridge_process.run(str(ROOT / "tests/oracles/ask_overlap.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def laws_broken(q: dict[str, Any]) -> set[str]:
    """What the layout of a question breaks here."""
    layout = {**BASE, "delay_wgrad": q["wgrad"], "cuda_graph": q["graphs"]}
    text = variant(layout, {"shared_expert_hidden": 0}) if not q["shared"] else run_text(layout)
    stands = f"target torch {q['torch']}\ntarget transformer_engine {q['te']}\n"
    (program,) = compile_source(Source("run.moe", text + stands), "check").programs
    return {r.id for r in violations(program, 8)} - OF_CORE


@pytest.mark.bridge
def test_the_laws_and_bridge_agree_on_every_question(answers: list[dict[str, Any]]) -> None:
    assert len(answers) == len(grid())
    wrong = [(q, laws_broken(q)) for q in answers if bool(laws_broken(q)) != bool(q["refused"])]
    assert not wrong
    assert {bool(q["refused"]) for q in answers} == {True, False}


@pytest.mark.bridge
def test_every_refusal_is_a_known_symptom(answers: list[dict[str, Any]]) -> None:
    known = [s for s in symptoms(load_stdlib()) if s.rule.id.startswith("std.")]
    for q in answers:
        assert q["refused"] is None or any(s.pattern.search(q["refused"]) for s in known), q["refused"]


OVERLAPPED = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first; pin ep=16 ep_overlap=on delay_wgrad=on "


def test_a_plan_lists_the_versions_that_it_needs() -> None:
    needs = {n.rule: (n.product, n.at_least) for n in plan_of(OVERLAPPED + "cuda_graph=[attn]").needs}
    assert needs["std.ep_overlap.torch"] == ("torch", "2.6.0")
    assert needs["std.delay_wgrad.te_wgrad_in_graph"] == ("transformer_engine", "2.12.0")
    assert plan_of("qwen3_30b_a3b; h100 x 16; seq 4k; fit first").needs == ()


def test_a_graph_without_captured_weight_gradients_needs_less() -> None:
    rules = {n.rule for n in plan_of(OVERLAPPED + "cuda_graph=[moe_router]").needs}
    assert "std.delay_wgrad.te_graph" in rules and "std.delay_wgrad.te_wgrad_in_graph" not in rules


def test_an_older_container_keeps_the_solver_from_overlap() -> None:
    run = "qwen3_30b_a3b; h100 x 16; seq 4k; throughput first; pin ep=16 dispatcher=alltoall; "
    assert plan_of(run).policy.ep_overlap is True
    old = plan_of(run + "target torch 2.5.1")
    assert old.policy.ep_overlap is False and old.target.to_json() == {"bridge": "0.6.2", "torch": "2.5.1"}


def test_fusion_comes_with_captured_weight_gradients() -> None:
    assert plan_of(OVERLAPPED + "cuda_graph=[attn]").derived["gradient_accumulation_fusion"] is True
    assert "gradient_accumulation_fusion" not in plan_of(OVERLAPPED + "cuda_graph=none").derived


@pytest.mark.parametrize("text", ["target cuda 12", "target torch x", "target torch 2.6.0.1", "target bridge 0.1"])
def test_targets_that_are_none(text: str) -> None:
    (found,) = [d for d in compiled(f"qwen3_30b_a3b; h100 x 16\n{text}").diagnostics if d.is_error]
    assert found.id == "check.target"


def test_a_version_compares_by_its_numbers() -> None:
    for text in ('require version("2.10.0") > version("2.9.1")', 'require version("2.6") == version("2.6.0")'):
        assert not compiled(f"qwen3_30b_a3b; h100 x 16; seq 4k\n{text}").failed
    (found,) = compiled('qwen3_30b_a3b; h100 x 16\nrequire te_version > version("two")').diagnostics
    assert found.id == "check.type"
