"""Provide the functions of the API: a program in, typed values out. A program is text, or the path of a .moe file.

`like` names a recipe that Megatron Bridge ships: its layout is pinned where the program does not pin another.
"""

from __future__ import annotations

from pathlib import Path

from moedsl.api.results import Checked, Compiled, Explained, Planned
from moedsl.compiler import Result, compile_source
from moedsl.diagnostics.model import Diagnostic
from moedsl.diagnostics.source import Source
from moedsl.syntax import reader


def check(program: str | Path, *, like: str = "") -> Checked:
    """Check a program; this includes the search, because a run without a layout is an error."""
    found = plan(program, like=like)
    return Checked(diagnostics=found.diagnostics, sources=found.sources)


def plan(program: str | Path, *, like: str = "") -> Planned:
    """Plan every run of a program."""
    source, found = _read(program)
    if source is None:
        return Planned(diagnostics=found)
    result = compile_source(source, like=like)
    plans = () if result.failed else result.plans
    return Planned(plans=plans, diagnostics=tuple(result.diagnostics), sources=_sources(result))


def compile(program: str | Path, folder: str | Path | None = None, *, force: bool = False, like: str = "") -> Compiled:
    """Plan every run of a program and make its recipe, overrides, plan and lock.

    They are written only if a `folder` is given; `force` overwrites files that moedsl did not write.
    """
    source, found = _read(program)
    if source is None:
        return Compiled(diagnostics=found)
    from moedsl.emit.artifact import files_of_runs

    result = compile_source(source, like=like)
    found = tuple(result.diagnostics)
    if result.failed:
        return Compiled(diagnostics=found, sources=_sources(result))
    files = files_of_runs(result.plans, result.source, result.library)
    if folder is not None:
        from moedsl.support.owned_files import write_all

        found += tuple(write_all(Path(folder), files, force))
    return Compiled(plans=result.plans, files=files, diagnostics=found, sources=_sources(result))


def explain(program: str | Path, *names: str, run: str | None = None, like: str = "") -> Explained:
    """Explain values such as `tp` or a field of Bridge, or the whole plan; for a run without a layout, the conflict."""
    source, found = _read(program)
    if source is None:
        return Explained(diagnostics=found)
    from moedsl.queries.explain_run import answer

    made = answer(source, names, run, like)
    return Explained(explanations=made.explanations, diagnostics=made.diagnostics, sources=made.sources)


def _read(program: str | Path) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    if isinstance(program, Path) or (program.endswith(".moe") and Path(program).is_file()):
        return reader.read(program)
    return reader.from_text(program)


def _sources(result: Result) -> dict[str, Source]:
    return {**result.library.sources, result.source.name: result.source}
