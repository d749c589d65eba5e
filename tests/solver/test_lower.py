"""What is fixed becomes values, what is open a domain, and each says who gave it."""

import math
from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
from attrs import evolve
from hypothesis import given

from moedsl.compiler import compile_source
from moedsl.facts import axes
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule, Rules
from moedsl.solver.conflicts import members, without
from moedsl.solver.laws import Compiled, obeyed
from moedsl.solver.problem import Problem, divisors, lower
from moedsl.solver.solve import make_cost, solve
from moedsl.solver.space import mesh_table
from moedsl.support.source import Source
from tests.helpers.small_programs import WHY, program


def problem(text: str, gpus: int = 64) -> Problem:
    result = compile_source(Source("run.moe", text), "check")
    assert not result.failed, result.diagnostics
    return lower(result.programs[0], gpus)


def domain(p: Problem, name: str) -> list[object]:
    return [axes.BY_NAME[name].decode(int(v)) for v in p.domains[name]]


@given(st.integers(1, 20_000))
def test_divisors(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("name", ["tp", "cp", "pp", "ep", "etp"])
def test_an_open_mesh_axis_may_be_any_divisor(name: str) -> None:
    p = problem("qwen3_30b_a3b; h100 x 48", 48)
    assert domain(p, name) == divisors(48) and p.origins[name] is None


def test_every_axis_has_a_domain() -> None:
    for phase in axes.PHASES:
        p = problem(f"deepseek_v3; gb200 x 64; {phase} first")
        assert all(len(p.domains[a.name]) for a in axes.AXES)
        assert p.domains.keys() == p.origins.keys() == {a.name for a in axes.AXES}


def test_a_pin_is_the_domain() -> None:
    p = problem(
        "qwen3_30b_a3b; h100 x 64; pin tp=4 recompute=[moe, layernorm] ep_overlap=on cuda_graph=none; precision fp8_current"
    )
    assert domain(p, "tp") == [4] and domain(p, "recompute") == [["layernorm", "moe"]]
    assert (
        domain(p, "ep_overlap") == [True]
        and domain(p, "cuda_graph") == [[]]
        and domain(p, "precision") == ["fp8_current"]
    )
    assert all(isinstance(p.origins[n], Pin) for n in ("tp", "recompute", "ep_overlap", "cuda_graph", "precision"))


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("h100 x 64; precision fp8", ["fp8_blockwise"]), ("gb200 x 64; precision fp8", ["mxfp8"]), ("gb200 x 64", ["bf16"]),
        ("h100 x 64; precision auto; throughput first", ["bf16", "fp8_blockwise"]), ("gb200 x 64; precision auto; throughput first", ["bf16", "mxfp8"]),
        ("gb200 x 64; precision auto; fit first", ["bf16"]),
    ],
)  # fmt: skip
def test_precision(text: str, precision: list[str]) -> None:
    assert domain(problem("qwen3_30b_a3b; " + text), "precision") == precision


def test_the_users_rules_come_first() -> None:
    why = 'because "a test" cite ours "here"'
    members = (
        "candidates tp = [8, 2]",
        "default seq = 8k",
        "candidates cp = [1] when phase == scale",
        "default moments = bf16",
    )
    rules = "\n".join(f"{m} {why}" for m in members)
    p = problem(f"qwen3_30b_a3b; h100 x 64\nrules mine {{ {rules} }}")
    assert domain(p, "tp") == [8, 2] and domain(p, "cp") == divisors(64) and domain(p, "moments") == ["bf16"]
    assert p.values["seq"] == 8192
    origin = p.origins["tp"]
    assert isinstance(origin, Rule) and origin.id == "run.mine.tp"


def test_what_is_said_beats_a_default() -> None:
    p = problem("qwen3_30b_a3b; h100 x 64; seq 16k; batch 96")
    assert (p.values["seq"], p.global_batch, p.defaults) == (
        16384,
        96,
        {"seq": None, "global_batch": None, "pack": None},
    )


