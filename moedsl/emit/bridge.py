"""Write a plan as a Megatron Bridge recipe: a Python module whose public function returns a ``ConfigContainer``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from moedsl.emit import fields
from moedsl.megatron.families import family
from moedsl.megatron.values import Call, Dtype, parts, python
from moedsl.planner.model.decisions import Decision
from moedsl.planner.model.plan import Plan

if TYPE_CHECKING:
    from jinja2 import Template

_WIDTH = 116
_CONFIG = "megatron.bridge.training.config"
_BASE = {
    "AutoBridge": "megatron.bridge",
    "distributed_fused_adam_with_cosine_annealing": "megatron.bridge.recipes.utils.optimizer_utils",
    **dict.fromkeys((
        "CheckpointConfig", "ConfigContainer", "DistributedDataParallelConfig", "LoggerConfig",
        "RNGConfig", "TokenizerConfig", "TrainingConfig", "ValidationConfig",
    ), _CONFIG),
}  # fmt: skip
"""Names that the template uses, with their modules."""

_NOTES = {
    "dispatcher": "apply_flex_dispatcher_backend falls back silently on an unknown GPU, so the fields are set again",
    "routing": "balanced routing is for benchmarks only: the router's choice is ignored",
}


@frozen
class Line:
    """One line of the recipe's body; a comment has no statement."""

    text: str
    comment: bool = False


def function_name(plan: Plan) -> str:
    """Name the recipe as Bridge does (recipes/utils/naming.py:34): ``MODEL_TASK_Ngpu_HARDWARE_PRECISION_config``."""
    name = f"{plan.model}_{plan.task}_{plan.gpus}gpu_{plan.hardware}_{plan.policy.precision}_config"
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def recipe_text(plan: Plan) -> str:
    """Write the recipe's source. The same plan gives the same bytes; Bridge and torch are not imported."""
    sections = fields.sections(plan)
    settings = [s for _, group in sections for s in group]
    values = [p for s in settings for p in parts(s.value)]
    kin, sft = family(plan.family), plan.task == "sft"
    return _template().render(
        title=_plain(f"{plan.model}: {plan.task} on {plan.gpus} x {plan.hardware}"),
        target=_plain(str(plan.target.bridge)),
        function=function_name(plan),
        launch=_launch(plan),
        imports=_imports(values, flex=plan.policy.dispatcher != "alltoall"),
        torch=any(isinstance(v, Dtype) for v in values),
        hf=python(plan.hf),
        remote_code=kin.remote_code,
        backend=python(plan.policy.dispatcher),
        flex=plan.policy.dispatcher != "alltoall",
        sft=sft,
        fsdp=plan.policy.sharding == "fsdp",
        weights="checkpoint.pretrained_checkpoint" in plan.set,
        checkpoints=_checkpoints(plan),
        sections=[(title, _lines(plan, group)) for title, group in sections],
        env=[_env(plan, name, value) for name, value in plan.env.items()],
        step=kin.step,
        entry="finetune" if sft else "pretrain",
    )


def _checkpoints(plan: Plan) -> str | None:
    """The folder where a run saves and loads checkpoints; None if it saves none."""
    saved = plan.set.get("checkpoint.save")
    if saved is None and plan.policy.data == "mock":
        return None
    return python(saved or f"nemo_experiments/{function_name(plan)}/checkpoints")


_NSYS = "nsys profile -s none -t nvtx,cuda --capture-range=cudaProfilerApi --capture-range-end=stop -o profile_%h"
"""The command that Megatron's `use_nsys_profiler` requires (megatron/training/config/common_config.py:29)."""


def _launch(plan: Plan) -> str:
    """The command of a node; Nsight captures only the profiled steps."""
    run = "torchrun --nproc-per-node gpu recipe.py"
    nsys = {**plan.derived, **plan.set}.get("profiling.use_nsys_profiler")
    return f"{_NSYS} \\\n        {run}" if nsys else run


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from moedsl.emit import bytecode

    # the output is Python, not HTML: every value is already a Python literal or a cleaned comment
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    env = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        bytecode_cache=bytecode.DiskCache(),
    )  # fmt: skip
    return env.get_template("recipe.py.j2")


def _imports(values: Iterable[Any], *, flex: bool) -> list[tuple[str, list[str]]]:
    """The ``from`` imports, sorted by module, each with its sorted names."""
    wanted = dict(_BASE)
    wanted.update({v.name: v.module for v in values if isinstance(v, Call)})
    if flex:
        wanted["apply_flex_dispatcher_backend"] = "megatron.bridge.training.flex_dispatcher_backend"
    modules = sorted(set(wanted.values()))
    return [(m, sorted(n for n in wanted if wanted[n] == m)) for m in modules]


def _lines(plan: Plan, group: Iterable[fields.Setting]) -> list[Line]:
    """The statements, grouped by decision under a comment with its value, its origin and its reason."""
    out: list[Line] = []
    current: str | None = None
    for setting in group:
        if setting.word and setting.word != current:
            out += [Line(text, comment=True) for text in _reasons(plan, setting.word)]
        current = setting.word
        out += [Line(setting.why, comment=True)] if setting.why else []
        out.append(Line(_assignment(setting)))
    return out


def _assignment(setting: fields.Setting) -> str:
    head, _, name = setting.path.partition(".")
    if head == "env_vars":
        return f"cfg.env_vars[{python(name)}] = {python(setting.value)}"
    text = f"cfg.{setting.path} = {python(setting.value)}"
    if len(text) <= _WIDTH or not isinstance(setting.value, Call):
        return text
    inside = "".join(f"    {k}={python(v)},\n" for k, v in setting.value.kwargs.items())
    return f"cfg.{setting.path} = {setting.value.name}(\n{inside})"


def _reasons(plan: Plan, word: str) -> list[str]:
    """A short line with the decision and its reason, and a note where a reader could go wrong."""
    lines = [_reason(d) for d in plan.decisions if d.name == word]
    quiet = {"dispatcher": "alltoall", "routing": "natural"}
    noted = word in _NOTES and getattr(plan.policy, word) != quiet[word]
    return [*lines, _NOTES[word]] if noted else lines


def _reason(decision: Decision) -> str:
    value = decision.value
    shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
    because = _plain(decision.because or "")
    text = _plain(f"{decision.name} {shown} ({decision.origin})") + (f": {because}" if because else "")
    return textwrap.shorten(text, _WIDTH - 2, placeholder=" ...")


def _env(plan: Plan, name: str, value: Any) -> tuple[list[str], str]:
    """The comment lines and the dictionary entry of one environment variable."""
    reasons = [_reason(d) for d in plan.decisions if d.name in (name, f"env.{name}")]
    return reasons, f"{python(name)}: {python(value)},"


def _plain(text: str) -> str:
    """Clean text for a comment or a docstring: one printable line that cannot end it."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line.replace("\\", "/").replace('"""', "'''")
