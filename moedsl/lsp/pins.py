"""Edits that write what the solver chose into the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lsprotocol import types

from moedsl.lsp import legal
from moedsl.lsp.document import Document
from moedsl.lsp.edits import text_edits
from moedsl.schema import axes
from moedsl.syntax import ast
from moedsl.syntax.text_edits import added, run_block

STATEMENTS: tuple[type, ...] = ast.Stmt.__args__  # type: ignore[attr-defined]
"""The classes of a run's statements."""


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
    if not wanted or document.refused or document.module is None:
        return None
    pin = pinned({n: decisions[n]["value"] for n in wanted})
    return text_edits(document, [added(pin, plan["name"], document.source, document.module)])[0]


def block_of(document: Document, run: str) -> ast.RunDecl | None:
    """The block of a run, whatever phase or value the plan is of; None for what stands at the top."""
    return run_block(document.module, run) if document.module is not None else None
