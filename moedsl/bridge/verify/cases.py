"""Define a question to Bridge, a `Case` (a recipe, its plan, the GPU and the world size), and the answer, a `Report`.

The GPU is the plan's or one of the stdlib's, as torch.cuda would describe it.
"""

from __future__ import annotations

import ast
import os
import re
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from moedsl.compiler import load_stdlib
from moedsl.facts.releases import RENAMED_GPUS
from moedsl.planner.plan import Plan
from moedsl.support import foreign
from moedsl.support.diagnostics import require_declared, suggest
from moedsl.support.files import COMPILE_AGAIN as AGAIN
from moedsl.support.files import mixed
from moedsl.support.foreign import text_of
from moedsl.support.json_form import JsonForm

_NAMED = re.compile(r"(?<![a-z\d])(\d+)gpu_([a-z]+\d+)(?![a-z\d])")


@frozen
class Device(JsonForm):
    """One GPU as torch.cuda describes it."""

    name: str
    """The name, starting as NVIDIA's driver writes it."""
    capability: tuple[int, int]
    memory: int
    """Total memory in bytes, which is less than the driver shows."""
    sms: int


def from_plan(plan: Plan) -> Device:
    """Return the GPU of a plan."""
    d = plan.device
    return Device(d.name, (d.capability[0], d.capability[1]), d.memory, d.sms)


@frozen
class Case(JsonForm):
    """One recipe. `source` is a file path or a module name."""

    file: str
    source: str
    function: str
    plan: Plan | None
    """The plan in plan.json; None if there is none, and nothing is compared."""
    device: Device
    world: int
    seconds: float = 300.0
    """The time limit for all questions together, in seconds."""
    stages: bool = True
    """Whether the real model is built stage by stage."""
    question: str = "judge"
    """`judge` for all questions, or `resolve` for only the fields as built and after Bridge's update (resolve.py)."""


def read(target: str, gpu: str | None = None, world: int | None = None) -> Case | Report:
    """Make a case from a directory, recipe.py, recipe.py:function or module:function; a failed Report if that is
    impossible.

    `gpu` and `world` describe a recipe without a plan; by default they are read from its function's name
    (`..._256gpu_gb200_...`).
    """
    if gpu is not None and gpu not in devices():
        return failed(target, "verify.input", f"`{gpu}` is not a supported GPU", unknown(gpu))
    located = _locate(target)
    if isinstance(located, Report):
        return located
    source, function, plan = located
    named = _NAMED.search(function)
    if gpu is not None:
        device = devices().get(gpu)
    else:
        device = from_plan(plan) if plan else devices().get(RENAMED_GPUS.get(named[2], named[2])) if named else None
    ranks = world or (plan.gpus if plan else None) or (int(named[1]) if named else None)
    if device is None:
        return failed(target, "verify.input", "the recipe does not name its GPU", choices())
    if ranks is None:
        return failed(target, "verify.input", "the recipe does not name its number of GPUs", "--world N")
    return Case(target, source, function, plan, device, int(ranks))


def runs_in(target: str) -> list[str]:
    """Return the run folders in a folder that has no recipe itself, sorted by name; without any, just the target."""
    folder = Path(target)
    here = not os.path.isdir(target) or os.path.exists(folder / "recipe.py")
    below = [] if here else sorted(folder.glob("*/recipe.py"))
    return [str(p.parent) for p in below] or [target]


