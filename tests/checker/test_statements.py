"""Numbers whose unit is probably another: a warning that says what to write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost import pipeline
from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import sections
from moedsl.facts import fields
from moedsl.lang import ast
from moedsl.planner import checkpoints, text
from moedsl.planner.plan import Plan
from moedsl.rules.check import run_draft
from moedsl.rules.check.options import SECTIONS, options
from moedsl.rules.check.suspicious import BANDWIDTHS
from moedsl.runs.measured_runs import read
from moedsl.solver import nearest, space
from moedsl.solver.laws import compile_problem
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.programs import compiled, diagnosed, plan_of
from tests.helpers.tables import table_of

HEAD = "qwen3_30b_a3b; gb200 x 64\n"


def warnings(text: str) -> list[Diagnostic]:
    result = compile_source(Source("run.moe", HEAD + text), "check")
    assert not result.failed
    return [d for d in result.diagnostics if d.severity == "warning"]


@pytest.mark.parametrize(("text", "id", "right"), table_of("checker", "a number of another unit"))
def test_a_number_of_another_unit(text: str, id: str, right: str) -> None:
    (found,) = warnings(text)
    assert found.id == id
    assert [fix.text for fix in found.fixes] == [right]


@pytest.mark.parametrize(
    "text", ["seq 4k; batch 16k", "require peak_memory < 150 GB", "require spare_memory > 0", "require memory > 1e11"]
)
def test_a_number_that_is_meant(text: str) -> None:
    assert warnings(text) == []


@pytest.mark.parametrize("wish", ["require goodput > 0.9", "prefer often: save_steps < 100"])
def test_a_wish_cannot_read_what_follows_from_the_layout(wish: str) -> None:
    (found,) = [d for d in compile_source(Source("run.moe", HEAD + wish), "check").diagnostics if d.is_error]
    assert found.id == "check.too_late"


def test_a_batch_of_tokens_without_a_length() -> None:
    (found,) = warnings("batch 4M")
    assert "4,194,304" in found.message or "4,000,000" in found.message
    assert found.help == ("divide tokens by the sequence length",)


OWN = (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8")


@pytest.mark.parametrize(("fact", "wrong", "right"), [
    ("hbm 3.35 TB/s", "hbm 3.35 GB/s", "3.35 TB/s"), ("nvlink 450 GB/s", "nvlink 450 TB/s", "450 GB/s"),
    ("network 25 GB/s", "network 25 TB/s", "25 GB/s"), ("hbm 3.35 TB/s", "hbm 3350 TB/s", "3350 GB/s"),
])  # fmt: skip
def test_a_bandwidth_of_no_gpu(fact: str, wrong: str, right: str) -> None:
    result = compile_source(Source("run.moe", OWN.replace(fact, wrong)), "check")
    (found,) = [d for d in result.diagnostics if d.severity == "warning"]
    assert found.id == "check.bandwidth" and [fix.text for fix in found.fixes] == [right]


@pytest.mark.parametrize("name", [*load_stdlib().hardware])
def test_a_bandwidth_of_a_gpu(name: str) -> None:
    """Each of the library is in the range, with a factor of four to its ends."""
    made, _ = load_stdlib().gpu(name)
    assert made is not None
    for fact, (least, most) in BANDWIDTHS.items():
        assert 4 * least <= getattr(made, fact) <= most / 4


@pytest.mark.parametrize(
    "rates", ["bf16=989 TFLOPS fp8=1979 TFLOPS", "bf16=0.989 PFLOPS fp8=1.979 PFLOPS", "bf16=989 fp8=1.979 PFLOPS"]
)
def test_a_rate_with_its_unit(rates: str) -> None:
    """As a data sheet has it: without a unit the number is in TFLOPS."""
    result = compile_source(Source("run.moe", OWN.replace("bf16=989 fp8=1979", rates)), "check")
    assert result.diagnostics == []
    assert result.programs[0].hardware.tflops == {"bf16": pytest.approx(989), "fp8": pytest.approx(1979)}


@pytest.mark.parametrize(("fact", "wrong"), [
    ("bf16=989", "bf16=989 GB"), ("bf16=989", "bf16=989%"), ("capability 9.0", "capability 9.0 TB"),
    ("sms 132", "sms 132; watts 700 GB"), ("sms 132", "sms 132; host_link 64"), ("sms 132", "sms 132; host_link 64 GB"),
    ("sms 132", "sms 132; exponentials 16 TFLOPS"),
])  # fmt: skip
def test_a_fact_in_a_unit_that_it_does_not_have(fact: str, wrong: str) -> None:
    (found,) = compile_source(Source("run.moe", OWN.replace(fact, wrong)), "check").diagnostics
    assert (found.id, found.severity) == ("check.unit", "error")


NEWER = OWN.replace("arch hopper", "arch blackwell").replace("capability 9.0", "capability 10.0")


@pytest.mark.parametrize(("rates", "word", "missing"), [
    ("bf16=989", "fp8", "fp8"), ("bf16=989", "mxfp8", "mxfp8"), ("bf16=989 fp8=1979", "nvfp4", "nvfp4"),
    ("bf16=989 fp8=1979", "fp8", None), ("bf16=989 mxfp8=1979", "fp8", None), ("bf16=989", "bf16", None),
    ("bf16=989 mxfp8=1979", "fp8_current", None), ("bf16=989 nvfp4=3958", "nvfp4", None),
])  # fmt: skip
@pytest.mark.parametrize("said", ["precision {}", "pin precision={}"])
def test_a_precision_without_a_rate(rates: str, word: str, missing: str | None, said: str) -> None:
    word = {"fp8": "fp8_blockwise" if missing else "mxfp8"}.get(word, word) if said.startswith("pin") else word
    text = f"{NEWER.replace('bf16=989 fp8=1979', rates)}\n{said.format(word)}\n"
    found = compile_source(Source("run.moe", text), "check").diagnostics
    assert [(d.id, d.severity) for d in found] == [("check.no_rate", "warning")] * bool(missing)
    assert not missing or f" {missing}=..." in found[0].help[0]


def test_both_formats_of_8_bits_have_the_rate_that_is_stated() -> None:
    """`precision fp8` is MXFP8 on Blackwell, whichever of its two rates the declaration has."""
    rates = ("fp8=1979", "mxfp8=1979", "fp8=1979 mxfp8=1979")
    texts = [f"{NEWER.replace('fp8=1979', rate)}\nprecision fp8; pin ep=8 pp=1\n" for rate in rates]
    plans = [compile_source(Source("run.moe", text)).plans[0] for text in texts]
    assert {p.policy.precision for p in plans} == {"mxfp8"}
    assert len({p.estimate.step_time_s for p in plans}) == 1


def test_a_measured_run_in_a_precision_without_a_rate(tmp_path: Path) -> None:
    """Its speed is held against the rate that the estimate has for it."""
    file = tmp_path / "runs.jsonl"
    for rates, tokens, refused in (
        ("bf16=989 fp8=1979", 9_000, 0),
        ("bf16=989", 70_000, 1),
        ("bf16=989 fp8=1979", 70_000, 0),
    ):
        run = (
            NEWER.replace("bf16=989 fp8=1979", rates).partition("model")[0]
            + "model qwen3_30b_a3b; h100_200g x 32; precision mxfp8"
        )
        file.write_text(json.dumps({"run": run, "tokens_per_s_per_gpu": tokens}) + "\n")
        _, runs, found = read(file)
        assert (len(runs), len([d for d in found if d.is_error])) == (1 - refused, refused), found


@pytest.mark.parametrize(("arch", "capability", "fine"), [
    ("hopper", "9.0", True), ("hopper", "10.0", False), ("blackwell", "9.0", False), ("blackwell", "12.0", True),
    ("ampere", "8.9", True), ("ampere", "7.5", False), ("rubin", "9.0", False),
])  # fmt: skip
def test_a_capability_of_another_generation(arch: str, capability: str, fine: bool) -> None:
    """Prices follow the arch, and laws the capability: together they must be those of some GPU."""
    text = OWN.replace("arch hopper", f"arch {arch}").replace("capability 9.0", f"capability {capability}")
    found = compile_source(Source("run.moe", text), "check").diagnostics
    assert [(d.id, d.severity) for d in found] == ([] if fine else [("check.capability", "warning")])


# `for` states how long a run trains: the steps that follow, what the plan says of them, and mistakes.

RUN = 'qwen3_30b_a3b; gb200 x 64; seq 4k; batch 512; data "/data/corpus"\n'
MOCK = RUN.partition("; data")[0] + "\n"
WRONG = table_of("checker", "statements: wrong")


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


@pytest.mark.parametrize(("more", "warns"), table_of("checker", "statements: a run of days that saves nothing"))
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


# Programs that are large in one direction: each is answered, or refused by what is too large in it.

WHY = 'because "why" cite ours "why"'
RUN_OF_64 = "model qwen3_30b_a3b; h100 x 64; fit first\n"


def rules(*lets: str) -> str:
    return RUN_OF_64 + "rules r {\n" + "".join(f"let {line}\n" for line in lets) + "}\n"


def model(name: str, *facts: tuple[str, str]) -> str:
    text = (stdlib_dir() / "models" / f"{name}.moe").read_text().replace(f"model {name}", "model big", 1)
    for old, new in facts:
        text = re.sub(old, new, text, count=1)
    return text + "\nmodel big; h100 x 64; fit first\n"


def ids(text: str) -> list[str]:
    return [d.id for d in compiled(text).diagnostics if d.is_error]


@pytest.mark.parametrize(
    "text, says",
    [
        (model("qwen3_30b_a3b", (r"experts 128", "mtp_layers 100000 experts 128")), "100 MTP layers"),
        (
            model("nemotron_3_nano", (r'layer_pattern "\S+"', f'layer_pattern "{"ME" * 5000}"'), (r"layers \d+", "layers 10000")),
            "500 is the limit",
        ),
        (model("qwen3_vl_30b_a3b", (r"temporal_patch 2", f"temporal_patch {10**39}")), "temporal_patch"),
        (model("qwen3_vl_30b_a3b", (r"merge 2", "merge 0")), "from 1 to 64"),
        (model("qwen3_vl_30b_a3b", (r"ffn_hidden 4304", f"ffn_hidden {10**18}")), "below 65536"),
    ],
    ids=["mtp", "pattern", "patch", "no merge", "vision"],
)  # fmt: skip
def test_a_fact_that_is_too_large_is_refused_with_its_limit(text: str, says: str) -> None:
    (found,) = (d for d in compiled(text).diagnostics if d.is_error)
    assert found.id == "check.model" and says in found.message


def test_a_huge_last_stage_is_priced() -> None:
    assert ids(f"{RUN_OF_64}set model.vocab_size = 1000000000\n") == ["solve.does_not_fit"]
    assert ids(f"{RUN_OF_64}set model.mtp_num_layers = 100\n") == []


@pytest.mark.parametrize("field", table_of("checker", "a size that no run has is refused"))
def test_a_size_that_no_run_has_is_refused(field: str) -> None:
    assert ids(f"{RUN_OF_64}set {field}\n") == ["check.size"]


def test_a_vocabulary_heavier_than_all_layers_leaves_the_last_stage_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the search for the layout takes steps by the layers, not by what the vocabulary weighs."""
    facts = load_stdlib().model("qwen3_30b_a3b")[0]
    assert facts is not None
    given: list[int] = []
    fullest = pipeline._fullest
    monkeypatch.setattr(pipeline, "_fullest", lambda *words: given.append(1) or fullest(*words))
    text = pipeline.balanced(evolve(facts, vocab=2_000_000_000), 4, 2)
    assert len(given) < 3 * facts.layers
    layout, _ = pipeline.parse_layout(str(text), facts, 4, 2)
    assert layout is not None
    assert [sum(c.layers for c in layout.stage(s)) for s in range(4)] == [15, 16, 16, 1]


