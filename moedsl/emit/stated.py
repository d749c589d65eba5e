"""Choose what a recipe states: settings that its common pieces of Bridge do not give, each decision in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.emit.dataset import is_mock
from moedsl.emit.fields import SET, Planned, Setting
from moedsl.emit.naming import function_name
from moedsl.emit.settings import planned, sections
from moedsl.facts import weights
from moedsl.facts.common import COMMON, COPIED, VARIABLES
from moedsl.facts.fields import path_of
from moedsl.facts.fields import sections as sections_of
from moedsl.facts.releases import BY_VERSION
from moedsl.facts.symbols import FINE_TUNES
from moedsl.facts.values import Call, normalise
from moedsl.planner.model.plan import Plan

_VARIABLE = "env_vars."
Sections = list[tuple[str, list[Setting]]]


def stated(plan: Plan) -> Sections:
    """The recipe's assignments under their headings, in order; the user's `set` statements come last."""
    known = given(planned(plan))
    every = dict(sections(plan))
    own = {s.path: s for s in every.pop(SET, []) if not s.path.startswith(_VARIABLE)}
    found: Sections = []
    derived = {path_of(name) for name in plan.derived}
    output = [s for s in _output(plan) if s.path not in derived]
    for title, settings in [*every.items(), (_OUTPUT, output)]:
        found.append((title, []))
        for s in (_filled(inner, own) for outer in settings for inner in _inside(plan, outer)):
            if _states(plan, s, known):
                found[-1][1].append(s)
                known |= dict(_unstated(s.path, s.value)) | dict(arguments(s.path, s.value))
    return [(title, settings) for title, settings in [*_together(plan, found), (SET, [*own.values()])] if settings]


def environment(plan: Plan) -> tuple[bool, Mapping[str, Any]]:
    """Whether Bridge's common variables all belong to the plan, and the variables to state besides; a release without
    variables in its configuration has no common ones."""
    every = {**plan.env, **{n.removeprefix(_VARIABLE): v for n, v in plan.set.items() if n.startswith(_VARIABLE)}}
    if not BY_VERSION[plan.target.bridge].env_vars or not every.keys() >= VARIABLES.keys():
        return False, every
    return True, {n: v for n, v in every.items() if VARIABLES.get(n) != v}


def given(w: Planned) -> dict[str, Any]:
    """The values without a line of the recipe: of Bridge's common function, of the precision, of overlap."""
    precision = w.precision_facts
    many = w.layout.dp > 1  # bridge training/comm_overlap.py:576
    return {
        **COMMON[w.task].values,
        "model.moe_shared_expert_overlap": w.provided.get("moe_shared_expert_overlap", False),
        "model.cross_entropy_loss_fusion": w.provided.get("cross_entropy_loss_fusion", True),
        "mixed_precision.bf16": True,
        "mixed_precision.fp8": precision.fp8,
        "mixed_precision.fp8_recipe": precision.fp8_recipe,
        "mixed_precision.fp8_param_gather": precision.fp8_param_gather,
        "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": precision.fp8_recipe == "mxfp8",
        "mixed_precision.first_last_layers_bf16": precision.first_last_layers_bf16,
        "mixed_precision.fp4": precision.fp4,
        "mixed_precision.fp4_param_gather": precision.fp4_param_gather,
        "mixed_precision.grad_reduce_in_fp32": True,
        "comm_overlap.overlap_moe_expert_parallel_comm": False,
        "comm_overlap.delay_wgrad_compute": False,
        "comm_overlap.overlap_grad_reduce": many,
        "comm_overlap.overlap_param_gather": many,
    }


def arguments(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields that a call states, and those of the calls in it."""
    for name, inner in value.kwargs.items() if isinstance(value, Call) else ():
        yield f"{path}.{name}", inner
        yield from arguments(f"{path}.{name}", inner)


def _unstated(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The defaults of the objects that a call builds inside."""
    for section, inner in arguments(path, value):
        for name, field in sections_of().get(section, {}).items() if isinstance(inner, Call) else ():
            yield f"{section}.{name}", field.get("others", {}).get(inner.name, field["default"])


def _inside(plan: Plan, s: Setting) -> Iterator[Setting]:
    """A dataset of the class that the common function has, as its fields; any other setting as it is."""
    if s.path == "dataset" and s.value.name == COMMON[plan.task].dataset:
        inside = {k: v for k, v in s.value.kwargs.items() if k != "seq_length"}  # which has a row of its own
        yield from (Setting(f"dataset.{k}", v, s.word, _WHY.get(k, "")) for k, v in inside.items())
    else:
        yield s


def _filled(s: Setting, own: dict[str, Setting]) -> Setting:
    """A section that is built with what the run sets of its arguments, which then need no line of their own."""
    if not isinstance(s.value, Call):
        return s
    arguments = {name: own.pop(f"{s.path}.{name}", None) for name in s.value.kwargs}
    kwargs = {name: value if (set := arguments[name]) is None else set.value for name, value in s.value.kwargs.items()}
    return evolve(s, value=evolve(s.value, kwargs=kwargs))


def _states(plan: Plan, s: Setting, known: Mapping[str, Any]) -> bool:
    if isinstance(s.value, Call):
        return True
    if not s.read or s.path in COPIED or s.path in plan.set:
        return False
    return s.path not in known or normalise(s.path, s.value) != normalise(s.path, known[s.path])


def _together(plan: Plan, found: Sections) -> Sections:
    """Move the settings of each decision to the last heading that has one of them; one with its own reason stays."""
    decisions = {d.name for d in plan.decisions}
    home = {s.word or "": title for title, settings in found for s in settings if s.word in decisions and not s.why}
    out: dict[str, list[Setting]] = {title: [] for title, _ in found}
    moved: list[tuple[str, Setting]] = []
    for title, settings in found:
        for s in settings:
            last = title if s.why else home.get(s.word or "", title)
            moved.append((last, s)) if last != title else out[title].append(s)
    for last, s in moved:
        out[last].append(s)
    return list(out.items())


_WHY = {"split": "with Bridge's 9999,8,2, a small corpus has nothing to validate or test on"}
_OUTPUT = "Checkpoints and logs"
_STEPS = "every step in the log, for `moedsl results`; TensorBoard only if the run file sets a folder"


def checkpoint_folder(plan: Plan) -> str | None:
    """The folder where a run saves and loads checkpoints; None if it saves none."""
    folder = plan.set.get("checkpoint.save")
    return folder if folder or is_mock(plan) else f"nemo_experiments/{function_name(plan)}/checkpoints"


def _output(plan: Plan) -> Iterator[Setting]:
    """Where a run saves its checkpoints and goes on from them, and what it logs."""
    folder = checkpoint_folder(plan)
    named = plan.task in FINE_TUNES or weights.FIELD in plan.set
    start = "the imported weights" if named else "scratch"
    goes_on = f"a run goes on from the last checkpoint that it saved; without one, it starts from {start}"
    why = goes_on if folder else "mock data needs no checkpoints"
    yield from (Setting(f"checkpoint.{name}", folder, None, why) for name in ("save", "load"))
    yield Setting("logger.log_interval", 1, None, _STEPS)
    yield Setting("logger.tensorboard_dir", None, None, _STEPS)
