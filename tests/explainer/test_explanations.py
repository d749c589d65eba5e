"""Explanations as a person reads them, one snapshot each, and their claims asked again in another way."""

import json
import re
from functools import cache
from typing import Any

import pytest
from attrs import evolve
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli.reference.page import page
from moedsl.emit.recipe import recipe_text
from moedsl.facts import axes
from moedsl.queries.explain import answer
from moedsl.queries.explain_layouts import Context, based
from moedsl.queries.explain_text import text_of
from moedsl.rules.check.program import Pin, Program
from moedsl.solver.conflicts import legal_on, members, without
from moedsl.solver.search import Question, Search
from moedsl.solver.solve import plan_for, solve
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of
from tests.helpers.small_programs import program
from tests.helpers.tables import table_of
from tests.oracles.some_layout import some_layout


class Explanation(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


OWN = 'rules mine {\n require small: tp * pp <= 4 because "our fabric" cite mine "wiki"\n}\n'
CASES = {
    "chosen_tp_long_context": ("qwen3_235b_a22b; gb200 x 256; seq 128k", "tp"),
    "chosen_recompute_h100": ("deepseek_v3; h100 x 1024", "recompute"),
    "chosen_ep_throughput": ("qwen3_30b_a3b; h100 x 16; throughput first", "ep"),
    "chosen_micro_batch_scale": ("gpt_oss_120b; b200 x 64; scale first", "micro_batch"),
    "pinned_pp": ("deepseek_v3; gb200 x 256\npin pp=4", "pp"),
    "pinned_cp_dearer": ("qwen3_235b_a22b; gb200 x 256; seq 128k\npin cp=32", "cp"),
    "defaulted_dispatcher": ("qwen3_235b_a22b; gb200 x 256", "model.moe_token_dispatcher_type"),
    "defaulted_precision": ("moonlight_16b; h100 x 8", "precision"),
    "defaulted_vpp": ("kimi_k2; h200 x 512", "virtual_pipeline_model_parallel_size"),
    "derived_dp": ("qwen3_235b_a22b; gb200 x 256; require dp >= 4", "dp"),
    "derived_environment": ("qwen3_30b_a3b; h100 x 16; pin tp=2", "CUDA_DEVICE_MAX_CONNECTIONS"),
    "fixed_seq": ("qwen3_30b_a3b; h100 x 16; seq 16k", "seq"),
    "set_field": ('moonlight_16b; h100 x 8\nset model.moe_router_dtype = "fp64"', "model.moe_router_dtype"),
    "overview": ("qwen3_235b_a22b; gb200 x 256; seq 128k; require dp >= 4; prefer cp <= 4", None),
    "overview_own_rules": (f"gpt_oss_120b; h100 x 64\n{OWN}", None),
    "overview_vlm": ("qwen3_vl_30b_a3b; b200 x 16; vlm freeze_vision", None),
    "law_conflict": ("qwen3_235b_a22b; gb200 x 256\npin tp=3", None),
    "law_conflict_overlap": ("deepseek_v3; gb200 x 256; throughput first\npin ep_overlap=true\npin pp=4 vpp=1", None),
    "wishes_collide": ("qwen3_30b_a3b; gb200 x 8\nrequire tp > 4\npin tp=2 ep=4", None),
    "memory": ("deepseek_v3; h100 x 64; seq 32k\npin cp=1 pp=1", None),
    "memory_of_the_run_alone": ("deepseek_v3; h100 x 8", None),
    "too_slow": ("qwen3_30b_a3b; h100 x 16\nrequire step_time < 1\npin tp=4", None),
}  # fmt: skip


@cache
def _explained(text: str, *names: str) -> str:
    result = answer(Source("run.moe", text), names)
    assert not result.failed, result.diagnostics
    (e,) = result.explanations
    return json.dumps(e)


def explained(text: str, *names: str) -> dict[str, Any]:
    return json.loads(_explained(text, *names))


@pytest.mark.parametrize("case", CASES)
def test_reads(case: str, snapshot: SnapshotAssertion) -> None:
    text, name = CASES[case]
    e = explained(text, *([name] if name else []))
    assert text_of(e) == snapshot(extension_class=Explanation, name="")


def test_a_value_that_has_run_is_explained_as_in_the_plan_and_the_recipe() -> None:
    text = "deepseek_v3; h100 x 1024; precision fp8; throughput first"
    plan = plan_of(text)
    near = {d.name: d.because.partition("; ") for d in plan.decisions if (d.because or "").startswith("nearest to ")}
    assert near
    for axis, (first, _, others) in near.items():
        said = explained(text, axis)
        assert f"{first}; {others}".startswith(said["origin"]["near"])
        assert said["origin"]["near"] in " ".join(text_of(said).split())
        assert first in recipe_text(plan)


def test_a_value_that_is_on_or_off_is_written_as_plans_write_it() -> None:
    """A condition stays true or false."""
    shown = text_of(explained(CASES["overview"][0]))
    assert re.search(r"^  ep_overlap +off ", shown, re.M) and not re.search(r"^  \S+ +(true|false) ", shown, re.M)
    text, name = CASES["derived_environment"]
    shown = text_of(explained(text, str(name)))
    assert "  not ep_overlap = true\n" in shown and "  ep_overlap = off\n" in shown


def test_a_score_is_not_called_the_step_time() -> None:
    """It is longer by the worth of advice that is not followed."""
    text = "deepseek_v3; gb200 x 64; throughput first"
    e = explained(text, "ep")
    (rank,) = (r for r in e["rules"] if r["kind"] == "rank")
    ((key),) = rank["keys"]
    assert key["text"] == "score" and key["value"] > e["plan"]["step_time_s"]
    said = {r.id: r.because or "" for r in program(text).of("rank")}
    assert "worth of each advice" in said[rank["rule"]]
    assert all("worth of each advice" in because for because in said.values() if " step " in because)


def test_a_sentence_keeps_its_capitals() -> None:
    """As the diagnostic has them, but for the first letter."""
    text, _ = CASES["wishes_collide"]
    e = explained(text) | {"relaxations": [], "together": ["no change alone opens a layout of 8 GPUs"]}
    assert "No change alone opens a layout of 8 GPUs" in " ".join(text_of(e).split())


# ---------------------------------------------------------------- claims, asked again


def pinned_to(p: Program, axis: str, value: Any) -> Program:
    code = axes.BY_NAME[axis].encode(value)
    return evolve(p, pins={**p.pins, axis: Pin(axis, code, p.spans["hardware"])})


COSTED = table_of("explainer", "explanations: costed")


@pytest.mark.parametrize(("text", "axis"), rotation.some("alternatives", COSTED, 1))
def test_an_alternative_costs_what_pinning_it_gives(text: str, axis: str) -> None:
    e, p = explained(text, axis), program(text)
    assert e["alternatives"]
    for a in e["alternatives"]:
        rows = solve(pinned_to(p, axis, a["value"]), p.gpus or 0, keep=1, must_fit="high").solution.rows
        if not rows:
            assert a["best"]["layout"] is None, a
            continue
        assert a["best"]["step_time_s"] == rows[0].step_time
        assert a["best"]["peak_gib"] == rows[0].peak_memory / 2**30
        assert a["best"]["layout"] == {n.name: n.decode(rows[0].codes[n.name]) for n in axes.AXES}


@pytest.mark.parametrize(("text", "axis"), rotation.some("breaks", COSTED, 1))
def test_what_breaks_with_all_else_fixed_is_refused(text: str, axis: str) -> None:
    """The whole layout pinned with the one value changed has a layout exactly where nothing is said to break."""
    e, p = explained(text, axis), program(text)
    base = plan_for(p, p.gpus or 0, keep=1).solution.rows[0]
    whole = evolve(p, pins={n: Pin(n, code, p.spans["hardware"]) for n, code in base.codes.items()})
    for a in e["alternatives"]:
        rows = solve(pinned_to(whole, axis, a["value"]), p.gpus or 0, keep=1, must_fit="high").solution.rows
        assert bool(rows) == (not a["same_otherwise"]["breaks"]), a
        if rows:
            assert a["same_otherwise"]["step_time_s"] == pytest.approx(rows[0].step_time)


PRICED = table_of("explainer", "explanations: priced")


@pytest.mark.parametrize("text", rotation.some("prices of advice", PRICED, 1))
def test_the_price_of_advice_is_what_requiring_or_dropping_it_gives(text: str) -> None:
    e, p = explained(text), program(text)
    base = solve(p, p.gpus or 0, keep=1).solution.rows[0]
    for a in (a for a in e["advice"] if a["price"] is not None):
        rules = [r for r in p.rules if r.id != a["rule"]]
        mine = next(r for r in p.rules if r.id == a["rule"])
        wanted = evolve(mine, kind="require") if a["state"] == "not followed" else None
        q = evolve(p, rules=(*rules, wanted) if wanted else tuple(rules))
        rows = solve(q, p.gpus or 0, keep=1, must_fit="high").solution.rows
        if not rows:
            assert a["price"] == {"layout": None}
            continue
        assert a["price"]["step_time_s"] == rows[0].step_time, a["rule"]
        assert a["price"]["step_time_change"] == rows[0].step_time / base.step_time - 1


INFEASIBLE = [CASES[c][0] for c in ("law_conflict", "law_conflict_overlap", "wishes_collide", "memory", "too_slow")]


@pytest.mark.parametrize("text", INFEASIBLE)
def test_a_conflict_is_minimal(text: str) -> None:
    """Without any one member something fits, or is legal where the conflict is one of laws; asked of the plain search."""
    e, p = explained(text), program(text)
    all_ = members(solve(p, p.gpus or 0, keep=0).compiled)
    core = [
        m
        for m in all_
        if any(m.span.start == x["at"].get("start", m.span.start) and named(m, x, p) for x in e["conflict"])
    ]
    assert len(core) == len(e["conflict"]), (core, e["conflict"])
    soft = [m for m in all_ if m.stated or m.kind == "candidates" or not e["legal_but_for_prices"]]
    for m in core:
        others = [x for x in core if x is not m]
        q = without(p, [x for x in soft if x not in others])
        found = solve(q, p.gpus or 0, keep=1)
        assert found.solution.rows if e["legal_but_for_prices"] else some_layout(found.compiled), m.key


def named(m: Any, x: dict[str, Any], p: Program) -> bool:
    return m.kind == x["kind"] and (m.key == x["name"] or x["name"].startswith(f"{m.key}=") or m.kind == "wish")


@pytest.mark.parametrize("text", INFEASIBLE)
def test_a_relaxation_opens_what_it_says(text: str) -> None:
    """Dropping the pin that a relaxation names opens as many meshes as it says, and its best layout is the best."""
    e, p = explained(text), program(text)
    for r in e["relaxations"]:
        found = re.match(r"write `pin (\w+)=", r["change"])
        if found is None:
            continue
        q = evolve(p, pins={a: pin for a, pin in p.pins.items() if a != found[1]})
        solution = solve(q, p.gpus or 0, keep=1).solution
        assert (solution.legal, solution.rows[0].step_time) == (r["legal_layouts"], r["step_time_s"])


@pytest.mark.parametrize("text", INFEASIBLE)
def test_the_nearest_layout_fails_as_its_tree_says(text: str) -> None:
    """A failing expression is false, and its parts add up: an arithmetic node is what Python makes of its text."""
    nearest = explained(text)["nearest"]
    if nearest is None:  # two wishes that exclude each other have no layout near both
        return
    assert nearest["tree"]["value"] is False
    checked = [
        n for n in nodes(nearest["tree"]) if len(n["parts"]) == 2 and re.fullmatch(r"\w+ [*%/-]{1,2} \w+", n["text"])
    ]
    for n in checked:
        values = {x["text"]: x["value"] for x in n["parts"]}
        assert eval(n["text"], {}, values) == n["value"], n


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(n for part in tree["parts"] for n in nodes(part))]


