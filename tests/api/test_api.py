"""The Python API: what `import moedsl` gives, before and after the packages below it are imported."""

import contextlib
import io
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import moedsl
from moedsl.cli.main import main
from tests.helpers.logs import iteration_lines
from tests.helpers.paths import ROOT

RUN = "qwen3_30b_a3b; h100 x 16; fit first"
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES_FOLDER = ROOT / "examples"
SMOKE = str(EXAMPLES_FOLDER / "smoke.moe")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```output\n(.*?)```", PAGE, re.DOTALL)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main([*words])
    return capsys.readouterr().out


def test_no_package_hides_a_public_name() -> None:
    """Importing a package sets the attribute of its name."""
    assert not {m.name for m in pkgutil.iter_modules(moedsl.__path__)} & {*moedsl.__all__}


def test_importing_moedsl_imports_nothing_more() -> None:
    code = (
        "import sys, moedsl; before = {m for m in sys.modules if m.startswith('moedsl')}; "
        "assert before == {'moedsl'}, before; import moedsl.planner, moedsl.rules.check, moedsl.queries.explain, moedsl.compiler; "
        f"assert moedsl.plan({RUN!r}).ok and callable(moedsl.check) and callable(moedsl.explain); "
        "assert not {'torch', 'nemo_run', 'pygls'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", moedsl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(moedsl, name).__doc__ and name in dir(moedsl)


def test_another_name_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        getattr(moedsl, "plans")  # noqa: B009


def test_a_plan_is_what_the_command_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    made = moedsl.plan(RUN)
    assert made.text == printed(capsys, "plan", "--full", "-e", RUN)
    assert printed(capsys, "plan", "-e", RUN).startswith(str(made)) and repr(made) == "<Planned: 1 plan>"
    assert made.plan is not None and made.plan.to_json() == json.loads(printed(capsys, "plan", "--json", "-e", RUN))


def test_a_program_is_a_text_or_a_path(tmp_path: Path) -> None:
    file = tmp_path / "run.moe"
    file.write_text(RUN, encoding="utf-8")
    assert moedsl.plan(file).plans == moedsl.plan(str(file)).plans == moedsl.plan(RUN).plans
    missing = moedsl.plan(tmp_path / "none.moe")
    assert not missing.ok and missing.plan is None and [d.id for d in missing.diagnostics] == ["read.missing"]


@pytest.mark.parametrize("text", ["", "modl x; h100", "qwen3_235b_a22b; h100 x 8"])
def test_a_mistake_is_a_diagnostic(text: str) -> None:
    for made in (moedsl.plan(text), moedsl.compile(text), moedsl.check(text), moedsl.explain(text)):
        assert not made.ok or isinstance(made, moedsl.Explained)
        assert all(isinstance(d, moedsl.Diagnostic) for d in made.diagnostics)
        assert made._repr_html_().startswith("<pre>")
    assert moedsl.plan(text).plans == () and not moedsl.compile(text).files


def test_compile_writes_only_where_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = moedsl.compile(RUN)
    assert made.ok and not [*tmp_path.iterdir()]
    assert moedsl.compile(RUN, tmp_path / "out").ok
    assert {p.name for p in (tmp_path / "out").iterdir()} == {*made.files}
    (tmp_path / "out" / "recipe.py").write_text("mine", encoding="utf-8")
    assert not moedsl.compile(RUN, tmp_path / "out").ok
    assert moedsl.compile(RUN, tmp_path / "out", force=True).ok


def test_an_explanation_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples" / "smoke.moe")
    assert moedsl.explain(file, "tp").text == printed(capsys, "explain", file, "tp")


def test_a_sweep_is_what_the_statement_plans_and_compares() -> None:
    """Two ways to the same plans: the function and the language."""
    made = moedsl.sweep(RUN, "recompute", ["none", "full"])
    assert made.plans == moedsl.plan(f"{RUN}; sweep recompute in none, full").plans
    assert [row["run"] for row in made.rows] == [p.name for p in made.plans] and len(made.rows) == 2
    frame = made.to_dataframe()
    assert [*frame["step_time_s"]] == [p.estimate.step_time_s for p in made.plans]
    assert str(made).strip() == made.table().strip() and len(str(made).splitlines()) == 4
    html = made._repr_html_()
    assert all(p.name in html for p in made.plans) and "hardware" not in html  # only what differs


ASKED: dict[str, tuple[Callable[[], moedsl.Answered], list[str]]] = {
    "what-if": (lambda: moedsl.what_if(RUN, tokens="1T", price=2), ["-e", RUN, "--tokens", "1T", "--price", "2"]),
    "diff": (lambda: moedsl.diff(SMOKE, f"{EXAMPLES_FOLDER}/sft.moe"), [SMOKE, f"{EXAMPLES_FOLDER}/sft.moe"]),
}


@pytest.mark.parametrize("command", ASKED)
def test_an_answer_is_that_of_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask, words = ASKED[command]
    made = ask()
    assert capsys.readouterr() == ("", "")
    assert made.ok and made.data == json.loads(printed(capsys, command, *words, "--json"))
    assert made.text == printed(capsys, command, *words)
    assert made.rows and len(made.to_dataframe()) == len(made.rows)


def test_logs_and_traces_are_asked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(iteration_lines(1, 40, 26.0, 1024), encoding="utf-8")
    made = moedsl.results(log, seq="4k", gpus=16, global_batch=1024)
    words = [str(log), "--seq", "4k", "--gpus", "16", "--global-batch", "1024"]
    assert made.ok and made.data == json.loads(printed(capsys, "results", *words, "--json"))
    for asked in (moedsl.gap(log, run=tmp_path / "none.moe"), moedsl.profile(tmp_path / "none.json")):
        assert not asked.ok and not asked.rows and str(asked) == asked.messages


def test_an_option_that_the_command_line_would_not_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="`long` is not a sequence length"):
        moedsl.results("train.log", seq="long")
    with pytest.raises(ValueError, match="a number of tokens"):
        moedsl.what_if(RUN, price=2)


