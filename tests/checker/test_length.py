"""`for` states how long a run trains: the steps that follow, what the plan says of them, and mistakes."""

from __future__ import annotations

import pytest

from moedsl.compiler import compile_source
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import sections
from moedsl.planner import checkpoints, text
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.helpers.programs import diagnosed, plan_of

RUN = 'qwen3_30b_a3b; gb200 x 64; seq 4k; batch 512; data "/data/corpus"\n'
MOCK = RUN.partition("; data")[0] + "\n"
WRONG = {
    "for 14 dyas": "check.unknown_word",
    "for many days": "check.size",
    "for 0 days": "check.size",
    "for 2T days": "check.size",
    "for 999999999T tokens": "check.size",
    "for 2 days; for 2T tokens": "check.twice",
    "for 2 days; set train.train_iters = 5": "check.twice",
    "for 2 days; set train.train_samples = 5": "check.twice",
}


def steps(plan: Plan) -> int:
    return plan.derived["train.train_iters"]


@pytest.mark.parametrize(("amount", "tokens"), [("2T", 2e12), ("1.5B", 1.5e9), ("300M", 3e8), ("1", 1)])
def test_tokens_are_the_fewest_steps_that_train_them(amount: str, tokens: float) -> None:
    n = steps(plan_of(f"{RUN}for {amount} tokens"))
    assert (n - 1) * 512 * 4096 < tokens <= n * 512 * 4096


@pytest.mark.parametrize(("more", "recipe"), [
    ("", 500), ("; task sft", 50), ("; task peft; adapter lora", 50), ("; data mock", 10),
])  # fmt: skip
def test_the_warmup_of_a_short_run_is_a_tenth_of_it(more: str, recipe: int) -> None:
    run = (MOCK if "mock" in more else RUN) + "for {} tokens" + more

    def warmup(steps: int) -> int:
        plan = plan_of(run.format(f"{steps * 512 * 4096 / 10**6:.6f}M"))
        return next(s.value for _, part in sections(plan) for s in part if s.path == "scheduler.lr_warmup_iters")

    assert [warmup(n) for n in (1, 29, 10 * recipe - 1, 10 * recipe)] == [1, 2, recipe - 1, recipe]


def test_the_warmup_of_a_short_time_is_a_tenth_of_its_steps() -> None:
    plan = plan_of(RUN + "for 0.5 hours")
    assert 20 < steps(plan) < 5000
    assert plan.derived["scheduler.lr_warmup_iters"] == steps(plan) // 10
    assert "scheduler.lr_warmup_iters" not in plan_of(RUN + "for 14 days").derived


def test_a_set_warmup_stays() -> None:
    plan = plan_of(RUN + "for 1B tokens; set scheduler.lr_warmup_iters = 7")
    assert "cfg.scheduler.lr_warmup_iters = 7\n" in recipe_text(plan)


@pytest.mark.parametrize(("length", "seconds"), [("14 days", 14 * 86400), ("36 hours", 36 * 3600), ("0.5 days", 43200)])
def test_a_time_holds_the_steps_with_saves_and_failures(length: str, seconds: float) -> None:
    plan = plan_of(f"{RUN}for {length}")
    assert plan.checkpoints is not None
    needs = plan.estimate.step_time_s / plan.checkpoints.goodput.trains
    assert steps(plan) * needs <= seconds < (steps(plan) + 1) * needs
    assert plan.checkpoints.goodput.trains < 1


def test_the_recipe_and_the_plan_have_the_length() -> None:
    plan = plan_of(RUN + "for 14 days")
    assert f"cfg.train.train_iters = {steps(plan)}\n" in recipe_text(plan)
    assert text.length(plan).startswith(f"{steps(plan):,d} steps: 14 days (")
    assert text.length(plan).endswith("with validation, saves and failures")
    assert text.length(plan_of(RUN)) == ""