def _locate(target: str) -> tuple[str, str, Plan | None] | Report:
    """Find source, function and plan; a failed Report if there is no such recipe.

    Without a name, take the only public function that ends in _config, else the only public function.
    """

    def wrong(message: str, help: str = "", id: str = "verify.input") -> Report:
        return failed(target, id, message, help)

    head, _, name = target.partition(":")
    path = Path(head)
    if not os.path.exists(path):
        if name and re.fullmatch(r"\w+(\.\w+)+", head):
            return head, name, None
        return wrong("no such file", "name a directory that moedsl compile wrote, or a recipe.py")
    if path.is_dir():
        path = path / "recipe.py"
        if not path.exists():
            return wrong("there is no recipe.py in it", "moedsl compile RUN.moe -o DIR writes one")
    if not path.is_file():
        return wrong("not a regular file", "save it as a file first")
    if not name:
        try:
            tree = foreign.parse_python_file(path)
        except OSError as refused:
            return wrong(f"cannot be read: {refused.strerror}", "check its permissions")
        functions = [n.name for n in (tree.body if tree else ()) if isinstance(n, ast.FunctionDef)]
        public = [n for n in functions if not n.startswith("_")]
        wanted = [n for n in public if n.endswith("_config")] or public
        if len(wanted) != 1:
            if path.suffix != ".py":
                help = f"`moedsl import {head}` writes the program of a script, a log or a run_config.yaml"
                return wrong("not a Python file", help)
            text = "not a Python file with one public function ending in _config"
            return wrong(text, f"name the function: {head}:FUNCTION")
        name = wanted[0]
    if torn := mixed(path.parent):
        return wrong(torn, AGAIN, "verify.mixed")
    beside = path.parent / "plan.json"
    try:
        plan = Plan.from_json(foreign.load_json(text_of(beside))) if beside.exists() else None
    except (OSError, ValueError) as e:
        return wrong(f"{beside} is not a plan: {getattr(e, 'strerror', None) or e}")
    return str(path.resolve()), name, plan


@cache
def devices() -> Mapping[str, Device]:
    """Return the GPUs by the names that NVIDIA's recipes use. A plan for other hardware has its own `device`."""
    library = load_stdlib()
    found = {name: library.gpu(name)[0] for name in sorted(library.hardware)}
    capabilities = {name: divmod(round(h.capability * 10), 10) for name, h in found.items() if h}
    return {n: Device(h.device, capabilities[n], int(h.total), h.sms) for n, h in found.items() if h}


def choices() -> str:
    """Format the option that names a GPU, with its values."""
    return f"--gpu {'|'.join(devices())}"


def unknown(gpu: str) -> str:
    """Suggest the GPUs whose names start with `gpu`, else a similar one, and list all."""
    begun = " or ".join(f"`{name}`" for name in devices() if name.startswith(gpu))
    return " ".join(((f"did you mean {begun}?",) if begun else suggest(gpu, [*devices()], 0.5)) + (choices(),))


LONGEST = 2000
"""The most characters of an exception in a refusal."""


@frozen
class Refusal(JsonForm):
    """An exception from NVIDIA's code: its message, and the line that raised it."""

    where: str
    """file:line below site-packages, or in the recipe."""
    error: str
    message: str
    question: str
    """The question that was asked: recipe, update, groups, overlap, runtime, stages or graphs."""

    @property
    def lacks_configuration(self) -> bool:
        """Whether Bridge only could not read the model's Hugging Face configuration, which may be elsewhere."""
        return "/hf_pretrained/safe_config_loader.py" in self.where


def refusal(error: BaseException, question: str) -> Refusal:
    """Make a refusal; `where` is the innermost line, relative to site-packages if it is below."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{foreign.below_packages(last.filename)}:{last.lineno}"
    return Refusal(where, type(error).__name__, str(error).strip()[:LONGEST], question)


def is_theirs(error: BaseException) -> bool:
    """Whether one of the exception's innermost three frames is in NVIDIA's code or Transformer Engine's."""
    last = traceback.extract_tb(error.__traceback__)[-3:]
    return any("/megatron/" in f.filename or "/transformer_engine/" in f.filename for f in last)


@frozen
class Mismatch(JsonForm):
    """A difference between the plan and the real configuration."""

    field: str
    """A dotted ConfigContainer field, or groups.NAME, or stages[N].params."""
    planned: Any
    resolved: Any
    note: str = ""