def test_legality_agrees_with_the_search() -> None:
    for text in INFEASIBLE:
        p = program(text)
        c = solve(p, p.gpus or 0, keep=0).compiled
        assert legal_on(c) == some_layout(c)


def test_variants_agree_with_searches_of_their_own() -> None:
    p = program("qwen3_30b_a3b; h100 x 32; throughput first")
    c = solve(p, 32, keep=0)
    asked = [("ep", v) for v in (1, 4, 8)] + [("recompute", v) for v in (0, 128)] + [("offload", 1)]
    found = Search(c.compiled, c.cost).answers([Question({a: v}) for a, v in asked])
    for (axis, v), f in zip(asked, found, strict=True):
        q = evolve(p, pins={axis: Pin(axis, v, p.spans["hardware"])})
        rows = solve(q, 32, keep=1).solution.rows
        assert (f.row.codes if f.row else None) == (rows[0].codes if rows else None)


# ---------------------------------------------------------------- what may be asked


def test_a_field_of_the_recipe_leads_to_its_word() -> None:
    e = explained("moonlight_16b; h100 x 8", "model.tensor_model_parallel_size")
    assert (e["name"], e["field"]["path"]) == ("tp", "model.tensor_model_parallel_size")
    assert explained("moonlight_16b; h100 x 8", "tensor_model_parallel_size")["name"] == "tp"


