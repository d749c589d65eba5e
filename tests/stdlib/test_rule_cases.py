"""Each rule of the stdlib has a case that it accepts and one that it rejects; a rule without them fails here."""

import pytest

from tests.helpers.lint_cases import MISTAKES
from tests.helpers.paths import ROOT
from tests.helpers.rule_cases import ALSO, EVERY, Case
from tests.helpers.rule_pairs import PAIRS
from tests.oracles.rule_judge import Run, known, of_recipes, verdict

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


def test_no_case_is_of_a_rule_that_is_gone() -> None:
    assert PAIRS.keys() - KNOWN.keys() == set()


def _run(case: Case) -> Run:
    return Run(case.layout, facts=tuple(case.facts.items()))


def _shown(run: Run | str) -> str:
    return run if isinstance(run, str) else run.text
