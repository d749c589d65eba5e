"""Describe a case: a recipe on disk or in a package, its plan if it has one, the GPU and the world.

The GPU is that of the plan, or one of the stdlib, as torch.cuda would describe it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from moedsl.bridge.verify.gpu import Device, from_plan
from moedsl.bridge.verify.report import Report, failed
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware
from moedsl.planner.model.plan import Plan
from moedsl.support import foreign_json, foreign_python
from moedsl.support.diagnostics import suggest
from moedsl.support.generation import AGAIN, mixed
from moedsl.support.regular_file import text_of

_NAMED = re.compile(r"(?<![a-z\d])(\d+)gpu_([a-z]+\d+)(?![a-z\d])")


@frozen
class Case:
    """One recipe. `source` is a file path or a module name."""

    file: str
    source: str
    function: str
    plan: Plan | None
    """plan.json; if there is none, nothing is compared."""
    device: Device
    world: int
    seconds: float = 300.0
    """The time limit for all questions together, in seconds."""
    stages: bool = True
    """Whether the real model is built stage by stage."""
    question: str = "judge"
    """judge, or resolve: only the recipe as built and after Bridge's update (resolve.py)."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self, filter=lambda a, _: a.name != "plan"), "plan": self.plan and self.plan.to_json()}


def from_json(data: Mapping[str, Any]) -> Case:
    device: dict[str, Any] = dict(data["device"])
    device["capability"] = tuple(device["capability"])
    plan = Plan.from_json(data["plan"]) if data["plan"] else None
    values: dict[str, Any] = {**data, "device": Device(**device), "plan": plan}
    return Case(**values)


def read(target: str, gpu: str | None = None, world: int | None = None) -> Case | Report:
    """Make a case from a directory, recipe.py, recipe.py:function or module:function; else a failed Report.

    `gpu` and `world` describe a recipe without a plan; by default its function's name does (`..._256gpu_gb200_...`).
    """
    if gpu is not None and gpu not in devices():
        return failed(target, "verify.input", f"`{gpu}` is not a supported GPU", unknown(gpu))
    located = _locate(target)
    if isinstance(located, Report):
        return located
    source, function, plan = located
    named = _NAMED.search(function)
    device = devices().get(gpu) if gpu else (from_plan(plan) if plan else devices().get(named[2]) if named else None)
    ranks = world or (plan.gpus if plan else None) or (int(named[1]) if named else None)
    if device is None:
        return failed(target, "verify.input", "the recipe does not name its GPU", choices())
    if ranks is None:
        return failed(target, "verify.input", "the recipe does not name its number of GPUs", "--world N")
    return Case(target, source, function, plan, device, int(ranks))


def runs_in(target: str) -> list[str]:
    """The folders of runs in a folder that has no recipe itself, in the order of their names; else the target."""
    folder = Path(target)
    here = not os.path.isdir(target) or os.path.exists(folder / "recipe.py")
    below = [] if here else sorted(folder.glob("*/recipe.py"))
    return [str(p.parent) for p in below] or [target]


def _locate(target: str) -> tuple[str, str, Plan | None] | Report:
    """Find source, function and plan; a failed Report if there is no such recipe."""
    head, _, name = target.partition(":")
    path = Path(head)
    if not os.path.exists(path):
        if name and re.fullmatch(r"\w+(\.\w+)+", head):
            return head, name, None
        return failed(
            target, "verify.input", "no such file", "name a directory that moedsl compile wrote, or a recipe.py"
        )
    if path.is_dir():
        path = path / "recipe.py"
        if not path.exists():
            return failed(
                target, "verify.input", "there is no recipe.py in it", "moedsl compile RUN.moe -o DIR writes one"
            )
    if not path.is_file():
        return failed(target, "verify.input", "not a regular file", "save it as a file first")
    try:
        function = name or _function(path)
    except OSError as refused:
        return failed(target, "verify.input", f"cannot be read: {refused.strerror}", "check its permissions")
    if function is None:
        help = f"name the function: {head}:FUNCTION"
        return failed(target, "verify.input", "not a Python file with one public function ending in _config", help)
    if wrong := mixed(path.parent):
        return failed(target, "verify.mixed", wrong, AGAIN)
    beside = path.parent / "plan.json"
    try:
        plan = Plan.from_json(foreign_json.loads(text_of(beside))) if beside.exists() else None
    except (OSError, ValueError) as e:
        return failed(target, "verify.input", f"{beside} is not a plan: {getattr(e, 'strerror', None) or e}")
    return str(path.resolve()), function, plan


def _function(path: Path) -> str | None:
    """The one public function ending in _config, else the only public one; None if there is not exactly one."""
    tree = foreign_python.parse_file(path)
    public = [
        n.name for n in (tree.body if tree else ()) if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    ]
    wanted = [n for n in public if n.endswith("_config")] or public
    return wanted[0] if len(wanted) == 1 else None


@cache
def devices() -> Mapping[str, Device]:
    """The GPUs by the names that NVIDIA's recipes use. A plan for other hardware has its own `device`."""
    library = load_stdlib()
    return {name: _device(h) for name in sorted(library.hardware) if (h := library.gpu(name)[0]) is not None}


def choices() -> str:
    """Write the option that names a GPU, with its values."""
    return f"--gpu {'|'.join(devices())}"


def unknown(gpu: str) -> str:
    """Suggest the GPUs that a name begins, else one that it resembles, and list all."""
    begun = " or ".join(f"`{name}`" for name in devices() if name.startswith(gpu))
    return " ".join(((f"did you mean {begun}?",) if begun else suggest(gpu, [*devices()], 0.5)) + (choices(),))


def _device(h: Hardware) -> Device:
    major, minor = divmod(round(h.capability * 10), 10)
    return Device(h.device, (major, minor), int(h.total), h.sms)
