"""A rehearsal keeps the shape of a plan, is legal by moedsl's own rules, and names whatever it leaves out."""

import json
from itertools import product
from math import prod
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.bridge.importer.config import declaration
from moedsl.cli.commands.verify import SHIPPED
from moedsl.cli.main import main
from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost.pipeline import layout_for, parse_layout
from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.facts.symbols import ARCHS
from moedsl.lang.printer import quote
from moedsl.planner import experiment
from moedsl.planner.plan import Plan
from moedsl.rehearse import launch, prepare
from moedsl.rehearse.shrink import (
    AXES,
    KEPT,
    LANGUAGE,
    LEFT_OUT,
    RANKS,
    SHRUNK,
    Rehearsal,
    axis_notes,
    layout_of,
    segments,
    shortened,
    shrink,
    smallest,
)
from moedsl.solver.solve import Chosen
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.cli.test_imports import HEAVY, imported
from tests.helpers import rotation
from tests.helpers.cost_models import enough_gpus, model
from tests.helpers.paths import EXAMPLES, ROOT
from tests.helpers.programs import compiled
from tests.helpers.tables import table_of

GPUS = {name: enough_gpus(model(name)) for name in sorted(load_stdlib().models)}
WHERE = (("h100", "throughput 4k"), ("gb200", "fit 128k"), ("gb300", "throughput 32k"))
CELLS = rotation.some("rehearsed", rotation.one_of_each("rehearsals", [*product(GPUS, WHERE)], lambda c: c[0]), 2)
PINNED = table_of("rehearse", "shrink: pinned")
DEEPSEEK = PINNED[3]
MANY = rotation.some("many axes", PINNED, 1)
Case = tuple[Chosen, Plan, Rehearsal]


def cases(text: str, name: str = "run.moe", ranks: int = RANKS) -> list[Case]:
    """Every run of a program with its rehearsal; the shrinking sees hardware of the stdlib alone."""
    result = compiled(text, name)
    own = {"h100_200g": "h100"}
    return [
        (c, p, shrink(p, c.problem.program.model, ranks, own.get(p.hardware, "")))
        for c, p in zip(result.chosen, result.plans, strict=True)
    ]


def small_plan(r: Rehearsal) -> Plan:
    """The rehearsal through the rules, the solver and the planner, which have nothing left to choose."""
    r = evolve(r, model=evolve(r.model, hf="/model"))
    result = compiled(prepare.run_file(r))
    assert not result.failed, (prepare.run_file(r), [d.message for d in result.diagnostics])
    (plan,) = result.plans
    return plan


def holds(case: Case) -> None:
    """What is to be true of every rehearsal."""
    chosen, plan, r = case
    keeps_its_shape(plan, r)
    is_what_was_asked(small_plan(r), r)
    leaves_nothing_unsaid(plan, r)
    keeps_the_model(chosen.problem.program.model, r.model)


def keeps_its_shape(plan: Plan, r: Rehearsal) -> None:
    """An axis of 1 stays 1; a larger one stays larger, or is said to be left out and what would keep it."""
    left_out = {n.what for n in r.notes if n.kind == LEFT_OUT}
    assert r.ranks <= RANKS
    for axis in (*AXES, "vpp"):
        big, small = getattr(plan.layout, axis), r.layout[axis]
        assert (small <= big and (small > 1) == (big > 1)) or axis in left_out, axis
    assert prod(r.layout[a] for a in ("tp", "cp", "dp")) == prod(r.layout[a] for a in ("etp", "ep", "edp"))


def is_what_was_asked(plan: Plan, r: Rehearsal) -> None:
    assert {a: getattr(plan.layout, a) for a in r.layout} == dict(r.layout)
    assert plan.layout.pipeline_layout == r.pipeline_layout
    assert plan.layout.sequence_parallel == (r.layout["tp"] > 1)
    assert plan.policy.recompute == r.policy["recompute"] and plan.policy.dispatcher == "alltoall"
    batch = {n: getattr(r, n) for n in ("global_batch", "micro_batch", "num_microbatches", "seq")}
    assert {n: getattr(plan.batch, n) for n in batch} == batch
    assert plan.gpus == r.ranks


