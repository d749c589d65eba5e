"""What changes the experiment: every word and field has one effect, and the solver never changes an experiment unsaid."""

from itertools import product
from pathlib import Path

import pytest

from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.emit.settings import decided_fields, sections
from moedsl.facts import fields
from moedsl.planner import experiment
from moedsl.planner.plan import Plan
from moedsl.rules import collect, rule
from moedsl.rules.rule import BENCHMARK, EXECUTION, EXPERIMENT, GROUPS, UNKNOWN, WORDS, Rule
from moedsl.support.source import Source
from tests.helpers import programs, rotation
from tests.helpers.paths import EXAMPLES
from tests.helpers.plans import PLANS
from tests.helpers.tables import table_of

ALL: tuple[Rule, ...] = collect.collect(load_stdlib().rules)[0]
EFFECTS = rule.of_rules(ALL)
PRECISIONS = ("", "precision bf16", "precision fp8", "precision auto")
DECLARED = [r.name for r in ALL if r.kind == "effect"]


def run(text: str, stop: str = "plan") -> Result:
    result = compile_source(Source("run.moe", text), stop)
    assert not result.failed, [d.message for d in result.diagnostics]
    return result


# ---------------------------------------------------------------- every name has one


@pytest.mark.parametrize("word", WORDS)
def test_every_word_has_an_effect(word: str) -> None:
    assert EFFECTS.word(word) != UNKNOWN


@pytest.mark.parametrize("section", sorted(rule.sections()))
def test_every_section_and_its_fields_have_an_effect(section: str) -> None:
    assert section in EFFECTS.rules
    without = [p for p in fields.fields() if p.startswith(f"{section}.") and EFFECTS.field(p) == UNKNOWN]
    assert without == []


@pytest.mark.parametrize("name", PLANS)
def test_every_decided_field_has_an_effect(name: str) -> None:
    assert [p for p in decided_fields(PLANS[name]) if EFFECTS.field(p) == UNKNOWN] == []


def test_no_name_has_two_effects_and_each_means_something() -> None:
    assert len(DECLARED) == len(set(DECLARED))
    assert [n for n in DECLARED if not rule.is_known(n)] == []


@pytest.mark.parametrize("name", PLANS)
def test_a_word_of_execution_decides_no_field_of_the_experiment(name: str) -> None:
    """Else the solver's choice of that word would change what is learned."""
    plan = PLANS[name]
    words = experiment.settings(plan.layout, plan.batch, plan.policy)
    said = [s for _, group in sections(plan) for s in group if s.word in words]
    wrong = [
        (s.word, s.path)
        for s in said
        if EFFECTS.word(str(s.word), words[s.word]) == EXECUTION and EFFECTS.field(s.path) != EXECUTION
    ]
    assert wrong == []


@pytest.mark.parametrize(("path", "effect"), table_of("rules", "effects: the longest name decides"))
def test_the_longest_name_decides(path: str, effect: str) -> None:
    assert EFFECTS.field(path) == effect


def test_a_value_may_have_its_own_effect() -> None:
    assert EFFECTS.word("routing", "natural") == EXPERIMENT and EFFECTS.word("routing", "balanced") == BENCHMARK
    assert EFFECTS.word("cuda_graph", ["attn"]) == EXECUTION
    assert EFFECTS.word("cuda_graph", ["full_iteration"]) == EXECUTION
    assert EFFECTS.pair("model.moe_router_force_load_balancing", False, True) == BENCHMARK


# ---------------------------------------------------------------- in a user's own rules

RUN = "qwen3_30b_a3b; gb200 x 8\n"
WHY = 'because "a test" cite ours "here"'


def found(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(d.id, d.help) for d in compile_source(Source("run.moe", text), "check").diagnostics if d.is_error]


def test_a_user_may_say_the_effect_of_a_field() -> None:
    text = RUN + f"rules mine {{ effect model.qk_clip = execution {WHY} }}\nset model.qk_clip = true"
    assert "model.qk_clip" not in run(text).plans[0].experiment.values
    assert run(RUN + "set model.qk_clip = true").plans[0].experiment.values["model.qk_clip"] is True


def test_a_misspelt_name_is_answered() -> None:
    ((id, help),) = found(RUN + f"rules mine {{ effect model.qk_clop = execution {WHY} }}")
    assert id == "check.unknown_field" and "model.qk_clip" in help[0]


def test_a_second_effect_is_an_error() -> None:
    assert [i for i, _ in found(RUN + f"rules mine {{ effect seq = execution {WHY} }}")] == ["check.twice"]
    two = "effect model.qk_clip = {} " + WHY
    text = RUN + f"rules mine {{ {two.format('execution')}\n{two.format('experiment')} }}"
    assert [i for i, _ in found(text)] == ["check.twice"]


# ---------------------------------------------------------------- nothing is changed unsaid


def check_said(plan: Plan) -> None:
    """A decision of the experiment is pinned, or defaulted by a named rule and listed, or chosen and said in a note."""
    e = plan.experiment
    for d in plan.decisions:
        if d.effect != EXPERIMENT:
            continue
        assert d.origin in ("pinned", "defaulted", "derived", "chosen"), d
        if d.origin != "pinned":
            assert d.rule, d
        key = d.name if d.name in e.values else experiment.path_of(d.name)
        assert e.values[key] == d.value or key in plan.set
        if d.origin == "defaulted":
            assert d.name in experiment.unstated(e) or (d.name, e.origins[key]) == ("precision", "pinned")
        if d.origin == "chosen":
            id = "plan.precision_auto" if d.name == "precision" else "plan.experiment_chosen"
            assert any(n["id"] == id and d.name in n["message"] for n in plan.diagnostics)


