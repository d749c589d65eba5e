"""Each text of `pages.md` is used, and each use fills its placeholders."""

import ast
from collections import Counter
from collections.abc import Iterator
from string import Formatter

import pytest

from moedsl.support.diagnostics import FIELDS, Text, pages
from tests.helpers.paths import ROOT

OWN = {*FIELDS, "help"}
"""Keywords of `error`, `warning` and `note` that fill no placeholder."""


def has_text(node: ast.Call) -> bool:
    """Whether the page has a text of the id, so that the call states none of its own."""
    page, _, name = str(ast.literal_eval(node.args[0])).partition(":")
    return name in pages()[page].texts


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the place, the id and the keywords of each call whose text is the page's."""
    for path in sorted((ROOT / "moedsl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("error", "warning", "note")
                and isinstance(node.args[0], ast.Constant)
                and has_text(node)
            ):
                yield f"{path.name}:{node.lineno}", node.args[0].value, {str(k.arg) for k in node.keywords}


CALLS = [*calls()]


def placeholders(text: Text, with_help: bool) -> set[str]:
    lines = (text.message, *text.help) if with_help else (text.message,)
    return {name for line in lines for _, name, _, _ in Formatter().parse(line) if name is not None}


@pytest.mark.parametrize(("where", "id", "keywords"), CALLS, ids=[where for where, _, _ in CALLS])
def test_a_call_fills_its_text(where: str, id: str, keywords: set[str]) -> None:
    page, _, name = id.partition(":")
    text = pages()[page].texts[name]
    wanted, stated = placeholders(text, "help" not in keywords), keywords - OWN - {"None"}
    assert stated <= wanted if "None" in keywords else stated == wanted  # "None" is a dictionary of more


def test_every_text_is_used() -> None:
    used = Counter(id for _, id, _ in CALLS)
    assert not [
        f"{id}:{name}".removesuffix(":")
        for id, page in pages().items()
        for name in page.texts
        if not used[f"{id}:{name}".removesuffix(":")]
    ]