def leaves_nothing_unsaid(plan: Plan, r: Rehearsal) -> None:
    """Every axis and policy of the plan has a note with the plan's value, and the note's kind is the truth."""
    said = {n.what: n for n in r.notes}
    assert len(said) == len(r.notes), "a note each"
    decided = experiment.settings(plan.layout, plan.batch, plan.policy)
    for name in axes.BY_NAME:
        assert said[name].plan == decided[name], name
    for note in r.notes:
        assert (note.kind == KEPT) <= (note.plan == note.here), note
        assert (note.kind == SHRUNK) <= (note.plan != note.here), note
    assert {"kernels", "communication", "core attention", "memory and speed"} <= said.keys()


def keeps_the_model(big: Model, small: Model) -> None:
    """The same kinds of layers, router and attention; counts stay what they are about 1."""
    same = ("topk", "routing_groups", "topk_groups", "attention", "qk_norm", "attention_sinks", "shared_expert_gate")
    assert all(getattr(big, n) == getattr(small, n) for n in same)
    for name in ("dense_layers", "mtp_layers", "shared_expert_hidden", "q_lora_rank", "window"):
        assert bool(getattr(big, name)) == bool(getattr(small, name)), name
    assert (big.heads > big.query_groups) == (small.heads > small.query_groups)
    assert small.topk < small.experts and small.layers > small.dense_layers


@pytest.mark.parametrize("file", rotation.some("shrunk", EXAMPLES, 1), ids=lambda p: p.stem)
def test_an_example(file: Path) -> None:
    for case in cases(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()):
        holds(case)


def cell(model: str, where: tuple[str, str]) -> str:
    hardware, aim = where
    phase, seq = aim.split()
    return f"{model}; {hardware} x {GPUS[model]}; seq {seq}; {phase} first"


@pytest.mark.parametrize(("model", "where"), CELLS)
def test_a_cell_of_the_matrix(model: str, where: tuple[str, str]) -> None:
    (case,) = cases(cell(model, where))
    holds(case)


@pytest.mark.parametrize("text", MANY)
def test_a_layout_with_many_axes(text: str) -> None:
    for case in cases(text):
        holds(case)


@pytest.mark.parametrize(
    ("text", "ranks"), rotation.one_of_each("ranks", [*product(MANY, (1, 2, 3, 6, 16))], lambda c: c[0])
)
def test_any_number_of_ranks_makes_a_legal_run(text: str, ranks: int) -> None:
    ((_, _, r),) = cases(text, ranks=ranks)
    assert r.ranks <= ranks
    is_what_was_asked(small_plan(r), r)


meshes = st.fixed_dictionaries({a: st.sampled_from([1, 1, 2, 3, 4]) for a in AXES})


@settings(deadline=None)
@given(meshes, st.sampled_from([1, 2, 4, 8]))
def test_an_axis_is_given_up_only_where_ranks_do_not_suffice(plan: dict[str, int], ranks: int) -> None:
    found = smallest(plan, ranks)
    lost = {a for a in AXES if plan[a] > 1 and found[a] == 1}
    assert all(1 <= found[a] <= plan[a] for a in AXES)
    assert prod(found[a] for a in ("tp", "cp", "dp")) == prod(found[a] for a in ("etp", "ep", "edp"))
    whole = [c for c in candidates(plan, ranks) if all((c[a] > 1) == (plan[a] > 1) for a in AXES)]
    assert bool(whole) == (not lost)
    if whole:
        assert prod(found[a] for a in ("pp", "tp", "cp", "dp")) == min(
            prod(c[a] for a in ("pp", "tp", "cp", "dp")) for c in whole
        )


def candidates(plan: dict[str, int], ranks: int) -> list[dict[str, int]]:
    """Every pair of meshes, by brute force."""
    values = [range(1, min(plan[a], ranks) + 1) for a in AXES]
    made = (dict(zip(AXES, v, strict=True)) for v in product(*values))
    return [c for c in made if c["pp"] <= 2 and c["tp"] * c["cp"] * c["dp"] == c["ep"] * c["etp"] * c["edp"]
            and c["pp"] * c["tp"] * c["cp"] * c["dp"] <= ranks]  # fmt: skip


def test_a_lost_axis_says_what_would_keep_it() -> None:
    plan = {"pp": 2, "ep": 4, "tp": 2, "cp": 2, "etp": 1, "dp": 2, "edp": 2}
    notes = {n.what: n for n in axis_notes(plan, smallest(plan, 8))}
    assert notes["dp"].kind == LEFT_OUT and notes["dp"].because == "--ranks 16 keeps every axis"
    assert all(n.kind == KEPT for n in axis_notes(plan, smallest(plan, 16)) if plan[n.what] == n.here)


