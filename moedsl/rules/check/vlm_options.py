"""Read `vlm`: which parts of a VLM are frozen, and how tower and decoder are sharded."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.facts.symbols import VLM_WORDS
from moedsl.lang import ast
from moedsl.rules.check.program import Pin
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Label, error, suggest, warning

SHARDED = {"fsdp": "fsdp", "3d": "optimizer"}
"""Options that decide the axis `sharding`, with their values."""
OPTIONS = (*VLM_WORDS, *SHARDED)


def read(
    stmt: ast.VlmStmt, model: Model | None, pinned: ast.Binding | None, diagnostics: list[Diagnostic]
) -> tuple[frozenset[str], dict[str, Pin]]:
    """Read the frozen parts, and the pin of the sharding if an option decides it; `pinned` is the run's own pin.

    Errors go to `diagnostics`: check.not_a_vlm, check.unknown_word, check.twice; a warning: check.all_frozen.
    """
    sharded = [o for o in stmt.options if o.id in SHARDED]
    diagnostics += [*_no_tower(stmt, model), *_unknown(stmt), *_twice(sharded, pinned)]
    frozen = frozenset(o.id for o in stmt.options if o.id in VLM_WORDS)
    if frozen == {*VLM_WORDS}:
        text = "tower, projection and language model are all frozen, so nothing is trained"
        diagnostics.append(warning("check.all_frozen", text, stmt.span, help="train at least the projection"))
    return frozen, {"sharding": _pin(sharded[0])} if sharded else {}


def _pin(option: ast.Name) -> Pin:
    return Pin("sharding", axes.BY_NAME["sharding"].encode(SHARDED[option.id]), option.span)


def _no_tower(stmt: ast.VlmStmt, model: Model | None) -> Iterator[Diagnostic]:
    if model is not None and model.vision is None:
        text, help = f"{model.name} has no vision tower", "drop `vlm`, or name a VLM"
        yield error("check.not_a_vlm", text, stmt.span, help=help, fixes=(Fix("Drop `vlm`", DROP, stmt.span),))


def _unknown(stmt: ast.VlmStmt) -> Iterator[Diagnostic]:
    for o in stmt.options:
        if o.id not in OPTIONS:
            text = f"`vlm` accepts {', '.join(OPTIONS)}, not `{o.id}`"
            yield error("check.unknown_word", text, o.span, help=suggest(o.id, [*OPTIONS]))


def _twice(sharded: list[ast.Name], pinned: ast.Binding | None) -> Iterator[Diagnostic]:
    """Report two words for the sharding, or a word and a pin."""
    if len(sharded) > 1:
        first = Label(sharded[0].span, "first here")
        yield error("check.twice", "`fsdp` and `3d` cannot be combined", sharded[1].span, first)
    if sharded and pinned is not None:
        text, first = f"`vlm {sharded[0].id}` decides the sharding", Label(pinned.span, "pinned here")
        yield error("check.twice", text, sharded[0].span, first, help="keep one of them")
