"""A recipe whose own code builds no configuration: one diagnostic for `verify` and for `lint`, on the line that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from moedsl.bridge.lint import rules, run
from moedsl.bridge.lint.report import Lint
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.support.diagnostics import to_json
from tests.helpers.bridge_recipes import QWEN_30B, write

pytestmark = pytest.mark.bridge
MODULE, _, FUNCTION = QWEN_30B.partition(":")
OLD = "from megatron.bridge.recipes.qwen.qwen3_moe import qwen3_30b_a3b_pretrain"
LINES = {
    "nothing": ("return None",),
    "another object": ("return m",),
    "a name of an old Bridge": (OLD,),
    "a module of an old Bridge": ("import megatron.bridge.recipes.qwen3",),
    "an attribute of nothing": ("m.embedding.size = 1",),
    "an argument of nothing": ("cfg.train = type(cfg.train)(no_such_argument=1)",),
}
TARGETS = {"a misspelt module": f"{MODULE}e:{FUNCTION}", "a misspelt function": f"{MODULE}:{FUNCTION}s"}
SAYS = {
    "nothing": ("returns NoneType, not a ConfigContainer", "return cfg", "def "),
    "another object": ("returns GPTModelProvider, not a ConfigContainer", "return cfg", "def "),
    "a name of an old Bridge": ("cannot import name", "did you mean `qwen3_30b_a3b_pretrain_config`?", OLD),
    "a module of an old Bridge": ("No module named", "written for another version", "import megatron.bridge.recipes.q"),
    "an attribute of nothing": ("no attribute 'embedding'", "", "m.embedding.size = 1"),
    "an argument of nothing": ("no_such_argument", "", "no_such_argument"),
    "a misspelt module": (f"No module named '{MODULE}e'", "written for another version", ""),
    "a misspelt function": (f"no function `{FUNCTION}s`", f"did you mean `{FUNCTION}`?", ""),
}


@pytest.fixture(scope="module")
def answers(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Report, Lint]]:
    """What verify and lint say of each, in one batch with a good recipe at its end."""
    root = tmp_path_factory.mktemp("load")
    targets = {name: str(write(root / str(i), QWEN_30B, *lines)) for i, (name, lines) in enumerate(LINES.items())}
    wanted = [cases.read(t) for t in (*targets.values(), *TARGETS.values(), QWEN_30B)]
    read = [c for c in wanted if isinstance(c, Case)]
    assert len(read) == len(wanted)
    library = load_stdlib()
    book, _ = rules.read_rules(library)
    linted = [run.one(c, r, book, library) for c, r in zip(read, server.resolve(read), strict=True)]
    assert not linted[-1].failed and linted[-1].judged
    return dict(zip([*LINES, *TARGETS], zip(server.judge(read[:-1]), linted[:-1], strict=True), strict=True))


@pytest.mark.parametrize("name", SAYS)
def test_what_builds_no_configuration_is_one_diagnostic(name: str, answers: Mapping[str, tuple[Report, Lint]]) -> None:
    message, help, at = SAYS[name]
    report, linted = answers[name]
    assert (report.verdict, report.id, report.refusals) == ("failed", "verify.recipe", ())
    assert message in report.message and help in report.help
    (d,) = [to_json(d, linted.sources) for d in linted.diagnostics]
    assert d["id"] == "verify.recipe" and message in d["message"] and help in "".join(d["help"])
    assert [at in x["source"] and Path(x["file"]).name == "recipe.py" for x in d["labels"]] == [True] * bool(at)
