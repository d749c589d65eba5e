"""Question: what a recipe is as built, what Bridge's update makes of it, and which line set each value."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

from moedsl.verify import assignments, gpu
from moedsl.verify.case import Case
from moedsl.verify.report import Refusal, refusal


@frozen
class Resolved:
    """One recipe through the real Bridge. `built` is empty where the recipe itself raised."""

    file: str
    function: str
    source: str = ""
    """The file that the function stands in."""
    line: int = 1
    """Of its `def`."""
    built: Mapping[str, Any] = field(factory=dict)
    """Dotted field -> value as JSON has it, before runtime_config_update."""
    resolved: Mapping[str, Any] = field(factory=dict)
    """The same after it; as far as it came if it raised."""
    classes: Mapping[str, str] = field(factory=dict)
    """Section -> the name of the class that fills it."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """Attributes that the recipe set and that are no field of anything."""
    asked: str | None = None
    """The flex dispatcher that apply_flex_dispatcher_backend was asked for last, whatever it made of that."""
    places: Mapping[str, Any] = field(factory=dict)
    """Dotted field -> [[file, line], ...], innermost first."""
    refusal: Refusal | None = None
    message: str = ""
    """Why nothing could be asked: no Bridge, no such recipe, a crash."""
    id: str = ""
    """Of that failure."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Resolved:
    """The inverse of `to_json`; of a failed Report too, whose file, message and id are kept."""
    known: dict[str, Any] = {k: v for k, v in data.items() if k in Resolved.__annotations__}
    refusal = known.get("refusal")
    values: dict[str, Any] = {"function": "", **known, "refusal": Refusal(**refusal) if refusal else None}
    return Resolved(**values)


def resolve(case: Case) -> Resolved:
    """Builds the recipe, twice: the first time shows which classes to watch the second time. Raises nothing of it."""
    from moedsl.verify import update

    gpu.answer(case.device, case.world, 0)
    try:
        module = update.module_of(case)
        function = getattr(module, case.function)
        config = function()
    except (Exception, SystemExit) as error:
        return _raised(case, error)
    noted = assignments.Trace(inspect.getsourcefile(function) or case.source)
    with assignments.watching(noted, config):
        config = function()
    return _updated(case, config, function, noted, _unknown(config, module))


def _raised(case: Case, error: BaseException) -> Resolved:

    is_file = case.source.endswith(".py")
    return Resolved(case.file, case.function, case.source if is_file else "", refusal=refusal(error, "recipe"))


def _unknown(config: Any, module: Any) -> dict[str, Any]:
    from moedsl.verify import flat, update

    return dict(flat.unknown(config, update.code_of(module)))


def _updated(case: Case, config: Any, function: Any, noted: assignments.Trace, unknown: Mapping[str, Any]) -> Resolved:
    from megatron.bridge.training.config import runtime_config_update

    from moedsl.verify import stand_ins
    from moedsl.verify.flat import flat, sections

    built, classes, places, asked = flat(config), sections(config), noted.places(config), noted.asked(config)
    try:
        with stand_ins.checkpoint(config):
            runtime_config_update(config)
        refused = None
    except (Exception, SystemExit) as error:
        refused = refusal(error, "update")
    own = inspect.unwrap(function)
    file = os.path.realpath(inspect.getsourcefile(own) or case.source)
    line = inspect.getsourcelines(own)[1]
    return Resolved(case.file, case.function, file, line, built, flat(config), classes, unknown, asked, places, refused)
