"""Give the reason of each decision in a recipe: once, whole, and without figures, which another batch would change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from moedsl.emit.fields import Setting
from moedsl.planner.model.decisions import Decision
from moedsl.planner.model.plan import Plan

WIDTH = 115
"""The most characters of a line below the indent of the function."""


def grouped(plan: Plan, settings: Iterable[Setting]) -> list[tuple[str, list[Setting]]]:
    """The settings under their comments: those of one reason together, those without a comment first."""
    decisions = {d.name: d for d in plan.decisions}
    out: dict[str, list[Setting]] = {"": []}
    for s in settings:
        out.setdefault(s.why or _reason(decisions.get(s.word or "")), []).append(s)
    return [(_named(because, found), found) for because, found in out.items() if found]


def variables(plan: Plan, names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The environment variables under their reasons, as `grouped` has settings."""
    every = grouped(plan, [Setting(f"env_vars.{n}", None, n) for n in names])
    return [(because, [s.word or "" for s in found]) for because, found in every]


def comment(text: str, indent: str = "") -> list[str]:
    """Wrap a text as lines of a comment."""
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def plain(text: str) -> str:
    """Clean text for a comment or a docstring: one printable line that cannot end it."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line.replace("\\", "/").replace('"""', "'''")


def _reason(d: Decision | None) -> str:
    """The reason of a decision; of a chosen value the first part of it, because the plan has the alternatives."""
    if d is None or not d.because:
        return ""
    return d.because.partition("; ")[0] if d.origin == "chosen" else d.because


def _named(because: str, settings: Iterable[Setting]) -> str:
    """Put the keywords of the language before their reason, where the fields have other names."""
    words = (s.word for s in settings if s.word and not s.why and s.word != s.path.rpartition(".")[2])
    named = ", ".join(dict.fromkeys(w for w in words if "." not in w))
    return f"{named}: {because}" if named and because else because