@pytest.mark.parametrize("gpus", [1, 3, 8, 12, 100, 256, 1000, 4096])
def test_the_default_batch_can_be_split(gpus: int) -> None:
    """At least about 4 Mi tokens, and a whole number of sequences for some data parallelism."""
    p = problem(f"qwen3_30b_a3b; h100 x {gpus}", gpus)
    assert p.global_batch * p.values["seq"] >= 4 * 2**20
    assert math.gcd(p.global_batch, gpus) > 1 or gpus == 1


@pytest.mark.parametrize(("gpus", "seq", "batch"), [
    (1, "4k", 32), (8, "4k", 32), (24, "4k", 48), (64, "4k", 64), (512, "4k", 512), (16, "256k", 16), (12, "256k", 24),
])  # fmt: skip
def test_the_default_batch_of_fine_tuning_is_that_of_few_samples(gpus: int, seq: str, batch: int) -> None:
    """The 32 sequences of NVIDIA's recipes, divided by any data parallelism, and at most the batch of pretraining."""
    p = problem(f"qwen3_30b_a3b; h100 x {gpus}; seq {seq}; task peft", gpus)
    assert p.global_batch == batch


def test_overrides_replace_what_is_fixed() -> None:
    result = compile_source(Source("run.moe", "qwen3_30b_a3b; h100 x 64; seq 16k"), "check")
    assert lower(result.programs[0], 64, {"seq": 4096}).values["seq"] == 4096


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda a: a.name)
def test_codes_go_there_and_back(axis: axes.Axis) -> None:
    codes = (
        range(1, 9)
        if axis.kind == "int"
        else range({"flag": 2, "enum": len(axis.words), "set": 2 ** len(axis.words)}[axis.kind])
    )
    assert [axis.encode(axis.decode(c)) for c in codes] == list(codes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("compiles_anew")
def test_cost_models_are_made_while_other_threads_make_some(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compared:
        def __eq__(self, other: object) -> bool:
            recent.append(made)  # as another thread can while two models are compared
            return False

        __hash__ = None  # type: ignore[assignment]

    made = make_cost(problem("qwen3_30b_a3b; h100 x 16; fit first", 16))
    recent = deque[Any]([Compared(), made], maxlen=8)
    monkeypatch.setattr("moedsl.solver.solve._RECENT", recent)
    assert make_cost(problem("qwen3_30b_a3b; h100 x 16; fit first", 16)) is made


# What is kept of the laws of a run is that of the problem at hand.

RULES = f"""
rules names {{ let many = gpus > 100 }}
rules on_many when many {{ require few: tp == 1 {WHY} }}
rules on_few when gpus <= 100 {{ require on_one: pp == 1 {WHY} }}
"""


def own(c: Compiled) -> set[str]:
    return {law.rule.name for law in c.laws if not law.rule.is_std}


def test_a_condition_is_asked_again_where_its_facts_differ() -> None:
    p = program(f"qwen3_30b_a3b; h100 x 64{RULES}")
    for _ in range(2):
        assert own(solve(p, 64, keep=0).compiled) == {"on_one"}
        assert own(solve(p, 128, keep=0).compiled) == {"few"}


@pytest.mark.parametrize("name", ["few", "on_one"])
def test_without_a_law_the_others_say_the_same(name: str) -> None:
    """They are those of the run, which are compiled already."""
    p = program(f"qwen3_30b_a3b; h100 x 64{RULES}")
    for gpus in (64, 128):
        whole = solve(p, gpus, keep=0).compiled
        left = without(p, [m for m in members(whole) if m.key.endswith(name)])
        c = solve(left, gpus, keep=0).compiled
        assert own(c) == own(whole) - {name}
        assert all(law in whole.laws for law in c.laws if law.rule.name != name)
        fresh = solve(evolve(left, rules=Rules(tuple(left.rules))), gpus, keep=0).compiled
        table = mesh_table(c).without_axes().with_columns(**mesh_table(whole).axes)
        mine, its = ([w for w in x.laws if not w.priced and w.needs <= table.keys()] for x in (c, fresh))
        assert obeyed(mine, table).tolist() == obeyed(its, table).tolist()
