"""An explanation of any kind as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.explainer.overview_text import overview_text
from moedsl.explainer.text import value_text


def text_of(e: Mapping[str, Any]) -> str:
    """The text of a value's explanation, of an overview, or of why nothing fits."""
    if e["kind"] == "value":
        return value_text(e)
    if e["kind"] == "overview":
        return overview_text(e)
    from moedsl.explainer.infeasible_text import failure_text, infeasible_text

    return infeasible_text(e) if e["kind"] == "infeasible" else failure_text(e)