@pytest.mark.parametrize("text", ["Et*4|(t*4|)*14tmL", "Et*3|(t*4|)*14t*2mL", "Et*2|(t*4|)*14t*3mL"])
def test_an_uneven_layout_stays_uneven(text: str) -> None:
    layout = parse_layout(text, model("deepseek_v3"), 4, 4)[0]
    assert layout is not None
    chunks = shortened(layout, 2, 2, 1)
    assert [c.embedding for c in chunks] == [True, False, False, False] and [c.loss for c in chunks][-1]
    assert [c.mtp for c in chunks] == [0, 0, 0, 1]
    assert len({c.layers for c in chunks}) > 1
    first, last = layout.chunks[0].layers, layout.chunks[-1].layers
    assert (chunks[0].layers > chunks[-1].layers) == (first > last)


@pytest.mark.parametrize(("parts", "pp", "small"), table_of("rehearse", "a hybrids stages keep their kinds of layer"))  # fmt: skip
def test_a_hybrids_stages_keep_their_kinds_of_layer(parts: tuple[str, ...], pp: int, small: tuple[str, ...]) -> None:
    assert segments([*parts], pp) == [*small]


@pytest.mark.bridge
def test_a_hybrid_is_not_rehearsed_without_its_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    """mamba_ssm computes on a GPU alone: what would run is shown, and nothing is started that cannot end well."""
    run = ["rehearse", "-e", "nemotron_3_nano; h100 x 16; seq 8k; fit first", "--cpu"]
    assert main([*run, "--dryrun"]) == 0
    assert "mamba_heads" in capsys.readouterr().out
    assert main(run) == 1
    said = capsys.readouterr().err
    assert "rehearse.no_kernels" in said and "mamba_ssm" in said and "--dryrun" in said


def test_delta_nets_alternate_with_full_attention_in_every_stage() -> None:
    """And the last layer, which MTP repeats, has full attention."""
    text = "qwen3_next_80b_a3b; h100 x 64; seq 4k; batch 256; pin pp=2 vpp=4 ep=16 cp=2; fit first"
    (case,) = cases(f'{text}; pin pipeline_layout="Et*4|(t*7|)*5t*8|tmL"')
    r = case[2]
    assert r.pipeline_layout == "Etttt|ttt|ttt|ttmL" and r.model.linear_every == 2
    kinds = [
        dict(layout_of(r.pipeline_layout, r.model, r.layout["pp"], r.layout["vpp"]).holds(stage)) for stage in range(2)
    ]
    assert all(k["delta"] and k["moe"] for k in kinds), kinds
    assert "gated delta nets" in {n.what for n in r.notes if n.kind == LEFT_OUT}


def test_delta_nets_need_their_package_on_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    m = model("qwen3_next_80b_a3b")
    assert launch.lacking([m], on_gpus=False) is None
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    found = launch.lacking([m], on_gpus=True)
    assert found is not None and found.id == "rehearse.no_kernels" and "fla" in found.message
    assert launch.lacking([m], on_gpus=False) is None


def test_an_even_layout_stays_even() -> None:
    layout = layout_for(model("qwen3_30b_a3b"), 4, 3)
    assert layout is not None and layout.text is None
    assert {c.layers for c in shortened(layout, 2, 2, 0)} == {1}


@pytest.mark.parametrize(("model", "where"), CELLS)
def test_the_small_configuration_is_the_small_model(model: str, where: tuple[str, str]) -> None:
    """The importer reads from the written config.json what the rehearsal plans with."""
    ((chosen, _, r),) = cases(cell(model, where))
    folder = prepare.find_config(chosen.problem.program.model.hf, r.model.family)
    assert isinstance(folder, Path)
    config = json.loads(prepare.model_files(folder, r.model)["config.json"])
    declared, found = declaration(config, r.model.name, "org/model")
    assert declared is not None and not found, found
    source = Source("run.moe", f"{declared}\nmodel {r.model.name}\nh100 x 8\nfit first")
    read = compile_source(source, "check").programs[0].model
    plain = {"hf": "", "max_seq": 0, "name": "", "family": ""}
    fields = [f for f in Model.__annotations__ if f not in plain]
    assert {f: getattr(read, f) for f in fields} == {f: getattr(r.model, f) for f in fields}


