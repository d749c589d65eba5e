"""Rule ids that Python names: each exists in the stdlib, and a stdlib without one does not load."""

from __future__ import annotations

import ast
import re

import pytest

from moedsl.lang.parser import parse
from moedsl.rules import library, stdlib
from moedsl.rules.stdlib import load
from moedsl.support import resources
from tests.helpers.paths import ROOT

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
