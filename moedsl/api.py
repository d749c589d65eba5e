"""The Python API: functions from a program to typed values, with diagnostics instead of exceptions.

A program is text, or the path of a .moe file. `like` names a recipe that Megatron Bridge ships: its layout is pinned
where the program does not pin another. `seconds` is what the search may take of a core, in any thread, and `memory_mb`
what it may allocate, on Linux; without them, it takes what it needs. A limit of memory can only be one of the whole
process: while it holds, other threads meet it too. docs/python.md shows how to plan in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from os.path import isfile
from pathlib import Path
from typing import Any

from attrs import field, frozen

from moedsl.compiler import Result, compile_source
from moedsl.lang import reader
from moedsl.planner.plan import Plan, escape
from moedsl.solver.solve import diagnostic
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.limits import TooLarge, stopped_after, within_memory
from moedsl.support.source import Source
from moedsl.support.text import visible


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
        from moedsl.planner.text import plan_text

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
        from moedsl.queries.explain_text import text_of

        return visible("\n".join(map(text_of, self.explanations)))

    def __str__(self) -> str:
        return self.text or self.messages


Limits = AbstractContextManager[None]
_PATH = re.compile(r"[^\n;#]+\.moe")
"""A text that is a path, whether the file is there or not."""


def check(
    program: str | Path, *, like: str = "", seconds: float | None = None, memory_mb: float | None = None
) -> Checked:
    """Check a program; this includes the search, because a run without a layout is an error."""
    found = _planned(program, like, _within(seconds, memory_mb), "diagnostics")
    return Checked(diagnostics=found.diagnostics, sources=found.sources)


def plan(
    program: str | Path, *, like: str = "", seconds: float | None = None, memory_mb: float | None = None
) -> Planned:
    """Plan every run of a program."""
    return _planned(program, like, _within(seconds, memory_mb), "plans")


def _planned(program: str | Path, like: str, limits: Limits, asks: str) -> Planned:
    source, found = _read(program)
    if source is None:
        return Planned(diagnostics=found)
    result = _compiled(source, like, limits, asks)
    plans = () if result.failed else result.plans
    return Planned(plans=plans, diagnostics=tuple(result.diagnostics), sources=result.sources)


def compile(
    program: str | Path,
    folder: str | Path | None = None,
    *,
    force: bool = False,
    like: str = "",
    seconds: float | None = None,
    memory_mb: float | None = None,
) -> Compiled:
    """Plan every run of a program and make its recipe, overrides, plan and lock.

    They are written only if a `folder` is given; `force` overwrites files that moedsl did not write.
    """
    source, found = _read(program)
    if source is None:
        return Compiled(diagnostics=found)
    from moedsl.emit.artifact import files_of_runs

    result = _compiled(source, like, _within(seconds, memory_mb), "recipe")
    found = tuple(result.diagnostics)
    if result.failed:
        return Compiled(diagnostics=found, sources=result.sources)
    files = files_of_runs(result.plans, result.source, result.library)
    if folder is not None:
        from moedsl.support.files import left_over, write_all

        old = left_over(folder, files)
        found += tuple(write_all(folder, files, force, old.ours) or old.diagnostics())
    return Compiled(plans=result.plans, files=files, diagnostics=found, sources=result.sources)


def explain(
    program: str | Path,
    *names: str,
    run: str | None = None,
    like: str = "",
    seconds: float | None = None,
    memory_mb: float | None = None,
) -> Explained:
    """Explain values such as `tp` or a field of Bridge, or the whole plan; for a run without a layout, the conflict."""
    source, found = _read(program)
    if source is None:
        return Explained(diagnostics=found)
    from moedsl.cli.reference.page import page
    from moedsl.queries.explain import answer

    try:
        with _within(seconds, memory_mb):
            made = answer(source, names, run, like, page)
    except TooLarge as reached:
        return Explained(diagnostics=(diagnostic(reached),))
    return Explained(explanations=made.explanations, diagnostics=made.diagnostics, sources=made.sources)


def _read(program: str | Path) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    if isinstance(program, Path) or _PATH.fullmatch(program) or (program.endswith(".moe") and isfile(program)):
        return reader.read(program)
    return reader.from_text(program)


def _compiled(source: Source, like: str, limits: Limits, asks: str = "plans") -> Result:
    """Run the stages; a search that is too large is an error in their result."""
    try:
        with limits:
            return compile_source(source, like=like, asks=asks)
    except TooLarge as reached:
        return Result(source, diagnostics=[diagnostic(reached)])


@contextmanager
def _within(seconds: float | None, memory_mb: float | None) -> Generator[None]:
    """Raise TooLarge at the limits that are given."""
    with ExitStack() as limits:
        if memory_mb is not None:
            limits.enter_context(within_memory(memory_mb))
        if seconds is not None:
            limits.enter_context(stopped_after(seconds))
        yield
