"""The Python API: functions from a program to typed values, with diagnostics instead of exceptions.

A program is text, or the path of a .moe file. `like` names a recipe that Megatron Bridge ships: its layout is pinned
where the program does not pin another. `seconds` is what the search may take of a core, in any thread, and `memory_mb`
what it may allocate, on Linux; without them, it takes what it needs. A limit of memory can only be one of the whole
process: while it holds, other threads meet it too. docs/python.md shows how to plan in a process of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from os.path import isfile
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from moedsl.compiler import Result, compile_source
from moedsl.lang import reader
from moedsl.planner import several
from moedsl.planner.plan import Plan, escape
from moedsl.solver.solve import diagnostic
from moedsl.support.diagnostics import Diagnostic, to_json
from moedsl.support.limits import TooLarge, stopped_after, within_memory
from moedsl.support.source import Source
from moedsl.support.text import WIDTH, counted, visible

Row = dict[str, Any]


@frozen(kw_only=True, repr=False)
class Checked:
    """The diagnostics of a program."""

    diagnostics: tuple[Diagnostic, ...] = ()
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

    def __repr__(self) -> str:
        counts = Counter(d.severity for d in self.diagnostics)
        parts = [*self._contents(), *(counted(n, severity) for severity, n in counts.items())]
        return f"<{type(self).__name__}: {', '.join(parts) or 'no diagnostic'}>"

    def _contents(self) -> Iterator[str]:
        yield from ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@frozen(kw_only=True, repr=False)
class Answered(Checked):
    """The answer of a command."""

    data: Mapping[str, Any] = field(factory=dict)
    """The JSON that the command prints with `--json`; empty if there are errors."""
    text: str = ""
    """The answer as the command prints it."""
    rows: Sequence[Row] = ()
    """What the answer lists, as records: a change of `what_if`, a run of `results` and `gap`, a difference of `diff`, a
    rank of `profile`."""

    def to_dataframe(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; a nested value has a column such as `layout.tp`. Raises ImportError
        if pandas is not installed."""
        return import_module("pandas").json_normalize(self.rows)

    def __str__(self) -> str:
        return self.text or self.messages

    def _contents(self) -> Iterator[str]:
        yield counted(len(self.rows), "row")


@frozen(kw_only=True, repr=False)
class Planned(Checked):
    """The plans of a program, one for each run; empty if it has errors."""

    plans: tuple[Plan, ...] = ()

    @property
    def plan(self) -> Plan | None:
        """The first plan, or None."""
        return self.plans[0] if self.plans else None

    @property
    def text(self) -> str:
        """The plans as `moedsl plan` prints them."""
        from moedsl.planner.text import plan_text

        return visible("\n".join(map(plan_text, self.plans)))

    @property
    def rows(self) -> list[Row]:
        """A record for each plan: its run, its layout and its estimate."""
        return [several.record(p) for p in self.plans]

    def table(self) -> str:
        """What all plans have in common, and a line for each plan with the rest."""
        return visible(several.runs_text(self.plans, WIDTH)) if self.plans else ""

    def to_dataframe(self) -> Any:
        """Return a `pandas.DataFrame` with a line for each plan. Raises ImportError if pandas is not installed."""
        return import_module("pandas").DataFrame(self.rows)

    def __str__(self) -> str:
        from moedsl.planner.text import page_text

        shown = page_text(self.plans[0], [], [], WIDTH) if len(self.plans) == 1 else self.table()
        return visible(shown) or self.messages

    def _contents(self) -> Iterator[str]:
        yield counted(len(self.plans), "plan")

    def _repr_html_(self) -> str:
        shown = self.plans[0].html() if len(self.plans) == 1 else several.html(self.plans)
        return shown + (f"<pre>{escape(self.messages)}</pre>" if self.diagnostics else "")


@frozen(kw_only=True, repr=False)
class Compiled(Planned):
    """The plans of a program and their files."""

    files: Mapping[str, str] = field(factory=dict)
    """Texts by path: recipe.py, overrides.txt, plan.json and moedsl.lock.json; several runs have a folder each."""


