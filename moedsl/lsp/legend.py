"""What the server says at `initialize` of its semantic tokens, code actions and commands."""

from __future__ import annotations

from lsprotocol import types

TYPES = (
    "comment", "string", "number", "keyword", "operator", "class", "struct", "variable", "property", "enumMember",
    "function", "namespace", "event", "type",
)  # fmt: skip
"""The legend: a model is a class, hardware a struct, an axis or a `let` a variable, a fact, a field or what a run fixes
a property, a word that is a value an enumMember, a run, a profile or a block of rules a namespace, a rule or a wish an
event, a cluster or calibration a type."""
MODIFIERS = ("declaration", "defaultLibrary", "readonly")
"""The legend: declared here; of the stdlib or of the language; a `let`."""
TOKENS = types.SemanticTokensLegend(list(TYPES), list(MODIFIERS))

PIN, ALLOW = "refactor.rewrite.moedsl.pin", "refactor.rewrite.moedsl.allow"
QUICK_FIX, FIX_ALL = types.CodeActionKind.QuickFix.value, types.CodeActionKind.SourceFixAll.value
ACTIONS = types.CodeActionOptions([QUICK_FIX, PIN, ALLOW, FIX_ALL])

SHOW_PLAN, SHOW_REPORT = "moedsl.showPlan", "moedsl.showReport"
"""The commands that the lenses run."""
