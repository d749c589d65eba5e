"""Hold the real Megatron Bridge's result for one recipe: values first, JSON from them, text from the JSON's fields."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import asdict, field, frozen

from moedsl.support.pages import require_declared

LONGEST = 2000
"""The most characters of an exception in a refusal."""


@frozen
class Refusal:
    """An exception of NVIDIA's code: its message, and the line that raised it."""

    where: str
    """file:line below site-packages, or in the recipe."""
    error: str
    message: str
    question: str
    """recipe, update, groups, overlap, runtime, stages or graphs."""


def refusal(error: BaseException, question: str) -> Refusal:
    """Make a refusal; `where` is the innermost line, relative to site-packages if it is below."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.split('site-packages/')[-1]}:{last.lineno}"
    return Refusal(where, type(error).__name__, str(error).strip()[:LONGEST], question)


def is_theirs(error: BaseException) -> bool:
    """Whether the exception passed through NVIDIA's code, or Transformer Engine's, at its innermost three lines."""
    last = traceback.extract_tb(error.__traceback__)[-3:]
    return any("/megatron/" in f.filename or "/transformer_engine/" in f.filename for f in last)


@frozen
class Mismatch:
    """A difference between the plan and the real configuration."""

    field: str
    """A dotted ConfigContainer field, or groups.NAME, or stages[N].params."""
    planned: Any
    resolved: Any
    note: str = ""


@frozen
class Change:
    """A value of the recipe that Bridge replaced silently."""

    field: str
    before: Any
    after: Any
    origin: str = "recipe"
    """The origin of the value: plan, recipe (or a recipe below it), or default if nobody set it."""
    by: str = ""
    """file:line that assigned the new value, below site-packages; "" if unknown."""


_WITHOUT_REFUSAL = ("accepted", "read")


@frozen
class Report:
    """The verdict on one recipe. `accepted` or `read` without a mismatch means success; `failed` means that the check
    broke."""

    file: str
    verdict: str
    """accepted, refused, failed, or read: compared with its plan and not run."""
    refusals: tuple[Refusal, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    changed: tuple[Change, ...] = ()
    settled: Mapping[str, Any] = field(factory=dict)
    """data_parallel_size, num_microbatches, dispatcher and backend after Bridge's update."""
    groups: Mapping[str, Any] = field(factory=dict)
    """Group name -> {count, sizes, matches}."""
    stages: tuple[Mapping[str, Any], ...] = ()
    """{stage, planned: {params, expert_params} or None, real: {dense, expert, chunks}} of one rank."""
    parameters: int | None = None
    """Parameters of the whole model, each counted once."""
    cautions: tuple[str, ...] = ()
    """Silent errors of training."""
    warnings: tuple[str, ...] = ()
    """Log messages of NVIDIA's code."""
    stood_in: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(factory=dict)
    versions: Mapping[str, str] = field(factory=dict)
    message: str = ""
    """The reason of a failure; empty otherwise."""
    id: str = ""
    """The diagnostic id of a failure: verify.no_bridge, verify.input, verify.crash, verify.timeout."""
    help: str = ""
    read: tuple[str, ...] = ()
    """Of a recipe that was read: how much of the plan its source states, and what it leaves open."""

    @property
    def ok(self) -> bool:
        """Whether it is accepted, or was only read, and nothing differs from the plan."""
        return self.verdict in _WITHOUT_REFUSAL and not self.mismatches

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


def failed(file: str, id: str, message: str, help: str = "") -> Report:
    """Make a report of a check that failed, with the reason."""
    require_declared(id, "error")
    return Report(file, "failed", message=message, id=id, help=help)


def from_json(data: Mapping[str, Any]) -> Report:
    """Read a report from the JSON of `to_json`."""
    values = {k: v for k, v in data.items() if k != "ok"}
    for name, kind in (("refusals", Refusal), ("mismatches", Mismatch), ("changed", Change)):
        values[name] = tuple(kind(**item) for item in values.get(name, ()))
    for name in ("stages", "cautions", "warnings", "stood_in", "read"):
        values[name] = tuple(values.get(name, ()))
    return Report(**values)


def render(report: Report) -> str:
    """Print a few lines for a person; the JSON form has everything."""
    differs = ", but not what was planned" if report.verdict in _WITHOUT_REFUSAL and report.mismatches else ""
    lines = [f"{report.file}: {report.verdict}{differs}{_summary(report)}"]
    if report.message:
        lines += [f"  {report.id}: {report.message}"]
    lines += [f"  refused by {r.where} ({r.question}): {r.error}: {r.message}" for r in report.refusals]
    lines += [f"  differs  {m.field}: planned {m.planned}, is {m.resolved}{_note(m.note)}" for m in report.mismatches]
    lines += [f"  {text}" for text in report.read]
    lines += [f"  caution  {text}" for text in report.cautions]
    lines += _replaced(report)
    lines += [f"  replaced by a stand-in: {text}" for text in report.stood_in]
    return "\n".join(lines + ([f"  help: {report.help}"] if report.help else []))


_REPLACED = "  replaced by Bridge's runtime_config_update, which pretrain() calls first:"
_ORIGINS = {"plan": "as the plan wrote it", "recipe": "as the recipe has it", "default": "a default"}


def _replaced(report: Report) -> Iterator[str]:
    """Write which values Bridge's update replaced: their origins, and the lines that replaced them."""
    yield from [_REPLACED] if report.changed else []
    for c in sorted(report.changed, key=lambda c: [*_ORIGINS].index(c.origin)):
        yield f"    {c.field}: {c.before} ({_ORIGINS[c.origin]}) -> {c.after}{_note(c.by)}"


def _note(text: str) -> str:
    return f" ({text})" if text else ""


def _summary(report: Report) -> str:
    parts: list[str] = []
    if report.groups:
        matching = sum(bool(g["matches"]) for g in report.groups.values())
        parts.append(f"{matching} of {len(report.groups)} process group families as computed")
    if report.stages:
        compared = "equal to the plan" if _stages_equal(report) else "counted"
        parts.append(f"parameters of {len(report.stages)} stages {compared}")
    if report.seconds:
        parts.append(f"{report.seconds.get('total', 0.0):.1f} s")
    return f" ({', '.join(parts)})" if parts else ""


def _stages_equal(report: Report) -> bool:
    planned = all(stage["planned"] is not None for stage in report.stages)
    return planned and not any(m.field.startswith("stages") for m in report.mismatches)