def test_a_family_without_a_configuration_is_refused_with_a_way_out() -> None:
    found = prepare.find_config("nobody/has-this", "mixtral")
    assert not isinstance(found, Path) and found.id == "rehearse.no_config" and found.help


def test_set_is_carried_unless_it_names_the_cluster() -> None:
    text = 'qwen3_30b_a3b; h100 x 16; fit first; set model.layernorm_epsilon = 0.5; set checkpoint.save = "/data/a b"'
    (case,) = cases(text)
    _, _, r = case
    assert r.sets == {"model.layernorm_epsilon": 0.5}
    assert small_plan(r).set == {"model.layernorm_epsilon": 0.5}
    kinds = {n.what: n.kind for n in r.notes}
    assert kinds["set model.layernorm_epsilon"] == KEPT and kinds["set checkpoint.save"] == LEFT_OUT


@settings(deadline=None, max_examples=rotation.examples(50))
@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20))
def test_a_text_survives_the_run_file(value: str) -> None:
    text = f"qwen3_30b_a3b; h100 x 16; fit first; set logger.wandb_exp_name = {quote(value)}"
    result = compile_source(Source("run.moe", text), "check")
    assert not result.failed and result.programs[0].sets == {"logger.wandb_exp_name": value}


def test_the_counted_parameters_are_those_of_the_small_plan() -> None:
    (case,) = cases(DEEPSEEK)
    r = case[2]
    stages_of_plan = small_plan(r).estimate.memory.stages
    counted = prepare.parameters(r)
    assert [(p.total, p.expert) for p in counted] == [(s.params, s.expert_params) for s in stages_of_plan]


def test_dryrun_prints_what_would_run_and_needs_no_bridge(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", str(ROOT / "examples/models/deepseek_v3_h100.moe"), "--dryrun", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["ranks"] == 8 and run["trained"] is None and run["ok"]
    assert {n["what"] for n in run["not_rehearsed"]} >= {"dispatcher", "cuda_graph", "kernels"}
    assert main(["rehearse", str(ROOT / "examples/models/deepseek_v3_h100.moe"), "--dryrun"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for note in run["not_rehearsed"]:
        assert note["what"] in text and note["because"] in text


def test_on_gpus_less_is_left_out() -> None:
    chosen, plan, r = cases(DEEPSEEK)[0]
    on_gpus = shrink(plan, chosen.problem.program.model, 8, on_gpus=True)
    left = {n.what for n in on_gpus.notes if n.kind == LEFT_OUT}
    assert {"kernels", "core attention", "communication"} & left == set()
    assert {"precision", "memory and speed", "between nodes"} <= left
    assert evolve(on_gpus, notes=()) == evolve(r, notes=())


def test_showing_imports_nothing_heavy() -> None:
    assert imported("rehearse", "-e", "qwen3_30b_a3b; gb200 x 8", "--dryrun") & HEAVY == set()


def test_the_runs_of_a_file_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples/several_runs.moe")
    assert main(["rehearse", file, "--dryrun", "--run", "tuned"]) == 0
    assert capsys.readouterr().out.startswith("tuned: what a rehearsal would run")
    assert main(["rehearse", file, "--dryrun", "--run", "none_such"]) == 1
    assert "rehearse.no_run" in capsys.readouterr().err


@pytest.mark.parametrize("name", GPUS)
def test_the_code_of_a_configuration_travels_with_it(name: str) -> None:
    """Where Hugging Face's package has no class for it: also that of Kimi-K2.5's language model, which is Kimi-K2's."""
    m = model(name)
    m = evolve(m, family=LANGUAGE.get(m.family, m.family))
    folder = prepare.find_config(m.hf, m.family)
    assert isinstance(folder, Path)
    made = prepare.model_files(folder, m)
    module = json.loads(made["config.json"]).get("auto_map", {}).get("AutoConfig", "").partition(".")[0]
    shipped = [*(stdlib_dir() / "hf").glob(f"*--*/{module}.py")] if module else []
    assert (f"{module}.py" in made) == bool(shipped)


def test_each_architecture_has_a_gpu_to_rehearse_for() -> None:
    library = load_stdlib()
    made = {arch: library.gpu(name)[0] for arch, name in SHIPPED.items()}
    assert {arch: h.arch for arch, h in made.items() if h is not None} == {arch: arch for arch in ARCHS}
