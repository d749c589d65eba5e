"""Impossible wishes: the core is minimal, it names what the user said and only that, and its ways out are ways out."""

import re
from collections.abc import Callable
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

from moedsl.compiler import Result, compile_source
from moedsl.cost import Cost
from moedsl.facts import axes
from moedsl.lang import text_edits
from moedsl.lang.parser import parse
from moedsl.solver import infeasible
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.tables import table_of


@lru_cache(maxsize=50)
def solved(text: str) -> Result:
    return compile_source(Source("run.moe", text), "solve")


def only_error(text: str) -> tuple[Diagnostic, list[str]]:
    """The one error of a program, and what its labels point at in the run file, less the hardware."""
    result = solved(text)
    errors = [d for d in result.diagnostics if d.is_error]
    assert len(errors) == 1, errors
    spans = [label.span for label in errors[0].labels if label.span.file == "run.moe"]
    return errors[0], [t for s in spans if " x " not in (t := text[s.start : s.end])]


CASES = [
    ("qwen3_235b_a22b; gb200 x 256; pin tp=3 cp=1", {"tp=3"}, r"std\.mesh\.\w+"),
    ("qwen3_30b_a3b; h100 x 3", set(), r"solve\.does_not_fit"),
    ("qwen3_30b_a3b; gb200 x 64; throughput first; pin ep_overlap=true pp=4 vpp=1 tp=1", {"ep_overlap=true", "pp=4", "vpp=1"}, r"std\.ep_overlap\.needs_vpp"),
    ("qwen3_30b_a3b; gb200 x 64; scale first; pin dispatcher=deepep cp=1", {"dispatcher=deepep"}, r"std\.dispatch\.deepep_gpu"),
    ("deepseek_v3; h100 x 8", set(), r"solve\.does_not_fit"),
    ("qwen3_30b_a3b; gb200 x 8; require tp > 4; pin tp=2 ep=4", {"require tp > 4", "tp=2"}, r"solve\.conflict"),
    ("qwen3_30b_a3b; gb200 x 8; seq 100; pin cp=4", {"cp=4", "seq 100"}, r"std\.batch\.context_shards"),
    ("qwen3_30b_a3b; gb200 x 8; pin dp=3 ep=2", {"dp=3"}, r"solve\.conflict|std\.mesh\.\w+"),
    ("deepseek_v3; h100 x 64; throughput first; pin recompute=none tp=1", None, r"solve\.does_not_fit"),
    ("qwen3_30b_a3b; h100 x 16; precision nvfp4; pin tp=2", {"precision nvfp4"}, r"std\.precision\.nvfp4_gpu"),
    ("qwen3_30b_a3b; a100_80gb x 16; precision fp8", {"precision fp8"}, r"std\.precision\.fp8_gpu"),
    ("qwen3_30b_a3b; gb200 x 8; rules mine {\n require odd: tp % 2 == 1 because \"odd\" cite mine \"here\"\n}\npin tp=2 ep=2", {"tp=2", "odd"}, r"run\.mine\.odd"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said", "id"), rotation.some("conflicts", CASES, 3))
def test_the_statements_that_collide_and_only_those(text: str, said: set[str] | None, id: str) -> None:
    error, spans = only_error(text)
    assert re.fullmatch(id, error.id), (error.id, error.message)
    assert said is None or set(spans) == said, (spans, error.message)
    assert error.help


@pytest.mark.parametrize(("text", "said", "id"), CASES)
def test_a_way_out_leads_out(text: str, said: set[str] | None, id: str) -> None:
    """A line of help that says what to write, written into the program, compiles."""
    error, _ = only_error(text)
    for line in rotation.some(f"ways out of {text}", error.help, 1):
        for changed in applied(text, line):
            result = solved(changed)
            assert result.chosen, (line, changed, [d.message for d in result.diagnostics])


def applied(text: str, line: str) -> list[str]:
    """The program with a help line followed; none where the line says that nothing helps."""
    if found := re.match(r"write `pin (\w+)=([^`]*)`", line):
        if re.search(rf"\b{found[1]}=", text):
            return [re.sub(rf"\b{found[1]}=(\[[^\]]*\]|\S+?)(?=[\s;]|$)", f"{found[1]}={found[2]}", text, count=1)]
        return [re.sub(rf"\b{found[1]} \w+", f"{found[1]} {found[2]}", text, count=1)]
    if found := re.match(r"write `(\w+ x \d+|batch \w+)`", line):
        return [changed_to(text, found[1])]
    if found := re.match(r"write `(seq \w+)`", line):
        return [re.sub(r"; seq \w+", "", text) + f"; {found[1]}"]
    if found := re.match(r"drop `([^`]*)`", line):
        name, _, value = found[1].partition(" == ")
        return [text.replace(f"require {found[1]}", "").replace(f" {name}={value}", "")]
    if found := re.match(r"pin (\w+=\S+?),? which (?:the phase|rule `\S+`) does not try", line):
        return [f"{text}\npin {found[1]}"]
    if found := re.match(r"drop rule `run\.\w+\.(\w+)`, or write `(allow [^`]*)`", line):
        return [f"{text}\n{found[2]}", re.sub(rf"require {found[1]}: .*?(?=;|\n|\}})", "", text)]
    if found := re.match(r"no single change .* with (.*) \(", line):
        return [reduce(changed_to, re.findall(r"`([^`]*)`", found[1]), text)]
    assert line.startswith(("write `precision", "allow", "drop")) or " collide: " in line or "memory" in line, line
    return []


def changed_to(text: str, change: str) -> str:
    """The program with `pin tp=1` or `h100 x 8` in place of what it says about the same."""
    if found := re.fullmatch(r"pin (\w+)=(.*)", change):
        return re.sub(rf"\b{found[1]}=\S+", f"{found[1]}={found[2]}", text, count=1)
    word = r"\w+ x \d+" if " x " in change else rf"\b{change.split()[0]} \w+"
    return re.sub(word, change, text, count=1)


SEVERAL = [
    ("deepseek_v3; h100 x 512; pin tp=8 pp=8 ep=64 etp=2 cp=2 ep_overlap=on recompute=full vpp=2 dispatcher=deepep",
     {"expert_mesh", "no_full_recompute"}, False),
    ("deepseek_v3; h100 x 3; seq 100; pin tp=8", {"sequence_shards"}, True),
    ("qwen3_30b_a3b; h100 x 16; precision nvfp4; pin ep_overlap=on recompute=full tp=3",
     {"nvfp4_gpu", "no_full_recompute", "heads"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "laws", "memory"), SEVERAL)
def test_conflicts_that_have_to_be_solved_together_are_all_named(text: str, laws: set[str], memory: bool) -> None:
    error, spans = only_error(text)
    first, *each = error.help
    assert first.startswith(f"no single change opens a layout: these {len(laws) + memory} conflicts"), first
    for law in laws:
        assert law in error.message and any(law in line for line in each), (law, error)
    assert ("the memory of 3 h100" in error.message) == memory
    assert all(any(word in s for s in spans) for word in re.findall(r"pin (\w+=)", first)), spans
    for changed in applied(text, first):
        assert solved(changed).chosen, changed


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("qwen3_30b_a3b; h100 x 16; precision mxfp8", "mxfp8"),
        ("deepseek_v3; gb200 x 64; throughput first; seq 64k; batch 128; precision fp8; pin tp=64", "fp8"),
    ],
    ids=["which the GPU lacks", "which needs too much memory"],
)
def test_a_format_gives_way_to_every_format_that_is_possible(text: str, asked: str) -> None:
    """Without the wish a run is BF16: whoever asked for eight bits would not have been told of the others of the GPU."""
    error, _ = only_error(text)
    named = re.search(r"write `precision (\w+)`, or ([\w, ]+), or drop it", "\n".join(error.help))
    assert named
    offered = {named[1], *named[2].split(", ")}
    words = set(axes.BY_NAME["precision"].words) - {asked}
    assert offered == {w for w in words if solved(text.replace(asked, w)).chosen} and len(offered) > 1
    assert {f"precision={w}" for w in offered} <= {f.title.split("`")[1] for f in error.fixes}


def test_what_no_layout_obeys_without_the_conflict_is_named() -> None:
    text = "qwen3_30b_a3b; h100 x 8; seq 100; batch 64; require step_time < 0.3; pin tp=8"
    error, spans = only_error(text)
    still = "without these, still no layout that fits in the memory of 8 h100 obeys `step_time < 0.3`"
    assert error.message.endswith(still) and error.help[-1] == still
    assert any("step_time < 0.3" in s for s in spans)
    for changed in applied(text, error.help[0]):
        assert solved(changed).chosen, changed


def test_a_limit_of_the_memory_is_its_own_reason() -> None:
    text = "qwen3_30b_a3b; h100 x 8; require peak_memory < {:.1f} GB"
    error, _ = only_error(text.format(10))
    found = re.search(r"the least is a `peak_memory` of ([\d.]+) GB", error.message)
    assert found and error.because is None and "the GPU has 79.6" in error.message
    least = float(found[1])
    assert not solved(text.format(least - 0.1)).chosen and solved(text.format(least + 0.1)).chosen


def test_more_gpus_and_a_pin_less_where_memory_lacks() -> None:
    """No pin alone and no number of GPUs alone leads out; both do."""
    text = "deepseek_v3; h100 x 8; seq 128k; pin tp=1 pp=1 cp=1 ep=1"
    error, _ = only_error(text)
    (line,) = error.help
    assert error.id == "solve.does_not_fit" and line.startswith("no single change opens a layout: several are needed")
    assert " x " in line and "pin" in line
    for changed in applied(text, line):
        assert solved(changed).chosen, changed


@pytest.mark.parametrize("text", ["deepseek_v3; h100 x 8; seq 4k", "qwen3_30b_a3b; h100 x 16; seq 1024G"])
def test_the_least_memory_is_not_above_the_best_estimate(text: str) -> None:
    """Both are of all that the GPU holds, in torch and outside."""
    values = only_error(text)[0].values
    assert values["visible_gib"] < values["least_gib"] <= values["best_gib"]


def test_a_law_of_two_conflicts_is_pointed_at_once() -> None:
    error, _ = only_error("deepseek_v3; gb200 x 6; seq 100; batch 7; pin tp=4 pp=4")
    assert error.message.count("std.mesh.attention_mesh") == 2
    assert sum(label.text == "required here" for label in error.labels) == 1


OWN_TWO = (
    'rules house { require a: tp >= 4 because "x" cite y "z"; require b: tp <= 2 because "x" cite y "z" }\n'
    "qwen3_30b_a3b; h100 x 32"
)


LIMITS = table_of("explainer", "infeasible: limits")


@pytest.mark.parametrize(("limit", "id", "said"), rotation.one_of_each("limits", LIMITS, lambda case: case[1]))
def test_a_limit_of_a_law_is_named(limit: str, id: str, said: str) -> None:
    """It refuses the run, not the memory of its GPUs."""
    rules = f'rules house {{\n require x: {limit} because "a test" cite ours "here"\n}}'
    error, spans = only_error(f"qwen3_30b_a3b; h100 x 16; throughput first\n{rules}")
    assert re.fullmatch(id, error.id) and said in error.message and spans == ["x"]
    assert 'drop rule `run.house.x`, or write `allow house.x because "..."` (6824 layouts open)' in error.help


def test_rules_of_the_run_file_give_way() -> None:
    """Dropped or allowed; and no value is shown of a layout that breaks one of the two at will."""
    error, _ = only_error(OWN_TWO)
    assert [line.split("`")[1] for line in error.help] == ["run.house.a", "run.house.b"]
    assert not error.values and "tp=" not in error.message
    assert not any(label.text == "32 h100" for label in error.labels[1:])
    for line in error.help:
        assert len(applied(OWN_TWO, line)) == 2
        assert all(solved(changed).chosen for changed in applied(OWN_TWO, line)), line


@pytest.mark.parametrize(("text", "way"), table_of("explainer", "infeasible: a size that collides"))
def test_a_size_that_collides_is_pointed_at_and_has_a_way_out(text: str, way: str) -> None:
    error, spans = only_error(text)
    assert f"{way.split()[0]} 100" in spans
    assert any(line.startswith(f"write `{way}`:") for line in error.help), error.help
    assert solved(re.sub(rf"{way.split()[0]} 100", way, text)).chosen


def test_gpus_are_pointed_at_where_a_law_reads_them() -> None:
    error, _ = only_error("deepseek_v3; h100 x 512; seq 100; pin tp=8")
    assert not any("512" in label.text for label in error.labels)


@pytest.mark.parametrize(
    "pins", rotation.some("any number", ["seq 100; pin tp=8", "pin tp=3", "pin ep_overlap=on recompute=full"], 1)
)
def test_a_conflict_on_any_number_of_gpus_is_said_without_one(pins: str) -> None:
    """Not as a lack of memory, and with ways out that lead out."""
    text = f"deepseek_v3; h100; {pins}"
    error, _ = only_error(text)
    assert error.id.startswith("std.") and "any number of h100" in error.message
    assert not any("number of GPUs" in line for line in error.help)
    for line in rotation.some(f"ways out of {text}", error.help, 1):
        assert all(solved(changed).chosen for changed in applied(text, line)), line


@pytest.mark.parametrize("text, said", table_of("explainer", "infeasible: values that every layout has", none="-"))
@pytest.mark.usefixtures("compiles_anew")
def test_values_that_every_layout_has_need_no_search(
    text: str, said: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the nearest layout."""
    seen: list[infeasible.Infeasible] = []
    analyse = infeasible.analyse
    monkeypatch.setattr(infeasible, "analyse", lambda c: seen.append(analyse(c)) or seen[-1])
    solved.__wrapped__(text)
    (x,) = seen
    assert (said is None) == (infeasible.anywhere(x.chosen, x.core) is None)
    assert x.values == x.near.values or len(x.laws) > 1
    if said is not None:
        assert x.values.by_name == said


@pytest.mark.usefixtures("compiles_anew")
def test_many_policies_of_a_few_meshes_are_priced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one call for each policy a refusal with 96 lists made 4,959; with 16 lists this one makes 130."""
    calls = 0
    spare = Cost.spare

    def counted(self: Cost, cols: Any, *more: Any) -> Any:
        nonlocal calls
        calls += 1
        return spare(self, cols, *more)

    monkeypatch.setattr(Cost, "spare", counted)
    sets = [c for n in (1, 2, 3, 4) for c in combinations(axes.OFFLOAD_MODULES, n)][:16]
    lists = ", ".join(f"[{', '.join(c)}]" for c in sets)
    rule = f'rules of_lists {{ candidates offload_modules = [{lists}] because "a test" cite ours "here" }}'
    solved.__wrapped__(f"deepseek_v3; h100 x 64; seq 4k; batch 64; fit first\n{rule}\n")
    assert 0 < calls < 330


@pytest.fixture
def cores(compiles_anew: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """Every core that is found, with the test that it was found by."""
    seen: list[tuple[Any, Any, Any]] = []
    found = infeasible.minimal

    def spy(soft: list[Any], test: Callable[[list[Any]], bool]) -> list[Any]:
        core = found(soft, test)
        seen.append((soft, test, core))
        return core

    monkeypatch.setattr(infeasible, "minimal", spy)
    return seen


WISHES = table_of("explainer", "infeasible: wishes")


@st.composite
def programs(draw: st.DrawFn) -> str:
    wishes = draw(st.lists(st.sampled_from(WISHES), min_size=2, max_size=5, unique=True))
    numbers = st.sampled_from([1, 2, 3, 4, 7, 8])
    head = draw(st.sampled_from(["qwen3_30b_a3b; h100 x 8", "moonlight_16b; gb200 x 8", "gpt_oss_120b; gb200 x 12"]))
    phase = draw(st.sampled_from(["fit", "scale", "throughput"]))
    return "; ".join([head, f"{phase} first", *(w.format(n=draw(numbers)) for w in wishes)])


@settings(max_examples=rotation.examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_a_core_is_minimal(cores: list[tuple[Any, Any, Any]], text: str) -> None:
    """Together its members are impossible; without any one of them they are not."""
    cores.clear()
    result = solved.__wrapped__(text)
    assume(cores)
    _, test, core = cores[0]
    assert result.failed
    assert not test(core), (text, core)
    for member in core:
        assert test([m for m in core if m is not member]), (text, member.key, [m.key for m in core])


@pytest.mark.parametrize(("sweep", "help", "fix"), table_of("explainer", "infeasible: the way out of a sweep"))
def test_the_way_out_of_a_sweep_is_without_its_value(sweep: str, help: str, fix: str) -> None:
    """A pin of another value would state the axis twice."""
    head = "qwen3_30b_a3b; h100 x 16; "
    (error,) = [d for d in solved(head + sweep).diagnostics if d.is_error]
    assert error.help[0] == help
    source = Source("run.moe", head + sweep)
    left = text_edits.applied(source.text, text_edits.edits(error.fixes[0], source, parse(source)[0]))
    assert left.rstrip("; ") == (head + fix).rstrip("; ")
    assert not solved(left).failed


def test_the_candidates_of_a_user_are_not_those_of_the_phase() -> None:
    rules = 'rules mine { candidates tp = [3] because "x" cite ours "y" }'
    (error, _) = only_error(f"qwen3_30b_a3b; h100 x 16\n{rules}")
    assert error.help[0] == "pin tp=1, which rule `run.mine.tp` does not try"


def test_a_default_of_the_users_own_rules_is_in_the_conflict() -> None:
    own = 'rules mine { default tp = 3 because "a test" cite ours "here" }'
    error, spans = only_error(f"qwen3_30b_a3b; h100 x 16; fit first\n{own}")
    assert "std.mesh.heads, run.mine.tp collide" in error.message
    assert "tp" in spans
    (help,) = error.help
    value = re.match(r"pin tp=(\d+), which rule `run.mine.tp` does not try", help)
    assert value and solved(f"qwen3_30b_a3b; h100 x 16; fit first; pin tp={value[1]}\n{own}").chosen


@pytest.mark.parametrize(
    ("text", "sweep"), table_of("explainer", "infeasible: a swept size"), ids=["gpus", "seq", "batch"]
)
def test_a_swept_size_changes_in_the_sweep(text: str, sweep: str) -> None:
    error, _ = only_error(text)
    (named,) = re.findall(r"write `(sweep [^`]+)`", "\n".join(error.help))
    assert named != sweep and not solved(text.replace(sweep, named)).failed
    (fix,) = [f for f in error.fixes if named in f.title]
    assert text[fix.span.start : fix.span.end] == sweep


def test_a_condition_without_a_name_has_no_values() -> None:
    error, _ = only_error("qwen3_30b_a3b; h100 x 16; fit first; require 1 > 2")
    assert error.message.endswith("`1 > 2` cannot hold")