def test_a_plan_shows_itself_without_scripts() -> None:
    made = moedsl.plan(RUN)
    assert made.plan is not None
    html = made._repr_html_()
    assert "<script" not in html and html.count("stage ") == len(made.plan.estimate.memory.stages)
    assert all(d.name in html for d in made.plan.decisions) and made.plan.estimate.memory.verdict in html


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_of_the_page_prints_what_it_says(code: str, output: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == output


def test_every_example_of_the_page_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == PAGE.count("```output")


LARGE = "kimi_k2; h100 x 64; require step_time < 1"


@pytest.mark.parametrize("function", [moedsl.check, moedsl.plan, moedsl.compile, moedsl.explain])
def test_seconds_bound_the_search_in_any_thread(function: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(function, LARGE, seconds=0.1).result()
    assert [d.id for d in found.diagnostics] == ["solve.too_large"]
    assert found.diagnostics[0].message.startswith("`main` needs more than 0.1 s of a core")
    assert function(RUN, seconds=30).ok


MEMORY = """
import resource
import moedsl

assert moedsl.plan("olmoe_7b; h100 x 2", memory_mb=300).ok
before = resource.getrlimit(resource.RLIMIT_DATA)
found = moedsl.plan("deepseek_v3; h100 x 2048; throughput first", seconds=60, memory_mb=20)
print([(d.id, d.message) for d in found.diagnostics])
assert resource.getrlimit(resource.RLIMIT_DATA) == before
assert moedsl.plan("olmoe_7b; h100 x 2").ok
"""


def test_memory_is_bounded() -> None:
    """In a process of its own: others may have freed memory that is taken again."""
    ran = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "'solve.too_large', '`main` needs more than 20 MB of memory" in ran.stdout


@pytest.mark.usefixtures("compiles_anew")
def test_more_policies_than_memory_holds_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moedsl.solver.space.MOST_POLICIES", 3)
    assert [d.id for d in moedsl.plan(RUN).diagnostics] == ["solve.too_large"]


@pytest.mark.parametrize("name", ["nofile.moe", "runs/nofile.moe", "./nofile.moe", "/no/such/folder/a b.moe"])
def test_a_path_without_a_file_is_a_missing_file(name: str) -> None:
    (found,) = moedsl.plan(name).diagnostics
    (of_path,) = moedsl.plan(Path(name)).diagnostics
    assert found.id == of_path.id == "read.missing" and found.help == of_path.help


def test_a_program_may_end_like_a_path() -> None:
    assert moedsl.check(f"{RUN}  # of run.moe").ok
