"""List semantic tokens, code actions and commands for `initialize`."""

from __future__ import annotations

from lsprotocol import types

TYPES = (
    "comment", "string", "number", "keyword", "operator", "class", "struct", "variable", "property", "enumMember",
    "function", "namespace", "event", "type",
)  # fmt: skip
"""The legend of types: a model is a class, hardware a struct, an axis or a `let` a variable; a fact, a field or a value
of the run is a property, a word that is a value an enumMember; a run, a profile or a block of rules is a namespace, a
rule or a wish an event, a cluster or calibration a type."""
MODIFIERS = ("declaration", "defaultLibrary", "readonly")
"""The legend of modifiers: declared here; of the stdlib or the language; a `let`."""
TOKENS = types.SemanticTokensLegend(list(TYPES), list(MODIFIERS))

PIN, ALLOW = "refactor.rewrite.moedsl.pin", "refactor.rewrite.moedsl.allow"
QUICK_FIX, FIX_ALL = types.CodeActionKind.QuickFix.value, types.CodeActionKind.SourceFixAll.value
ACTIONS = types.CodeActionOptions([QUICK_FIX, PIN, ALLOW, FIX_ALL])

SHOW_PLAN, SHOW_REPORT = "moedsl.showPlan", "moedsl.showReport"
"""The commands of the lenses."""
