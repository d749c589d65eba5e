"""Explain why a value was chosen, or why nothing fits: first as JSON, then as text."""

from __future__ import annotations

from moedsl.diagnostics.model import Diagnostic
from moedsl.explainer.infeasible_said import conflict
from moedsl.explainer.nowhere import nowhere
from moedsl.solver.solve import NoLayout, solve

__all__ = ["conflict", "no_layout"]


def no_layout(x: NoLayout) -> list[Diagnostic]:
    """The diagnostics of a program that has no layout: what collides, and the ways out."""
    return nowhere(x.program, x.legal, solve) if x.at is None else conflict(x.at.compiled, x.at.cost, solve)