@frozen
class Change(JsonForm):
    """A value of the recipe that Bridge replaced silently."""

    field: str
    before: Any
    after: Any
    origin: str = "recipe"
    """The origin of the value: plan, recipe (or one of its base recipes), or default if nobody set it."""
    by: str = ""
    """file:line that assigned the new value, below site-packages; "" if unknown."""


_WITHOUT_REFUSAL = ("accepted", "read")


@frozen
class Report(JsonForm):
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
    """For one rank of each stage: {stage, planned: {params, expert_params} or None, real: {dense, expert, chunks}}."""
    parameters: int | None = None
    """Parameters of the whole model, each counted once."""
    cautions: tuple[str, ...] = ()
    """Errors that training would make silently."""
    warnings: tuple[str, ...] = ()
    """Log messages of NVIDIA's code."""
    stood_in: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(factory=dict)
    versions: Mapping[str, str] = field(factory=dict)
    message: str = ""
    """The reason for a failure; empty otherwise."""
    id: str = ""
    """The diagnostic id of a failure: verify.no_bridge, verify.input, verify.crash, verify.timeout."""
    help: str = ""
    read: tuple[str, ...] = ()
    """For the verdict `read`: how much of the plan the recipe's source states, and what it leaves open."""

    @property
    def ok(self) -> bool:
        """Whether the recipe was accepted or only read, and nothing differs from the plan."""
        return self.verdict in _WITHOUT_REFUSAL and not self.mismatches

    def to_json(self) -> dict[str, Any]:
        lists = asdict(self, value_serializer=lambda _, __, value: [*value] if isinstance(value, tuple) else value)
        return lists | {"ok": self.ok}


def failed(file: str, id: str, message: str, help: str = "") -> Report:
    """Make the report of a check that failed; `message` is the reason."""
    require_declared(id, "error")
    return Report(file, "failed", message=message, id=id, help=help)


def render(report: Report) -> str:
    """Format a report in a few lines for a person; the JSON form has everything."""
    differs = ", but not what was planned" if report.verdict in _WITHOUT_REFUSAL and report.mismatches else ""
    parts: list[str] = []
    if report.groups:
        matching = sum(bool(g["matches"]) for g in report.groups.values())
        parts.append(f"{matching} of {len(report.groups)} process group families as computed")
    if report.stages:
        planned = all(stage["planned"] is not None for stage in report.stages)
        equal = planned and not any(m.field.startswith("stages") for m in report.mismatches)
        parts.append(f"parameters of {len(report.stages)} stages {'equal to the plan' if equal else 'counted'}")
    if report.seconds:
        parts.append(f"{report.seconds.get('total', 0.0):.1f} s")
    summary = f" ({', '.join(parts)})" if parts else ""
    lines = [f"{report.file}: {report.verdict}{differs}{summary}"]
    if report.message:
        lines += [f"  {report.id}: {report.message}"]
    lines += [f"  refused by {r.where} ({r.question}): {r.error}: {r.message}" for r in report.refusals]
    lines += [f"  differs  {m.field}: planned {m.planned}, is {m.resolved}{_note(m.note)}" for m in report.mismatches]
    lines += [f"  {text}" for text in report.read]
    lines += [f"  caution  {text}" for text in report.cautions]
    if report.changed:
        lines += ["  replaced by Bridge's runtime_config_update, which pretrain() calls first:"]
    for c in sorted(report.changed, key=lambda c: [*_ORIGINS].index(c.origin)):
        lines += [f"    {c.field}: {c.before} ({_ORIGINS[c.origin]}) -> {c.after}{_note(c.by)}"]
    lines += [f"  replaced by a stand-in: {text}" for text in report.stood_in]
    return "\n".join(lines + ([f"  help: {report.help}"] if report.help else []))


_ORIGINS = {"plan": "as the plan wrote it", "recipe": "as the recipe has it", "default": "a default"}


def _note(text: str) -> str:
    return f" ({text})" if text else ""