@pytest.mark.parametrize(("more", "warns"), [
    ("for 14 days", True), ("for 2T tokens", True), ("set train.train_iters = 1000000", True),
    ("for 2 hours", False), ("for 1B tokens", False), ("set train.train_iters = 100", False), ("", False),
    ('for 14 days; set checkpoint.save = "/c"', False), ('for 14 days; data "/data/corpus"', False),
])  # fmt: skip
def test_a_run_of_days_that_saves_nothing_is_a_warning(more: str, warns: bool) -> None:
    found = [d for d in diagnosed(MOCK + more) if d.id == "plan.unsaved"]
    assert len(found) == warns and all(d.severity == "warning" for d in found)


def test_a_run_that_saves_nothing_has_no_saves_in_its_length() -> None:
    plan = plan_of(MOCK + "for 2T tokens")
    assert text.length(plan).endswith(" without a failure: nothing is saved")
    assert plan.checkpoints and checkpoints.summary(plan.checkpoints).startswith("nothing is saved; 9")
    saved = plan_of(MOCK + 'for 2T tokens; set checkpoint.save = "/c"')
    assert text.length(saved).endswith(" with saves and failures")
    assert saved.checkpoints and " saved every " in checkpoints.summary(saved.checkpoints)


def test_the_length_says_that_it_leaves_out_the_jobs_of_a_chain() -> None:
    cluster = 'cluster here {{ executor slurm; hardware gb200; time "04:00:00"; chain {} }}\n'
    said = [text.length(plan_of(f"{RUN}for 14 days\n{cluster.format(chain)}")) for chain in ("on", "off")]
    assert said[0] == f"{said[1]}, without the starts and ends of the jobs of its chain"


def test_a_profile_keeps_its_few_steps() -> None:
    assert steps(plan_of(f"{RUN}for 2T tokens; profile first")) == 20


TUNING = 'qwen3_30b_a3b; h100 x 16; task sft; weights "/w"; data "/data/samples" lengths=[100, 300]\n'


def test_epochs_are_bridges_own() -> None:
    recipe = recipe_text(plan_of(TUNING + "set train.num_epochs = 3"))
    assert "cfg.train.num_epochs = 3\n" in recipe and "cfg.train.train_iters = None\n" in recipe


def test_fine_tuning_says_what_the_steps_of_the_recipe_train() -> None:
    plan = plan_of(TUNING)
    assert plan.samples and plan.samples.per_sequence and plan.checkpoints
    said, read = text.length(plan), 1000 * 32 * plan.samples.per_sequence
    assert said.startswith("1,000 steps, Bridge's default: ") and said.endswith(f"; {read:,.0f} samples")
    own = text.length(plan_of(TUNING + "for 1M tokens"))
    assert own.startswith("8 steps: ") and own.endswith(f"; {read * 8 / 1000:,.0f} samples")
    assert "samples" not in text.length(plan_of(TUNING.partition(" lengths")[0]))
    assert text.length(plan_of(TUNING + "set train.num_epochs = 3")) == ""


def test_a_run_that_is_shorter_than_the_interval_saves_at_its_end() -> None:
    c = plan_of(TUNING).checkpoints
    assert c is not None
    said = [checkpoints.summary(c, steps) for steps in (1, c.interval_steps, c.interval_steps + 1, 0)]
    assert [" saved once, at the end, " in s for s in said] == [True, True, False, False]


@pytest.mark.parametrize("statement", ["for 3 epochs", "epochs 3", "set train.epochs = 3"])
def test_epochs_that_are_no_statement_have_the_field_that_counts_them(statement: str) -> None:
    found = diagnosed(TUNING + statement)
    assert "`set train.num_epochs = 3`" in "".join(map(str, found[0].help))


@pytest.mark.parametrize("statement", WRONG)
def test_a_mistake_is_reported(statement: str) -> None:
    result = compile_source(Source("run.moe", RUN + statement), "check")
    assert [d.id for d in result.diagnostics if d.is_error] == [WRONG[statement]]
