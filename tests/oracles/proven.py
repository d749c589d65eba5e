"""What tests share that hold a rule against NVIDIA's code: the code's answers, and the rule's own word on the same case."""

import functools
import json
from typing import Any

from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rules
from tests.helpers import bridge_process
from tests.helpers.layouts import checked
from tests.helpers.paths import ROOT

FOLDER = ROOT / "tests" / "oracles"


def answers(script: str, *args: str) -> dict[str, Any]:
    """The JSON object that a script of this folder prints last, from a process of its own."""
    done = bridge_process.run(str(FOLDER / script), *args)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def _rules() -> Rules:
    (program,) = checked("model qwen3_30b_a3b; h100 x 16\n").programs
    return program.rules


def permits(rule: str, **values: Any) -> bool:
    """Whether a law holds for values that are all it reads."""
    (found,) = (r for r in _rules() if r.id == rule)
    return holds(found.expr, values)


def applies(rule: str, **values: Any) -> bool:
    """Whether a setting is derived for such values; `let`s that its condition reads are evaluated on the way."""
    (found,) = (r for r in _rules() if r.id == rule)
    for let in _rules().by_kind["let"]:
        if let.id.rsplit(".", 1)[0] == rule.rsplit(".", 2)[0]:
            values[let.name] = evaluate(let.expr, values)
    return holds(found.when, values)


def derived(rule: str, **values: Any) -> Any:
    """The value that a setting has."""
    (found,) = (r for r in _rules() if r.id == rule)
    return evaluate(found.expr, values)
