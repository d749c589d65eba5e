"""Each rule of the stdlib has a case that it accepts and one that it rejects; a rule without them fails here."""

from typing import Any

import pytest
from attrs import evolve

from moedsl.emit.set_fields import free_rules, over_rules
from moedsl.facts.fields import accepted, choices, fields, path_of
from moedsl.rules.evaluators import evaluate
from moedsl.support.source import Span
from tests.helpers.lint_cases import MISTAKES
from tests.helpers.paths import ROOT
from tests.helpers.rule_cases import ALSO, EVERY, Case
from tests.helpers.rule_pairs import PAIRS
from tests.helpers.tables import table_of
from tests.oracles.rule_judge import Run, in_run, known, of_recipes, verdict

KNOWN = known()
LAWS = [n for n, r in KNOWN.items() if r.kind == "require" and n not in PAIRS]
ADD = "add `{}` to tests/data/rule_pairs.toml: a run that it accepts and one that it rejects"
ADD_LAW = "add to tests/data/law_cases.toml a layout that breaks `{}`, and a neighbour of it that does not"
ADD_MISTAKE = (
    "add to tests/data/lint_mistakes.txt a recipe with the mistake that `{}` finds, and its neighbour without it"
)


@pytest.mark.parametrize("name", [n for n in KNOWN if n not in LAWS])
def test_rule(name: str) -> None:
    """It accepts one case of its pair and rejects the other."""
    assert name in PAIRS, ADD.format(name)
    accepted, rejected = PAIRS[name]
    assert verdict(KNOWN[name], accepted) is True, f"`{name}` does not accept {_shown(accepted)}"
    assert verdict(KNOWN[name], rejected) is False, f"`{name}` does not reject {_shown(rejected)}"


@pytest.mark.parametrize("name", LAWS)
def test_law(name: str) -> None:
    """It rejects every layout that is said to break it, and accepts one on which it bears."""
    short = name.removeprefix("std.")
    broken = [c for n, c in EVERY.items() if short in ALSO.get(n, [c.law])]
    kept = [c for c in EVERY.values() if c.law is None]
    assert broken, ADD_LAW.format(short)
    assert all(verdict(KNOWN[name], _run(c)) is False for c in broken)
    assert any(verdict(KNOWN[name], _run(c)) for c in kept), (
        f"{ADD_LAW.format(short)}: no layout of it bears on the law"
    )


REFUSALS = (ROOT / "tests/data/megatron_lm/refusals.tsv").read_text(encoding="utf-8").splitlines()
OF_ARGUMENTS = {line.split("\t")[2] for line in REFUSALS if not line.startswith("#")}
"""The rules over arguments of Megatron-LM, which tests/megatron_lm asks about beside `validate_args`."""


@pytest.mark.parametrize("name", [n for n in of_recipes() if n.removeprefix("std.") not in OF_ARGUMENTS])
def test_rule_of_recipes(name: str) -> None:
    """A recipe has the mistake that it finds, and a neighbour has not; tests/lint/test_mistakes.py asks about both."""
    mine = [m for m in MISTAKES.values() if m.id == name]
    assert mine, ADD_MISTAKE.format(name)
    assert all(m.bad != m.good for m in mine)


DERIVED = [n for n, r in KNOWN.items() if r.kind == "derive" and path_of(r.name) in fields()]


@pytest.mark.parametrize("name", DERIVED)
def test_the_contrary_of_a_derived_value_is_told(name: str) -> None:
    """With the rule's reason and source, unless the table says that the value is the user's to choose."""
    rule, (run, _) = KNOWN[name], PAIRS[name]
    assert isinstance(run, Run)
    (program, env), path = in_run(run), path_of(rule.name)

    def told(value: Any) -> list[tuple[str, str | None, tuple[str, ...]]]:
        p = evolve(program, sets={path: value}, spans={path: Span("run.moe", 0, 1)})
        return [(d.id, d.because, d.cites) for d in over_rules(p, env)]

    if rule.id.startswith(tuple(free_rules())):
        assert told(None) == []
    else:
        assert told(evaluate(rule.expr, env)) == []
        assert told(_contrary(path, rule.expr, env)) == [("plan.set_over_rule", rule.because, rule.cites)]


def _contrary(path: str, expr: Any, env: Any) -> Any:
    """Another value of the field's kind."""
    value = evaluate(expr, env)
    if isinstance(value, bool):
        return not value
    listed = [v for v in choices(accepted(fields()[path])) if v not in (value, None)]
    return listed[-1] if listed else 2 * value + 1


def test_every_free_rule_is_there() -> None:
    assert all(any(r.id.startswith(n) for r in KNOWN.values()) and why for n, why in free_rules().items())


def test_every_default_may_be_replaced_for_a_reason() -> None:
    """A pin replaces a default by design; the laws judge what it pins."""
    assert {r.name for r in KNOWN.values() if r.kind == "default"} == {n for n, _ in table_of("stdlib", "defaults")}


def test_no_case_is_of_a_rule_that_is_gone() -> None:
    assert PAIRS.keys() - KNOWN.keys() == set()


def _run(case: Case) -> Run:
    return Run(case.layout, facts=tuple(case.facts.items()))


def _shown(run: Run | str) -> str:
    return run if isinstance(run, str) else run.text
