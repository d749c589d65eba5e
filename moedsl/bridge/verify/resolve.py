"""Ask what a recipe is as built, what Bridge's update makes of it, and which line set each value."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

from moedsl.bridge.verify import assignments, flat, gpu, load
from moedsl.bridge.verify.case import Case
from moedsl.bridge.verify.report import Refusal, refusal


@frozen
class Resolved:
    """One recipe built by the real Bridge. `built` is empty if the recipe itself raised."""

    file: str
    function: str
    source: str = ""
    """The file of the function."""
    line: int = 1
    """The line of its `def`."""
    built: Mapping[str, Any] = field(factory=dict)
    """The JSON value of each dotted field, before runtime_config_update."""
    resolved: Mapping[str, Any] = field(factory=dict)
    """The values after it, as far as it came if it raised."""
    classes: Mapping[str, str] = field(factory=dict)
    """The name of each section's class."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that the recipe set and that are not fields."""
    asked: str | None = None
    """The dispatcher of the last call to apply_flex_dispatcher_backend, whatever the call made of it."""
    places: Mapping[str, Any] = field(factory=dict)
    """For each dotted field its lines, [[file, line], ...], innermost first."""
    refusal: Refusal | None = None
    message: str = ""
    """Why the check failed: no Bridge, no such recipe, a crash."""
    id: str = ""
    """The diagnostic id of that failure."""
    help: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Resolved:
    """Read the JSON of `to_json`, or of a failed Report, whose file, message and id are kept."""
    known: dict[str, Any] = {k: v for k, v in data.items() if k in Resolved.__annotations__}
    refusal = known.get("refusal")
    values: dict[str, Any] = {"function": "", **known, "refusal": Refusal(**refusal) if refusal else None}
    return Resolved(**values)


def resolve(case: Case) -> Resolved:
    """Build the recipe twice: the first build shows which classes to watch. Never raises the recipe's errors."""
    gpu.answer(case.device, case.world, 0)
    gpu.be_current()
    source, line = case.source if case.source.endswith(".py") else "", 1
    try:
        module, function = load.find(case)
        source, line = _place(function, source)
        config = load.build(case, function)
    except load.UnbuiltError as error:
        return Resolved(
            case.file, case.function, source, error.line, message=str(error), id="verify.recipe", help=error.help
        )
    except (Exception, SystemExit) as error:
        return Resolved(case.file, case.function, source, line, refusal=refusal(error, "recipe"))
    noted = assignments.Trace(inspect.getsourcefile(function) or case.source)
    with assignments.watching(noted, config):
        config = function()
    return _updated(case, config, (source, line), noted, dict(flat.unknown(config, load.code_of(module))))


def _place(function: Any, source: str) -> tuple[str, int]:
    """The file and the line of a function's `def`, below its decorators."""
    own = inspect.unwrap(function)
    return os.path.realpath(inspect.getsourcefile(own) or source), inspect.getsourcelines(own)[1]


def _updated(
    case: Case, config: Any, place: tuple[str, int], noted: assignments.Trace, unknown: Mapping[str, Any]
) -> Resolved:
    from megatron.bridge.training.config import runtime_config_update

    from moedsl.bridge.verify import stand_ins

    built, classes, places, asked = flat.flat(config), flat.sections(config), noted.places(config), noted.asked(config)
    try:
        with stand_ins.weights(config), stand_ins.checkpoint(config):
            runtime_config_update(config)
        refused = None
    except (Exception, SystemExit) as error:
        refused = refusal(error, "update")
    resolved = flat.flat(config)
    return Resolved(case.file, case.function, *place, built, resolved, classes, unknown, asked, places, refused)