@pytest.mark.parametrize("name", ["model.mtp_num_layers", "mtp_num_layers"])
@pytest.mark.parametrize("text", ["qwen3_next_80b_a3b; gb200 x 64", "nemotron_3_super; gb200 x 64"])
def test_a_derived_field_is_explained_by_its_whole_name(text: str, name: str) -> None:
    e = explained(text, name)
    assert (e["value"], e["origin"]["kind"]) == (1, "derived")
    assert e["origin"]["rule"].endswith("_mtp.model.mtp_num_layers")


@pytest.mark.parametrize(
    ("text", "value", "why"), table_of("explainer", "explanations: a pipeline layout has a reason", none="-")
)
def test_a_pipeline_layout_has_a_reason(text: str, value: str | None, why: str | None) -> None:
    e = explained(text, "pipeline_layout")
    assert e["value"] == value or (value and e["value"].startswith(value))
    assert (e["origin"]["kind"] == "pinned") if why is None else (why in e["origin"]["because"])


def test_an_unknown_name_has_a_way_out() -> None:
    result = answer(Source("run.moe", "moonlight_16b; h100 x 8"), ["tensor_parallel"])
    (d,) = result.diagnostics
    assert d.id == "explain.unknown_name" and d.help


def test_one_run_of_several() -> None:
    text = "model moonlight_16b\nrun small { h100 x 8 }\nrun large { h100 x 16 }\n"
    both = answer(Source("run.moe", text), ["gpus"])
    assert [e["value"] for e in both.explanations] == [8, 16]
    (one,) = answer(Source("run.moe", text), ["gpus"], "large").explanations
    assert one["run"] == "large"
    assert answer(Source("run.moe", text), [], "larger").diagnostics[0].id == "explain.unknown_run"