@pytest.mark.parametrize(
    "said, origin",
    [("precision fp8", "pinned"), ("precision mxfp8", "pinned"), ("precision auto", "chosen"), ("", "defaulted")],
)
def test_a_stated_precision_is_not_a_default(said: str, origin: str) -> None:
    """Also where the run names FP8 and a rule the format of it for this GPU."""
    e = programs.plan_of(f"qwen3_30b_a3b; b200 x 16; throughput first; {said}").experiment
    assert e.origins["precision"] == origin
    assert ("precision" in experiment.unstated(e)) == (origin == "defaulted")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_no_example_changes_its_experiment_unsaid(path: Path) -> None:
    plans = programs.example(path).plans
    assert plans
    for plan in plans:
        assert {d.effect for d in plan.decisions} <= {*GROUPS} - {UNKNOWN}
        check_said(plan)


@pytest.mark.parametrize(
    ("precision", "phase", "hardware"),
    rotation.one_of_each(
        "phases", [*product(PRECISIONS, ("fit", "scale", "throughput"), ("h100", "gb200"))], lambda case: case[:2]
    ),
)
def test_no_phase_changes_the_experiment_unsaid(precision: str, phase: str, hardware: str) -> None:
    (plan,) = run(f"qwen3_30b_a3b; {hardware} x 16; {phase} first; {precision}").plans
    check_said(plan)
    wanted = {"precision fp8": {"h100": "fp8_blockwise", "gb200": "mxfp8"}[hardware], "precision auto": None}
    assert plan.policy.precision == (wanted.get(precision, "bf16") or plan.policy.precision)
    assert any(d["id"] == "plan.precision_auto" for d in plan.diagnostics) == (precision == "precision auto")


def fingerprints(text: str) -> list[str]:
    return [p.experiment.fingerprint for p in run(text).plans]


OF_EXECUTION = ["gpus in 16, 64, 512", "micro_batch in 1, 2", "recompute in none, full", "dispatcher in alltoall, deepep", "ep in 8, 16"]  # fmt: skip


@pytest.mark.parametrize("sweep", rotation.some("sweeps of execution", OF_EXECUTION, 1))
def test_a_sweep_of_execution_is_one_experiment(sweep: str) -> None:
    assert len(set(fingerprints(f"qwen3_30b_a3b; h100 x 16; throughput first; sweep {sweep}"))) == 1


def test_a_held_batch_is_said() -> None:
    result = run("qwen3_30b_a3b; h100 x 16; scale first; sweep gpus in 16, 512")
    assert [p.batch.global_batch for p in result.plans] == [2048, 2048]
    assert [d.id for d in result.diagnostics] == ["plan.batch_held"]


OF_THE_EXPERIMENT = ["seq in 4k, 8k", "batch in 256, 512", "precision in bf16, fp8_blockwise"]


@pytest.mark.parametrize("sweep", rotation.some("sweeps of the experiment", OF_THE_EXPERIMENT, 1))
def test_a_sweep_of_the_experiment_says_so(sweep: str) -> None:
    result = run(f"qwen3_30b_a3b; h100 x 16; throughput first; sweep {sweep}")
    assert len({p.experiment.fingerprint for p in result.plans}) == 2
    assert "plan.sweep_experiment" in [d.id for d in result.diagnostics]


@pytest.mark.parametrize("hardware", rotation.some("smallest clusters", ["h200", "gb200", "h100"], 1))
def test_the_smallest_cluster_has_the_batch_of_any_other(hardware: str) -> None:
    """The search for the fewest GPUs does not change the batch, whatever it finds."""
    batches = {
        run(f"{model}; {hardware}; seq 8k; fit first").plans[0].batch.global_batch
        for model in ("moonlight_16b", "qwen3_30b_a3b", "qwen3_235b_a22b")
    }
    assert batches == {512}


# ---------------------------------------------------------------- the fingerprint


def test_the_fingerprint_is_of_the_experiment_alone() -> None:
    base = "qwen3_30b_a3b; h100 x 16; seq 4k; batch 512"
    same = [base + "; pin ep=8 recompute=full", base.replace("h100 x 16", "gb200 x 32"), base + "; throughput first",
            base + "; set checkpoint.save_interval = 10"]  # fmt: skip
    other = [base.replace("512", "256"), base.replace("4k", "8k"), base + "; precision fp8", base + "; pin moments=bf16",
             base + "; pin grad_reduce=bf16", base + "; routing balanced", base + "; task sft", base + '; data "corpus"',
             base + "; set model.moe_z_loss_coeff = 0.001", base.replace("qwen3_30b_a3b", "moonlight_16b")]  # fmt: skip
    same, other = rotation.some("same experiment", same, 2), rotation.some("other experiments", other, 4)
    assert len({f for text in (base, *same) for f in fingerprints(text)}) == 1
    assert len({f for text in (base, *other) for f in fingerprints(text)}) == 1 + len(other)


def test_a_model_of_the_same_name_and_other_facts_is_another_experiment() -> None:
    plan, p = run(RUN).plans[0], run(RUN, "check").programs[0]
    values = plan.experiment.values
    facts = experiment.facts_of(p.model)
    assert experiment.fingerprint(values, facts) == plan.experiment.fingerprint
    assert experiment.fingerprint(values, facts.replace('"layers": 48', '"layers": 24')) != plan.experiment.fingerprint


def test_a_benchmark_stands_out() -> None:
    (plan,) = run(RUN + 'routing balanced; data "corpus"').plans
    assert [b.name for b in plan.experiment.benchmark] == ["routing"]
    from moedsl.planner.text import plan_text

    assert "BENCHMARK ONLY, routing balanced" in plan_text(plan)