def test_a_chain_of_lets_is_answered_or_refused() -> None:
    lets = ["a0 = tp", *(f"a{i} = a{i - 1} + 1" for i in range(1, 250))]
    assert ids(rules(*lets)) == ["check.deep_let"]
    assert ids(rules(*lets[:140])) == []


def test_the_tree_of_lets_that_use_each_other_twice_does_not_double() -> None:
    lets = {f"a{i}": ast.Binary("+", *(2 * (ast.Name(f"a{i - 1}", None),)), None) for i in range(1, 17)}  # type: ignore[arg-type]
    env = {f"a{i}": 2**i for i in range(17)}

    def nodes(node: nearest.Json) -> int:
        return 1 + sum(map(nodes, node["parts"]))

    assert nodes(nearest.tree(lets["a16"], env, lets)) < 100


def test_a_sum_that_leaves_64_bits_keeps_its_sign() -> None:
    doubled = "".join(f"let a{i} = a{i - 1} + a{i - 1} {WHY}\n" for i in range(1, 70))
    result = compile_source(
        Source("t.moe", f"{RUN_OF_64}rules r {{ let a0 = tp {WHY}\n{doubled}require sum: a69 > 0 {WHY} }}\n")
    )
    assert not result.failed
    result = compile_source(
        Source("t.moe", f"{RUN_OF_64}rules r {{ let a0 = tp {WHY}\n{doubled}require sum: a69 < 0 {WHY} }}\n")
    )
    assert [d.id for d in result.diagnostics if d.is_error] == ["run.r.sum"]


