"""Define the results of the API: typed values, with diagnostics instead of exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.planner.model.html import escape
from moedsl.planner.model.plan import Plan
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.source import Source
from moedsl.support.visible import visible


@frozen(kw_only=True)
class Checked:
    """The diagnostics of a program."""

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source] = field(repr=False, factory=dict)
    """The texts that the diagnostics point into, by name."""

    @property
    def ok(self) -> bool:
        """Whether no diagnostic is an error."""
        return not any(d.is_error for d in self.diagnostics)

    @property
    def messages(self) -> str:
        """The diagnostics as `moedsl check` prints them."""
        from moedsl.support.render import render_all

        return render_all(to_json(d, self.sources) for d in self.diagnostics)

    def __str__(self) -> str:
        return self.messages

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@frozen(kw_only=True)
class Planned(Checked):
    """The plans of a program, one for each run; empty if it has errors."""

    plans: tuple[Plan, ...] = field(default=(), repr=False)

    @property
    def plan(self) -> Plan | None:
        """The first plan, or None."""
        return self.plans[0] if self.plans else None

    @property
    def text(self) -> str:
        """The plans as `moedsl plan` prints them."""
        from moedsl.planner.text.plan import plan_text

        return visible("\n".join(map(plan_text, self.plans)))

    def __str__(self) -> str:
        return self.text or self.messages

    def _repr_html_(self) -> str:
        shown = "".join(p.html() for p in self.plans)
        return shown + (f"<pre>{escape(self.messages)}</pre>" if self.diagnostics else "")


@frozen(kw_only=True)
class Compiled(Planned):
    """The plans of a program and their files."""

    files: Mapping[str, str] = field(factory=dict, repr=False)
    """Texts by path: recipe.py, overrides.txt, plan.json and moedsl.lock.json; several runs have a folder each."""


@frozen(kw_only=True)
class Explained(Checked):
    """Explanations of values, or of why no layout fits."""

    explanations: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The JSON that `moedsl explain --json` prints."""

    @property
    def text(self) -> str:
        """The explanations as `moedsl explain` prints them."""
        from moedsl.queries.explain.text import text_of

        return visible("\n".join(map(text_of, self.explanations)))

    def __str__(self) -> str:
        return self.text or self.messages
