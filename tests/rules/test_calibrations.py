"""The numbers of the machine: each is declared with its meaning, and a user may state any of them."""

import ast
import re

import pytest

from moedsl.compiler import compile_source
from moedsl.facts import calibration
from moedsl.lang.parser import parse
from moedsl.rules import library, stdlib
from moedsl.rules.declarations import EVERY
from moedsl.rules.stdlib import load
from moedsl.support import resources
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.programs import solved
from tests.helpers.tables import table_of

KNOWN = stdlib.load().constants(EVERY)[0]
assert KNOWN is not None
ODD = ("nan", "inf", "-inf", "-0.5", "-1e300", "none", "true", '"x"', "[1]")
FACTS = ("value", "low", "high", "spread")
RUN = "qwen3_30b_a3b; h100 x 16; throughput first; seq 4096; batch 1024"


def test_each_number_says_what_it_is() -> None:
    for constant in KNOWN.known.values():
        assert constant.low <= constant.value <= constant.high, constant
        assert constant.unit in calibration.UNITS, constant
        assert len(constant.about) > 10 and constant.measure and constant.source, constant


def test_a_number_in_python_is_declared() -> None:
    assert {*KNOWN.known} == {*calibration.NAMES}


def seconds(text: str) -> float:
    (chosen,) = solved(text).chosen
    return chosen.solution.rows[0].step_time


def test_a_user_states_one_number() -> None:
    own = (stdlib_dir() / "calibration/hopper.moe").read_text(encoding="utf-8")
    assert seconds(own + RUN) == seconds(RUN)
    assert seconds(own.replace("{", "{ host_wait 3", 1) + RUN) > seconds(RUN)


@pytest.mark.parametrize("text, id, says", table_of("rules", "calibrations: a wrong number"))
def test_a_wrong_number_is_named(text: str, id: str, says: str) -> None:
    found = errors(text)
    assert any(d == id and says in message for d, message in found), found


def errors(text: str) -> list[tuple[str, str]]:
    found = compile_source(Source("main.moe", f"{text}\n{RUN}"), "plan").diagnostics
    return [(d.id, d.message) for d in found if d.is_error]


def declared(**facts: str) -> str:
    """The numbers of every generation, with other facts of `gemm`."""
    before, name, after = (stdlib_dir() / "calibration/any.moe").read_text(encoding="utf-8").partition("  gemm {")
    block, end, rest = after.partition("measure")
    for fact, value in facts.items():
        block = re.sub(rf"\b{fact} [^;\n]+", f"{fact} {value}", block, count=1)
    return before + name + block + end + rest


@pytest.mark.parametrize("facts, id, says", table_of("rules", "calibrations: a wrong declaration"), ids=str)
def test_a_wrong_declaration_is_named(facts: dict[str, str], id: str, says: str) -> None:
    found = errors(declared(**facts))
    assert any(d == id and says in message for d, message in found), found
    assert "check.missing_fact" not in [d for d, _ in found]


@pytest.mark.parametrize(
    "facts",
    [{}, {"value": "62%", "low": "40%"}, {"low": "0.62", "high": "0.7"}, {"spread": "0"}, {"unit": '"times"'}],
    ids=str,
)
def test_a_declaration_may_be_replaced_by_a_narrower_one(facts: dict[str, str]) -> None:
    assert seconds(f"{declared(**facts)}\n{RUN}") > 0


# Rule ids that Python names: each exists in the stdlib, and a stdlib without one does not load.

SOURCE = ROOT / "moedsl"


def test_the_stdlib_has_every_id_that_python_names() -> None:
    stdlib.require_known(load().rules)


def test_a_stdlib_without_a_named_rule_raises_and_names_it() -> None:
    sources = [s for s in library.sources(resources.stdlib_files()) if not s.name.endswith("rules/launch.moe")]
    missing = library.of_sources(sources, parse).own_rules
    with pytest.raises(LookupError, match=r"the stdlib has no .*std\.launch\.hardware.*rules/stdlib\.py"):
        stdlib.require_known(missing)


def test_no_other_module_writes_the_id_of_a_rule_that_does_not_exist() -> None:
    trees = [ast.parse(t) for p in SOURCE.rglob("*.py") if "std." in (t := p.read_text(encoding="utf-8"))]
    nodes = [n for tree in trees for n in ast.walk(tree)]
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    written = {id for text in texts for id in re.findall(r"\bstd\.\w+\.\w+\b", text)}
    known = {f"{prefix}.{b.name.id}.{m.name.id}" for prefix, b in load().rules for m in b.members if m.name}
    assert {*map(str, stdlib.RuleId)} <= written
    assert written - known == set()