def test_a_file_uses_a_file_that_uses_a_file(tmp_path: Path) -> None:
    for i in range(1500):
        (tmp_path / f"u{i}.moe").write_text(f'use "u{i + 1}.moe"\n')
    (tmp_path / "u1500.moe").write_text("model_of_nothing\n")
    result = compile_source(Source(str(tmp_path / "run.moe"), f'use "u0.moe"\n{RUN_OF_64}'), "check")
    assert len(result.library.sources) > 1500


@pytest.mark.usefixtures("compiles_anew")
def test_a_run_from_a_run_from_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is read once, not again for each that inherits from it."""
    read: list[int] = []
    layer = run_draft.Gather.layer

    def counted(self: run_draft.Gather, *words: Any) -> run_draft.Draft:
        read.append(1)
        assert len(read) < 2100
        return layer(self, *words)

    monkeypatch.setattr(run_draft.Gather, "layer", counted)
    runs = "".join(f"run r{i} from r{i - 1} {{ seq 8k }}\n" for i in range(1, 2000))
    result = compile_source(Source("t.moe", f"run r0 {{ {RUN_OF_64} }}\n{runs}"), "check")
    assert len(result.programs) == 2000 and not result.failed
    circle = compile_source(Source("t.moe", "run a from b { }\nrun b from a { }\n"), "check")
    assert [d.id for d in circle.diagnostics if d.id == "check.circular"] == ["check.circular"]


def test_the_meshes_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = compiled(RUN_OF_64, "t.moe").programs
    problem = lower(program, 64)
    compiled_problem = compile_problem(problem, {"has_layout": make_cost(problem).has_layout})
    whole = space.mesh_table(compiled_problem)
    monkeypatch.setattr(space, "MOST", 50)
    parts = space.mesh_table(compiled_problem)
    assert whole.rows > 50 and all((whole.axes[n] == parts.axes[n]).all() for n in whole.axes)


# `resilience` switches a section of Bridge on: it sets the fields that the same `set`s would, and no others.

BASE = 'qwen3_30b_a3b; h100 x 16; data "/data/corpus"; set checkpoint.save = "/shared/run"\n'
SAME = table_of("checker", "statements: same")
WRONG_RESILIENCE = table_of("checker", "statements: wrong resilience")


@pytest.mark.parametrize("statement", SAME)
def test_a_statement_is_its_sets(statement: str) -> None:
    ours, theirs = (compile_source(Source("run.moe", BASE + text), "plan") for text in (statement, SAME[statement]))
    assert recipe_text(ours.plans[0]) == recipe_text(theirs.plans[0])


@pytest.mark.parametrize("statement", WRONG_RESILIENCE)
def test_a_mistake_in_resilience_is_reported(statement: str) -> None:
    result = compile_source(Source("run.moe", BASE + statement), "plan")
    assert WRONG_RESILIENCE[statement] in [d.id for d in result.diagnostics if d.is_error]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_has_fields_of_bridge(name: str) -> None:
    section = SECTIONS[name]
    assert all(fields.lookup(f"{section.path}.{option}") for option in (*section.on, *options(name)))


def test_a_run_overrides_the_top_of_the_file() -> None:
    text = BASE + "resilience ft\nrun a { set ft.enable_ft_package = false }"
    assert compile_source(Source("run.moe", text), "plan").plans[0].set["ft.enable_ft_package"] is False
