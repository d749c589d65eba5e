"""Edits that write what the solver chose into the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl import ast, axes
from moedsl.lsp import legal
from moedsl.lsp.document import Document

STATEMENTS: tuple[type, ...] = ast.Stmt.__args__  # type: ignore[attr-defined]
"""The classes of a run's statements."""


@frozen
class Spot:
    """Where a further statement of a run goes, and what stands before it."""

    offset: int
    before: str


def written(name: str, value: Any) -> str:
    """A plan's value as a pin writes it."""
    axis = axes.BY_NAME.get(name)
    if axis is not None:
        return legal.written(axis, axis.encode(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def pinned(values: Mapping[str, Any]) -> str:
    """The statement that pins some values of a plan: ``pin tp=4 recompute=[moe_act]``."""
    return "pin " + " ".join(f"{n}={written(n, v)}" for n, v in values.items())


def edit(document: Document, plan: Mapping[str, Any], names: Iterable[str]) -> types.TextEdit | None:
    """Pins decisions of a plan in the run that it is of; None where none of them is open or the run is not there.

    What the run pins already and what is no axis is left out.
    """
    decisions = {d["name"]: d for d in plan["decisions"]}
    wanted = [n for n in names if n in axes.BY_NAME and n in decisions and decisions[n]["origin"] != "pinned"]
    spot = end_of(document, plan["name"])
    if not wanted or spot is None:
        return None
    text = spot.before.replace("\n", document.newline) + pinned({n: decisions[n]["value"] for n in wanted})
    return types.TextEdit(document.lines.range(spot.offset, spot.offset), text)


def end_of(document: Document, run: str) -> Spot | None:
    """Behind the last statement of a run: of its block, or of the top of a file that has none."""
    if document.refused or document.module is None:
        return None
    block = block_of(document, run)
    statements: Iterable[Any] = block.body if block else document.module.items
    last = next((s for s in reversed([*statements]) if isinstance(s, STATEMENTS)), None)
    if last is None:
        return None
    start = document.lines.starts[document.lines.line_of(last.span.start)]
    indent = document.text[start : last.span.start]
    return Spot(last.span.end, "; " if indent.strip() else "\n" + indent)


def block_of(document: Document, run: str) -> ast.RunDecl | None:
    """The block of a run, whatever phase or value the plan is of; None for what stands at the top."""
    items = document.module.items if document.module else ()
    blocks = {i.name.id: i for i in items if isinstance(i, ast.RunDecl)}
    return next((b for n, b in blocks.items() if run == n or run.startswith(n + ".")), None)