@frozen(kw_only=True, repr=False)
class Explained(Checked):
    """Explanations of values, or of why no layout fits."""

    explanations: tuple[Mapping[str, Any], ...] = ()
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
    return _planned_source(source, like, limits, asks) if source else Planned(diagnostics=found)


def _planned_source(source: Source, like: str, limits: Limits, asks: str) -> Planned:
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


def sweep(program: str | Path, axis: str, values: Iterable[object], *, like: str = "") -> Planned:
    """Plan a program once for each value of an axis, as `sweep AXIS in VALUE, ...` does."""
    source, found = _read(program)
    if source is None:
        return Planned(diagnostics=found)
    swept = f"{source.text.rstrip()}\nsweep {axis} in {', '.join(map(str, values))}\n"
    return _planned_source(Source(source.name, swept), like, _within(None, None), "plans")


def what_if(
    program: str | Path, *, tokens: str | int | None = None, price: float | None = None, like: str = "", gpus: str = ""
) -> Answered:
    """Price each possible change of a run, as `moedsl what-if` does; `tokens` is a budget such as "10T", `price` what a
    GPU-hour costs, and `gpus` the other GPUs to compare, as in "h200,b200"."""
    if price is not None and tokens is None:
        raise ValueError("a price needs a number of tokens")
    options = {"tokens": tokens, "price": price, "like": like or None, "gpus": gpus or None}
    paths = [program] if _is_path(program) else []
    return _answer("what-if", paths, options | ({} if paths else {"expression": program}), lambda d: [
        {"run": run["name"], **change} for run in d["runs"] for change in run["lines"]
    ])  # fmt: skip


def diff(a: str | Path, b: str | Path, *, gpu: str | None = None, world: int | None = None) -> Answered:
    """Compare two runs, as `moedsl diff` does: run files, compiled folders, plans or recipes. A recipe runs as you;
    `gpu` and `world` are those of a recipe without a plan."""
    return _answer("diff", [a, b], {"gpu": gpu, "world": world}, lambda d: [
        {"effect": effect, **difference} for effect, found in d["changes"].items() for difference in found
    ])  # fmt: skip


def results(
    *paths: str | Path, baseline: str | Path | None = None, seq: str | int | None = None, gpus: int | None = None,
    global_batch: int | None = None, warmup: int | None = None,
) -> Answered:  # fmt: skip
    """Measure runs from their logs, as `moedsl results` does. The sizes are needed for a log without a plan."""
    sizes = {"seq": seq, "gpus": gpus, "global-batch": global_batch}
    return _answer("results", paths, {"baseline": baseline, "warmup": warmup} | sizes, lambda d: d["runs"])


def gap(log: str | Path, *, run: str | Path | None = None, warmup: int | None = None) -> Answered:
    """Explain a measured speed, as `moedsl gap` does; `run` is the run file of a log without a plan."""
    return _answer("gap", [log], {"run": run, "warmup": warmup}, lambda d: d["runs"])


def profile(*traces: str | Path, run: str | Path | None = None) -> Answered:
    """Say what a training step was spent on, as `moedsl profile` does."""
    return _answer("profile", traces, {"run": run}, lambda d: d["ranks"])


def _answer(
    command: str, paths: Iterable[str | Path], options: Mapping[str, Any], rows: Callable[[Any], Sequence[Row]]
) -> Answered:
    """Return the answer of a command; `rows` takes the records from its data."""
    from moedsl.cli.asking import ask

    heard = ask(command, paths, options)
    answered = Answered(diagnostics=tuple(heard.diagnostics), sources=heard.sources)
    if heard.data is None:
        return answered
    return evolve(answered, data=heard.data, text=visible(heard.text), rows=rows(heard.data))


def _read(program: str | Path) -> tuple[Source | None, tuple[Diagnostic, ...]]:
    return reader.read(program) if _is_path(program) else reader.from_text(str(program))


def _is_path(program: str | Path) -> bool:
    if isinstance(program, Path) or _PATH.fullmatch(program):
        return True
    return program.endswith(".moe") and isfile(program)


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
