"""action.yml, executed step by step against a pull request in a real repository and the comments of an API."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import post_comment
import pytest

from moedsl.cli.main import main
from tests.automation import github_api
from tests.automation.github_api import Comments
from tests.automation.runner import Runner, read
from tests.editors.needs import moedsl_program
from tests.helpers import rotation
from tests.helpers.paths import ROOT

ACTION = read("action.yml")
NUMBER = 7
BASE = "model qwen3_30b_a3b\nh100 x 16\n"
HEAD = {"a.moe": f"{BASE}seq 8k\n", "runs/a b.moe": f"{BASE}pin tq=1\n", "gone.moe": None}
"""What the pull request makes of the files of its base; None removes one."""


class Pull:
    """A checkout of a pull request, and the commit that it starts from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main", ".")
        self.commit({"a.moe": BASE, "gone.moe": BASE, "same.moe": BASE})
        self.git("switch", "-q", "-c", "topic")
        self.commit(HEAD)
        self.git("switch", "-q", "main")
        self.commit({"same.moe": f"{BASE}seq 2k\n"})
        self.base = self.git("rev-parse", "HEAD")
        self.git("switch", "-q", "topic")

    def git(self, *words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: dict[str, Any]) -> None:
        for name, text in files.items():
            file = self.folder / name
            file.parent.mkdir(exist_ok=True)
            file.unlink(missing_ok=True) if text is None else file.write_text(text, encoding="utf-8")
        self.git("add", ".")
        self.git("commit", "-qm", "more")


@pytest.fixture(scope="module")
def pull(tmp_path_factory: pytest.TempPathFactory) -> Pull:
    return Pull(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def api() -> Iterator[Comments]:
    with github_api.serving() as server:
        yield server


@pytest.fixture
def runner(pull: Pull, api: Comments, tmp_path: Path) -> Callable[..., Runner]:
    def make(event: bool = True, **given: str) -> Runner:
        pulled = {"pull_request": {"number": NUMBER, "base": {"sha": pull.base}}} if event else {}
        environment = {
            "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_API_URL": api.url, "GITHUB_REPOSITORY": "team/runs",
        }  # fmt: skip
        contexts: dict[str, Any] = {"github": {"token": github_api.TOKEN, "event": pulled}}
        made = Runner(tmp_path / str(len([*tmp_path.iterdir()])), pull.folder, environment, contexts)
        defaults = {name: made.filled(spec["default"]) for name, spec in ACTION["inputs"].items()}
        contexts["inputs"] = defaults | given
        return made

    return make


def steps(made: Runner) -> list[dict[str, Any]]:
    """The steps after the first, which has put this checkout where the others look for it."""
    assert "pip" in ACTION["runs"]["steps"][0]["run"]
    folder = Path(made.environment["RUNNER_TEMP"]) / "moedsl/bin"
    folder.mkdir(parents=True)
    moedsl_program(folder)
    return ACTION["runs"]["steps"][1:]


def answer(*words: str) -> str:
    """What a command answers, or says where it cannot, without the width that a worker of pytest-xdist is told."""
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as said,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.delenv("COLUMNS", raising=False)
        code = main([*words])
    return (said if code else out).getvalue().rstrip("\n")


def folded(tag: str, title: str, text: str) -> str:
    return f"<{tag}><summary>{title}</summary>\n\n~~~~text\n{text}\n~~~~\n\n</details>\n\n"


def test_it_comments_the_plans_and_then_changes_its_comment(
    pull: Pull, api: Comments, runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed file, one with a mistake and one that is removed; the base has gone on, and another bot has spoken."""
    for _ in range(101):
        api.add(NUMBER, "another comment")
    made = runner()
    assert not made.run(steps(made)), "a file has no plan"
    monkeypatch.chdir(pull.folder)
    base = pull.git("merge-base", "main", "topic")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pull.git("show", f"{base}:a.moe").encode())))
    changed = answer("diff", "-", "a.moe")
    plan, mistake = answer("plan", "a.moe"), answer("plan", "runs/a b.moe")
    assert "4096 -> 8192" in changed and plan.startswith("main: qwen3") and "error[check.unknown_axis]" in mistake
    report = (
        f"### `a.moe`\n\n{folded('details open', 'What changes', changed)}{folded('details', 'Plan', plan)}"
        f"### `gone.moe`\n\nremoved\n\n### `runs/a b.moe`\n\n{folded('details', 'Plan', mistake)}"
    )
    assert api.of(NUMBER)[101:] == [f"<!-- moedsl plan -->\n{report}"]
    assert Path(made.environment["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8") == report
    made = runner(base="HEAD")
    assert made.run(steps(made)), made.printed
    assert api.of(NUMBER)[100:] == ["another comment", "<!-- moedsl plan -->\nNo .moe file differs from the base.\n"]
    assert api.asked == ["GET 200"] * 3 + ["POST 201"] + ["GET 200"] * 2 + ["PATCH 200"]


def test_without_plans_or_a_pull_request_it_is_silent(api: Comments, runner: Callable[..., Runner]) -> None:
    made = runner(base="HEAD")
    assert made.run(steps(made)) and api.of(NUMBER) == []
    pushed = runner(event=False, base="HEAD")
    assert pushed.run(steps(pushed)) and api.asked == ["GET 200"]


def test_the_token_of_a_fork_is_no_failure(pull: Pull, api: Comments, runner: Callable[..., Runner]) -> None:
    api.add(NUMBER, "<!-- moedsl plan -->\n")
    made = runner(base="HEAD", token=github_api.READ_ONLY)
    assert made.run(steps(made)) and "::warning::the token may not write" in made.printed[-1]
    assert api.asked == ["GET 200", "PATCH 403"]


def test_a_checkout_without_history_is_said(api: Comments, runner: Callable[..., Runner]) -> None:
    made = runner(base="0" * 40)
    assert not made.run(steps(made))
    (posted,) = api.of(NUMBER)
    assert (
        posted == f"<!-- moedsl plan -->\n{'0' * 40} shares no commit with HEAD here; check out with fetch-depth: 0\n"
    )


def test_a_long_comment_names_what_it_leaves_out() -> None:
    parts = [f"### `{name}.moe`\n\n{'x' * 30_000}\n" for name in "abcd"]
    body = post_comment.body("".join(parts))
    assert body.startswith(f"<!-- moedsl plan -->\n{parts[0]}{parts[1]}Too long") and len(body) <= 65_536
    assert body.endswith("in the summary of the job: `c.moe`, `d.moe`\n")
    assert "`a.moe`" in post_comment.body(f"### `a.moe`\n{'x' * 70_000}")


@pytest.mark.skipif(not rotation.ALL, reason="installs from the index: MOEDSL_WIDE=all")
def test_its_first_step_installs_it(pull: Pull, api: Comments, runner: Callable[..., Runner]) -> None:
    made = runner()
    made.environment["PATH"] = f"{Path(sys.base_prefix, 'bin')}:/usr/bin:/bin"
    assert not made.run(ACTION["runs"]["steps"]), "a file has no plan"
    assert len(api.of(NUMBER)) == 1 and "FITS" in api.of(NUMBER)[0]
    assert Path(made.environment["RUNNER_TEMP"], "moedsl/bin/moedsl").exists()
