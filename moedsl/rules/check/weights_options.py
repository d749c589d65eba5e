"""Read `weights`: a model of Hugging Face to import, or the path of a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from moedsl.facts import weights
from moedsl.lang import ast
from moedsl.rules.check import overrides
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, error, suggest

WORD = "hf"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w")


def read(
    stmt: ast.WeightsStmt | None, tunes: bool, sets: Mapping[str, Any], diagnostics: list[Diagnostic]
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name on Hugging Face, if the run has one, and the run's fields with the folder of its weights."""
    if stmt is None:
        return None, sets
    wrong = [*_mistakes(stmt, tunes, sets)]
    diagnostics += wrong
    if wrong:
        return None, sets
    name = stmt.value.value if stmt.word else None
    return name, {**sets, weights.FIELD: weights.imported(name) if name else stmt.value.value}


def _mistakes(stmt: ast.WeightsStmt, tunes: bool, sets: Mapping[str, Any]) -> Iterator[Diagnostic]:
    word, value = stmt.word, stmt.value
    if word is not None and word.id != WORD:
        help = suggest(word.id, [WORD]) or ('write `weights hf "ORG/NAME"` or `weights "PATH"`',)
        yield error("check.unknown_word", f"`weights` is `hf` or a path, not `{word.id}`", word.span, help=help)
    elif word is not None and not _NAME.fullmatch(value.value):
        text = f"`{value.value}` is no name of a model on Hugging Face"
        help = 'write `weights hf "ORG/NAME"`, or `weights "PATH"` for a checkpoint'
        yield error("check.weights", text, value.span, help=help)
    elif not value.value:
        yield error("check.weights", "the path of the weights is empty", value.span, help='write `weights "PATH"`')
    if not tunes:
        text = "only fine-tuning starts from weights"
        help = "write `task sft` or `task peft`, or drop `weights`"
        if not word:
            help += f"; to pretrain further, `set {weights.FIELD} = {json.dumps(value.value)}`"
        yield error("check.weights", text, stmt.span, help=help, fixes=(Fix("Drop `weights`", DROP, stmt.span),))
    elif weights.FIELD in sets:
        fixes = (Fix("Drop this one", DROP, stmt.span),)
        text = f"the weights are stated twice: `set {weights.FIELD}` names them too"
        yield error("check.twice", text, stmt.span, help="keep one of them", fixes=fixes)
    yield from overrides.secret("weights", value)
