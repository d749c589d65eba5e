"""Why a value is what it is, and why nothing fits: JSON first, text from JSON."""

from __future__ import annotations

from moedsl.explain.infeasible_said import conflict
from moedsl.explain.nowhere import nowhere

__all__ = ["conflict", "nowhere"]
