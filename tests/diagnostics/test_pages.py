"""Every diagnostic of the source is declared with its severity and has a page; no declared one is unused."""

import ast
import re
from functools import cache

import pytest

from moedsl.cli.arguments import COMMANDS
from moedsl.cli.main import main
from moedsl.support.diagnostics import Diagnostic, error, note, pages, warning
from tests.helpers import rotation
from tests.helpers.paths import ROOT

SOURCE = ROOT / "moedsl"
PAGES = pages()
STAGES = "|".join(sorted({id.partition(".")[0] for id in PAGES}))
NOT_IDS = {"launch.py", "plan.json", "preflight.py", "preflight.json"} | {c.runs for c in COMMANDS.values()}
MAKERS = {"error": error, "warning": warning, "note": note}


@cache
def nodes() -> list[ast.AST]:
    return [n for p in SOURCE.rglob("*.py") for n in ast.walk(ast.parse(p.read_text(encoding="utf-8")))]


def strings_in_source() -> set[str]:
    """The strings that look like an id; a part of an f-string is none, so ids are written out."""
    parts = {id(v) for n in nodes() if isinstance(n, ast.JoinedStr) for v in n.values}
    texts = {
        n.value for n in nodes() if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in parts
    }
    ids = {t.partition(":")[0] for t in texts if re.fullmatch(rf"(?:{STAGES})\.[a-z_]+(?::[a-z0-9-]+)?", t)}
    return ids - NOT_IDS


def test_no_id_is_put_together_from_parts() -> None:
    parts = [n.values[0] for n in nodes() if isinstance(n, ast.JoinedStr) and n.values]
    texts = [p.value for p in parts if isinstance(p, ast.Constant)]
    assert [t for t in texts if re.fullmatch(rf"(?:{STAGES})\.[a-z_]*", str(t))] == []


def test_every_id_in_the_source_is_declared_and_every_declared_id_is_used() -> None:
    assert strings_in_source() == set(PAGES)


def test_every_call_makes_a_declared_severity() -> None:
    calls = [n for n in nodes() if isinstance(n, ast.Call) and n.args]
    made = [
        (str(c.args[0].value).partition(":")[0], c.func.id)
        for c in calls
        if isinstance(c.func, ast.Name) and c.func.id in MAKERS and isinstance(c.args[0], ast.Constant)
    ]
    assert len(made) > 90
    assert [(id, severity) for id, severity in made if severity not in PAGES[id].severities] == []


def test_an_undeclared_id_or_severity_raises() -> None:
    assert error("check.no_model", "message") == Diagnostic("check.no_model", "error", "message")
    with pytest.raises(ValueError, match=r"declares no warning `check\.no_model`"):
        warning("check.no_model", "message")
    with pytest.raises(ValueError, match=r"declares no error `check\.no_such_page`"):
        error("check.no_such_page", "message")
    assert note("mine.mesh.small", "a rule declares its own id").severity == "note"


def test_a_severity_is_one_of_three() -> None:
    assert {s for page in PAGES.values() for s in page.severities} == set(MAKERS)


def test_explain_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    for id, page in rotation.some("pages", [*PAGES.items()], 24):
        assert main(["explain", id]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"diagnostic {id}\n")
        assert [line.strip() for line in out.splitlines()[1:]] == [line.strip() for line in page.text.splitlines()]


def test_each_page_is_short_and_says_something() -> None:
    """Two or three sentences and an example."""
    assert [id for id, page in PAGES.items() if not 40 < len(page.text) < 800] == []
