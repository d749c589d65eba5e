"""Each question refuses what it is there for, in the words and at the line of NVIDIA's code."""

import os
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.bridge.lint import rules, run
from moedsl.bridge.lint.report import Lint
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report, render
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.support.diagnostics import to_json
from tests.helpers import bridge_process
from tests.helpers.bridge_recipes import QWEN_30B, write
from tests.helpers.tables import table_of

pytestmark = pytest.mark.bridge
Ask = Callable[..., Report]

FOUR_STAGES = (
    "m.pipeline_model_parallel_size, m.virtual_pipeline_model_parallel_size, m.expert_model_parallel_size = 4, 3, 4"
)
TP_OVERLAP = (
    "m.tensor_model_parallel_size, m.sequence_parallel, m.expert_tensor_parallel_size = 2, True, 1",
    "cfg.comm_overlap.tp_comm_overlap = True",
)
REFUSED = table_of("verify", "refusals: refused")


@pytest.fixture
def ask(server: Server, tmp_path: Path) -> Ask:
    def judge(*lines: str, seconds: float = 120.0, stages: bool = True) -> Report:
        case = cases.read(str(write(tmp_path, QWEN_30B, *lines)))
        assert isinstance(case, cases.Case)
        return server.judge([evolve(case, seconds=seconds, stages=stages)])[0]

    return judge


@pytest.fixture(scope="module")
def refused(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Of each recipe what is said; the model is built where it takes that to be refused."""
    folder, wanted = tmp_path_factory.mktemp("refused"), list[cases.Case]()
    for name, (lines, question, _) in REFUSED.items():
        case = cases.read(str(write(folder / name, QWEN_30B, *lines)))
        assert isinstance(case, cases.Case)
        wanted.append(evolve(case, stages=question in ("stages", "")))
    return dict(zip(REFUSED, server.judge(wanted), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, refused: dict[str, Report]) -> None:
    _, question, where = REFUSED[name]
    report = refused[name]
    assert report.verdict == "refused", render(report)
    assert question in report.refusals[0].question
    assert report.refusals[0].where.startswith(where)
    assert report.refusals[0].message in render(report)


def test_the_buffers_of_tensor_parallel_overlap_are_made_before_the_model(ask: Ask) -> None:
    """Transformer Engine asks for them while a layer is built (te pytorch/module/linear.py:2109)."""
    report = ask(*TP_OVERLAP)
    assert report.ok, render(report)
    assert report.stages


def test_an_unknown_field_is_found_though_bridge_says_nothing(ask: Ask) -> None:
    report = ask("m.moe_a2a_overlap = True", "cfg.trian = 1", stages=False)
    assert report.verdict == "accepted" and not report.ok
    assert {m.field for m in report.mismatches} == {"model.moe_a2a_overlap", "trian"}


def test_a_value_that_bridge_replaces_is_found(ask: Ask) -> None:
    report = ask("m.tensor_model_parallel_size, m.sequence_parallel = 1, True", stages=False)
    change = next(c for c in report.changed if c.field == "model.sequence_parallel")
    assert (change.before, change.after, change.origin) == (True, False, "recipe")
    _, _, where = change.by.partition("megatron/")
    file, _, number = where.rpartition(":")
    line = Path(find_spec("megatron.core").submodule_search_locations[0]).parent.joinpath(file)  # type: ignore[union-attr,index]
    assert "sequence_parallel = False" in line.read_text(encoding="utf-8").splitlines()[int(number) - 1]
    default = next(c for c in report.changed if c.field == "model.wgrad_deferral_limit")
    assert (default.origin, default.by.startswith("megatron/bridge/")) == ("default", True)


def test_a_crash_is_a_report_and_others_go_on(server: Server, tmp_path: Path) -> None:
    ends = {"aborts": "os.abort()", "exits": "os._exit(3)", "goes on": "pass"}
    read = [cases.read(str(write(tmp_path / name, QWEN_30B, "import os", end))) for name, end in ends.items()]
    aborts, exits, goes_on = server.judge([evolve(c, stages=False) for c in read if isinstance(c, cases.Case)])
    assert {(r.verdict, r.id) for r in (aborts, exits)} == {("failed", "verify.crash")}
    assert aborts.message.startswith("SIGABRT ended the process before it answered")
    assert exits.message.startswith("the process ended with exit code 3 before it answered")
    assert goes_on.ok


def test_a_hang_is_a_report(ask: Ask) -> None:
    report = ask("import time", "time.sleep(60)", seconds=1.0)
    assert (report.verdict, report.id) == ("failed", "verify.timeout")


def test_the_server_lives_on_after_both(ask: Ask) -> None:
    assert ask(stages=False).ok


# A recipe whose own code builds no configuration: one diagnostic for `verify` and for `lint`, on the line that is
# wrong.

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


# A recipe that never ends, or leaves processes behind, costs its own time and nobody else's.

SLEEPER = """import os, time
from pathlib import Path
if os.fork() == 0:
    {first}
    Path({mark!r} + ".new").write_text(str(os.getpid()))
    os.rename({mark!r} + ".new", {mark!r})
    time.sleep(600)
while not Path({mark!r}).exists():
    time.sleep(0.01)
"""
ENDS = {
    "sleeps": ("time.sleep(600)", "verify.timeout"),
    "sleeps without a pipe": ("os.closerange(3, 100)\ntime.sleep(600)", "verify.timeout"),
    "ends": ("os._exit(3)", "verify.crash"),
    "raises": ("raise ValueError", "verify.recipe"),
}


@pytest.mark.parametrize("first", ["pass", "os.setsid()"], ids=["a child", "a daemon"])
@pytest.mark.parametrize(("last", "id"), ENDS.values(), ids=ENDS)
def test_a_recipe_that_leaves_a_process(first: str, last: str, id: str, server: Server, tmp_path: Path) -> None:
    file, mark = tmp_path / "recipe.py", tmp_path / "pid"
    file.write_text(SLEEPER.format(first=first, mark=str(mark)) + f"{last}\ndef x_config(): pass\n")
    case = cases.read(str(file), "h100", 8)
    assert isinstance(case, Case)
    start = time.monotonic()
    (answer,) = server.resolve([evolve(case, seconds=2)])
    assert answer.id == id and time.monotonic() - start < 60
    left = int(mark.read_text())
    if first == "pass":
        _wait_for_the_end(left)
    else:
        os.kill(left, 9)  # who leaves the group on purpose stays


def _wait_for_the_end(pid: int) -> None:
    end = time.monotonic() + 60
    while bridge_process.lives(pid):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.01)
