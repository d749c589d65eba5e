"""Write a rehearsal as a folder: its run file, the recipe that the emitter makes of it, and the model's config.json.

The run file pins every axis, so rules and emitter handle it like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
from attrs import asdict, evolve, frozen

from moedsl.bridge.verify import gpu
from moedsl.compiler import compile_source
from moedsl.cost.parameters import Parameters
from moedsl.cost.parameters import stage as stage_parameters
from moedsl.cost.pipeline import Layout, layout_for, parse_layout
from moedsl.emit.artifact import files_of
from moedsl.emit.naming import function_name
from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.planner.model.plan import Plan
from moedsl.rehearse import hf
from moedsl.rehearse.shrink import Rehearsal
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.owned_files import write_all, written_as
from moedsl.support.source import Source

RUN, TASK, MODEL = "rehearsal.moe", "task.json", "model"
STEP = "megatron.bridge.training.gpt_step"


@frozen
class Prepared:
    """The files on disk and the expected results."""

    folder: Path
    rehearsal: Rehearsal
    """The small program, whose model has a folder as `hf`."""
    plan: Plan
    """The plan of the small run."""
    iterations: int
    parameters: tuple[Parameters, ...]
    """Expected parameters of a rank of each pipeline stage."""


def prepare(
    r: Rehearsal,
    original: tuple[str, str],
    folder: Path,
    iterations: int,
    device: gpu.Device,
    on_gpu: bool = False,
    traces: str = "",
) -> Prepared | list[Diagnostic]:
    """Write `folder`; errors if the small run is refused (a bug of the shrinking) or has no configuration.

    `original` is the plan's model: its Hugging Face id and its family. `traces` is the folder for traces, if any.
    """
    template = hf.find(original[0], r.model.family)
    if isinstance(template, Diagnostic):
        return [template]
    r = evolve(r, model=evolve(r.model, hf=str(folder.absolute() / MODEL)))
    source = Source(RUN, run_file(r))
    result = compile_source(source)
    if result.failed:
        return [d for d in result.diagnostics if d.is_error]
    (plan,) = result.plans
    task = {
        "recipe": str(folder.absolute() / "recipe.py"),
        "function": function_name(plan),
        "step": STEP,
        "iterations": iterations,
        "out": str(folder.absolute()),
        "device": asdict(device),
        "on_gpu": on_gpu,
        "traces": traces,
    }
    model = {f"{MODEL}/{name}": text for name, text in hf.files(template, r.model).items()}
    if theirs := [*rank_files(folder)] if written_as(folder / TASK) is None else []:
        text = f"{theirs[0]} is not of a rehearsal, and would be replaced"
        return [error("emit.not_ours", text, help="name another folder with -o")]
    own = {RUN: source.text, TASK: json.dumps(task, indent=2) + "\n"}
    found = write_all(folder, {**files_of(plan, source, result.library), **model, **own})
    return found or Prepared(folder, r, plan, iterations, parameters(r))


def rank_files(folder: Path) -> Iterator[Path]:
    """What the ranks of an earlier rehearsal left in its folder."""
    return (file for end in ("json", "log") for file in folder.glob(f"rank_[0-9]*.{end}"))


def layout_of(r: Rehearsal) -> Layout:
    """The chunks of the small model."""
    pp, vpp = r.layout["pp"], r.layout["vpp"]
    text = r.pipeline_layout
    found = parse_layout(text, r.model, pp, vpp)[0] if text else layout_for(r.model, pp, vpp)
    assert found is not None
    return found


def parameters(r: Rehearsal) -> tuple[Parameters, ...]:
    """Count the parameters of a rank of each pipeline stage."""
    sizes, layout = r.layout, layout_of(r)
    split = (sizes["tp"], sizes["ep"], sizes["etp"])
    return tuple(stage_parameters(r.model, layout, i, *split) for i in range(sizes["pp"]))


def run_file(r: Rehearsal) -> str:
    """Write the run file."""
    sizes = {a.name: r.layout[a.name] for a in axes.AXES if a.section == "layout"}
    pins = {**sizes, "micro_batch": r.micro_batch, **r.policy}
    if r.pipeline_layout:
        pins["pipeline_layout"] = r.pipeline_layout
    lines = [
        f"# What a rehearsal of {r.name} runs: the same shape, small.",
        *_declaration(r.model),
        "",
        f"model {r.model.name}",
        f"{r.hardware} x {r.ranks}",
        f"seq {r.seq}",
        f"batch {r.global_batch}",
        f"routing {r.routing}",
        "pin " + " ".join(f"{name}={_value(name, v)}" for name, v in pins.items()),
        *(f"set {path} = {_value(path, v)}" for path, v in r.sets.items()),
        "fit first",
    ]
    return "\n".join(lines) + "\n"


def _declaration(m: Model) -> Iterable[str]:
    """Write every fact that differs from its default."""
    yield f"model {m.name} {{"
    for fact in attrs.fields(Model):
        value = getattr(m, fact.name)
        if fact.name not in ("name", "vision") and value != fact.default:
            bare = fact.name in ("family", "attention")
            yield f"  {fact.name} {value if bare else _value(fact.name, value)}"
    yield "}"


def _value(name: str, value: Any) -> str:
    """Write a value in the language: words bare, texts in quotes, an empty set as none."""
    if name in axes.BY_NAME or isinstance(value, list):
        return axes.written(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(value: str) -> str:
    """Write a string literal of the language."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
