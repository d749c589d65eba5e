"""`moedsl lint` through the real Bridge: each known mistake is found on its line, and its near neighbour is not."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.bridge.lint import rules, run
from moedsl.bridge.lint.report import Lint, merged
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, devices
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.support.diagnostics import to_json
from tests.helpers import rotation
from tests.helpers.bridge_recipes import write
from tests.helpers.lint_cases import MISTAKES, VALUES
from tests.helpers.tables import table_of

pytestmark = pytest.mark.bridge
ALWAYS = ("captured attention of Qwen3.5", "TP overlap without TP")
TAKEN = [*ALWAYS, *rotation.some("mistakes", [n for n in MISTAKES if n not in ALWAYS], len(MISTAKES) // 3)]
NEIGHBOURS = rotation.some("neighbours of mistakes", TAKEN, len(MISTAKES) // 16)
"""The mistakes of this run, and those of which it asks for the near neighbour too."""


@pytest.fixture(scope="module")
def linted(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Lint]:
    """The mistakes and neighbours by name, in one batch."""
    root = tmp_path_factory.mktemp("lint")
    wanted: dict[str, Case] = {}
    for i, (name, m) in enumerate((name, MISTAKES[name]) for name in TAKEN):
        for kind, lines in (("bad", m.bad), ("good", m.good))[: 1 + (name in NEIGHBOURS)]:
            read = cases.read(str(write(root / f"{kind}{i}", m.base, *lines)))
            assert isinstance(read, Case)
            wanted[f"{kind}: {name}"] = evolve(read, device=devices()[m.gpu]) if m.gpu else read
    library = load_stdlib()
    book, _ = rules.read_rules(library)
    resolved = server.resolve([*wanted.values()])
    return {n: run.one(c, r, book, library) for (n, c), r in zip(wanted.items(), resolved, strict=True)}


@pytest.mark.parametrize("name", TAKEN)
def test_a_mistake_is_found_on_its_line(name: str, linted: Mapping[str, Lint]) -> None:
    found = linted[f"bad: {name}"]
    ids = [d.id for d in found.diagnostics]
    assert MISTAKES[name].id in ids, [d.message for d in found.diagnostics if d.is_error]
    d = to_json(found.diagnostics[ids.index(MISTAKES[name].id)], found.sources)
    assert Path(d["labels"][0]["file"]).name == "recipe.py"
    assert [x["source"] for x in d["labels"] if MISTAKES[name].at in x["source"]], d["labels"]


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_its_neighbour_is_not(name: str, linted: Mapping[str, Lint]) -> None:
    found = linted[f"good: {name}"]
    assert found.judged > 40, [d.message for d in found.diagnostics]
    assert MISTAKES[name].id not in [d.id for d in (*found.diagnostics, *found.inherited)]


LATE = table_of("lint", "mistakes: late")
"""Laws on values that Bridge's update does not judge, and the line behind it that does."""


@pytest.mark.parametrize("rule", [n for n in TAKEN if n in VALUES and not n.startswith("recipe_computed.")])
def test_bridge_refuses_the_value_that_a_law_refuses(rule: str, linted: Mapping[str, Lint]) -> None:
    ids = [d.id for d in linted[f"bad: {rule}"].diagnostics]
    assert ("lint.refused" in ids) == (rule not in LATE)
    if rule in NEIGHBOURS:
        refused = [d.message for d in linted[f"good: {rule}"].diagnostics if d.id == "lint.refused"]
        assert refused == []


def test_captured_attention_of_qwen35_is_no_error(linted: Mapping[str, Lint]) -> None:
    """NVIDIA's recipe of its language model captures it (bridge recipes/qwen/gb200/qwen35.py:159)."""
    found = linted["bad: captured attention of Qwen3.5"]
    severities = {d.id: d.severity for d in found.diagnostics}
    assert severities["std.captured_attention.with_positions"] == "warning"
    assert "std.vision.no_captured_attention" not in severities


def test_every_rule_for_recipes_has_a_mistake() -> None:
    known, wrong = rules.collect(load_stdlib())
    assert not wrong
    of_arguments = "std.megatron_"  # tests/megatron_lm asks about these beside `validate_args`
    asked = {r.id for r in known if r.kind != "let" and not r.id.startswith(of_arguments)}
    assert asked - {m.id for m in MISTAKES.values()} == set()


def test_advice_of_the_base_recipe_is_given_once(linted: Mapping[str, Lint]) -> None:
    """A sixth of the recipes here start from one of NVIDIA's, which asks for TP overlap without TP; one sets it itself."""
    id = "std.recipe_flags.tp_overlap_acts"
    heirs = [x for x in linted.values() if id in [d.id for d in x.inherited]]
    assert len(heirs) > len(linted) // 6 and not any(id in [d.id for d in x.diagnostics] for x in heirs)
    of_one = [d for d in merged(heirs) if d.id == id and "base recipe" in d.message]
    assert [d.message.rpartition("(")[2] for d in of_one if "recipes)" in d.message]
    assert len(of_one) <= len({d.labels for x in heirs for d in x.inherited if d.id == id}) < 8
    bad = linted["bad: TP overlap without TP"]
    assert id in [d.id for d in bad.diagnostics] and id not in [d.id for d in bad.inherited]
    assert not any(d.is_error for x in linted.values() for d in x.inherited)
