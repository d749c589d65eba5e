"""The messages that a Python file prints or raises, read out of its source: strings joined, values as a number or word."""

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOTS = {
    "core": "megatron/core", "bridge": "megatron/bridge", "te": "transformer_engine", "torch": "torch",
    "cuda": "nvidia/cu13", "nccl": "nvidia/nccl", "hub": "huggingface_hub",
}  # fmt: skip
_FIELD = re.compile(r"\{(:[^{}]*)?\}")
"""A field of `str.format` without a name."""
_PIECE = 4 << 20
REACH = 12
"""Lines of a message around the one that is cited."""


def packages() -> Path:
    """Where the wheels are installed."""
    spec = importlib.util.find_spec("attrs")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


def path_of(whose: str, file: str) -> Path:
    return packages() / ROOTS[whose] / file


def words_in(path: Path, words: Iterable[bytes]) -> set[bytes]:
    """Of some words those that a file of any size holds."""
    found, rest, end = set[bytes](), {*words}, b""
    longest = max(map(len, rest), default=0)
    with path.open("rb") as file:
        while rest and (piece := file.read(_PIECE)):
            text = end + piece
            here = {word for word in rest if word in text}
            found, rest, end = found | here, rest - here, text[-longest:]
    return found


@cache
def messages(path: Path) -> list[tuple[int, int, str]]:
    """(first line, last line, text) of every string of a file; text built by `+=` is joined under its variable."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [*_strings(tree), *_grown(tree)]


def near(whose: str, file: str, line: int) -> list[str]:
    """The messages about a cited line."""
    return [text for a, b, text in messages(path_of(whose, file)) if a - REACH <= line <= b + REACH]


def _strings(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and (text := _text(node)):
            yield node.lineno, node.end_lineno or node.lineno, text


def _grown(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """``msg = "a"; msg += "b"`` as one text."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        parts = [s for s in body if isinstance(s, ast.Assign | ast.AugAssign)] if isinstance(body, list) else []
        texts = [t for s in parts if (t := _text(s.value))]
        if len(texts) > 1:
            yield parts[0].lineno, parts[-1].end_lineno or parts[-1].lineno, "".join(texts)


def _text(node: ast.expr) -> str:
    """A string, its values as ``8``, ``{}`` and ``{:3d}`` too; empty for anything else."""
    if isinstance(node, ast.Constant):
        return _FIELD.sub("8", node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) if isinstance(v, ast.Constant) else "8" for v in node.values)
    return ""