def test_every_decision_can_be_asked_about() -> None:
    p = program("qwen3_30b_a3b; h100 x 16")
    base = based(solve(p, 16, keep=1), {})
    assert isinstance(base, Context)
    names = [d["name"] for d in explained("qwen3_30b_a3b; h100 x 16")["decisions"]]
    result = answer(Source("run.moe", "qwen3_30b_a3b; h100 x 16"), names)
    assert not result.failed and len(result.explanations) == len(names)
    for name in rotation.some("decisions", names, 2):
        (alone,) = answer(Source("run.moe", "qwen3_30b_a3b; h100 x 16"), [name]).explanations
        assert alone == result.explanations[names.index(name)]


def test_a_fact_of_the_hardware_says_where_it_is_from() -> None:
    """The data sheet's memory is not the one of the page, which the driver shows."""
    memory, hidden = answer(Source("run.moe", "qwen3_30b_a3b; h100 x 16"), ["memory", "hidden"]).explanations
    said = memory["origin"]
    assert (said["kind"], memory["value"]) == ("declared", 80_000_000_000)
    assert "hardware h100: 80 GB by the data sheet" in said["because"] and "79.6 GiB" in said["because"]
    assert said["cite"] == ["nvidia H100 Tensor Core GPU datasheet, H100 SXM: GPU memory"]
    assert hidden["origin"]["because"] == "a fact of model qwen3_30b_a3b"


@pytest.mark.parametrize(("name", "value", "said"), table_of("explainer", "explanations: units", none="-"))
def test_a_value_has_the_unit_that_a_person_expects(name: str, value: object, said: str) -> None:
    e = explained("qwen3_30b_a3b; h100 x 16; for 2T tokens", name)
    assert value is None or e["value"] == value
    assert said in text_of(e)
    json.dumps(e, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "kind"), [("peak_memory", "derived"), ("run_tokens", "pinned"), ("bridge_version", "pinned")]
)
def test_an_estimate_and_a_statement_are_no_default_of_the_language(name: str, kind: str) -> None:
    assert explained("qwen3_30b_a3b; h100 x 16; for 2T tokens; target bridge 0.6.2", name)["origin"]["kind"] == kind


@pytest.mark.parametrize(("name", "says"), table_of("explainer", "a rule of the run has a page"))
def test_a_rule_of_the_run_has_a_page(name: str, says: str) -> None:
    """`moedsl explain FILE` lists the advice of a run file by these ids."""
    source = Source("run.moe", f"qwen3_30b_a3b; h100 x 16; require dp >= 4; prefer cp <= 4\n{OWN}")
    result = answer(source, [name], page=page)
    assert not result.failed
    (e,) = result.explanations
    assert e["kind"] == "page" and says in e["text"]


def test_advice_is_not_blamed_for_a_choice_between_equals() -> None:
    """Of layouts within the error the plan takes the one nearest to what has run. Dropping an advice that both follow
    changes nothing, though a search without this choice finds the other one."""
    text = "deepseek_v3; gb200 x 256; precision mxfp8; batch 4096; throughput first"
    p = program(text)
    base, plain = (f(p, 256, keep=1).solution.rows[0] for f in (plan_for, solve))
    assert base.codes != plain.codes and base.step_time > plain.step_time
    prices = {a["rule"]: a["price"] for a in explained(text, "dp")["advice"]}
    assert prices["std.layout_advice.keep_dp"]["changes"] == {}
    assert prices["std.layout_advice.keep_dp"]["step_time_change"] == 0


def test_advice_that_a_law_refuses_is_not_said_to_lack_memory() -> None:
    """One GPU has no two replicas: memory has no part in it."""
    text = (ROOT / "examples/smoke.moe").read_text(encoding="utf-8")
    (advice,) = [a for a in explained(text, "dp")["advice"] if a["state"] == "not followed"]
    assert advice["price"]["because"] == "no legal layout that follows it fits"
