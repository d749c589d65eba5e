"""Ask what pretrain() does first, Bridge's runtime_config_update; compare the result, and the stages, with the plan."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from types import CodeType
from typing import Any

from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.configs import LAYOUT, Writers, defaults_of, flat, layout, unknown, watching
from moedsl.bridge.verify.expected import PATTERN, checks
from moedsl.bridge.verify.report import Change, Mismatch
from moedsl.emit.settings import decided_fields
from moedsl.facts.values import normalise
from moedsl.planner.model.plan import Plan

Stage = dict[str, Any]
"""What `stages.count` says of a stage."""


def update(config: Any, written: Collection[str] = ()) -> tuple[Change, ...]:
    """Run Bridge's update; returns every value of the recipe that Bridge replaced, with the line that did.

    `written` are the fields that the recipe of a plan states. Raises what Bridge raises.
    """
    from megatron.bridge.training.config import runtime_config_update

    before, defaults, writers = flat(config), defaults_of(config), Writers()
    with watching(writers, config):
        runtime_config_update(config)
    after = flat(config)
    return tuple(
        Change(name, value, after.get(name), _origin(name, value, written, defaults), writers.of(config, name))
        for name, value in before.items()
        if value is not None and not _same(name, value, after.get(name)) and not name.endswith(".timers")
    )


def _same(name: str, before: Any, after: Any) -> bool:
    """Compare two values, without the MTP blocks that Bridge appends to a hybrid's pattern."""
    return normalise(name, before) == normalise(name, after) if name == PATTERN else before == after


def _origin(name: str, value: Any, written: Collection[str], defaults: Mapping[str, Any]) -> str:
    """Return who set a value: the plan, nobody, or another line of the recipe or of what it is built on."""
    if name in written:
        return "plan"
    return "default" if name in defaults and defaults[name] == value else "recipe"


def unknown_fields(config: Any, code: CodeType) -> tuple[Mismatch, ...]:
    """Attributes that the recipe set and that are not fields."""
    note = "no such field: Bridge never reads it"
    return tuple(Mismatch(name, value, None, note) for name, value in unknown(config, code))


def compare(config: Any, case: Case, num_microbatches: int | None) -> tuple[Mismatch, ...]:
    """Compare the plan's decided values with the updated config."""
    plan = case.plan
    if plan is None:
        return ()
    resolved = flat(config) | {"data_parallel_size": config.data_parallel_size, "num_microbatches": num_microbatches}
    out: list[Mismatch] = []
    for field, planned, agrees in checks(plan):
        planned = layout(planned) if field == LAYOUT else planned
        actual = resolved[field] if field in resolved else _property(config, field)
        if actual is _ABSENT:
            out.append(Mismatch(field, planned, None, "no such field"))
        elif not (actual == planned or agrees(actual)):
            out.append(Mismatch(field, planned, actual))
    known = {m.field for m in out}
    out += [m for m in _emitted(config, plan) if m.field not in known]
    return (*out, *_environment(config, plan))


def compare_stages(
    stages: list[dict[str, Any]], plan: Plan | None
) -> tuple[list[dict[str, Any]], tuple[Mismatch, ...]]:
    """Compare stages with the plan's: `params` are all of a rank of the stage, `expert_params` those of experts."""
    planned = plan.estimate.memory.stages if plan else ()
    if not planned:
        return [{"stage": s["stage"], "planned": None, "real": s} for s in stages], ()
    out: list[Mismatch] = []
    if len(planned) != len(stages):
        out.append(Mismatch("stages", len(planned), len(stages), "pipeline stages"))
    pairs: list[dict[str, Any]] = []
    for want, real in zip(planned, stages, strict=False):
        counted = {"params": real["dense"] + real["expert"], "expert_params": real["expert"]}
        pairs.append({"stage": real["stage"], "planned": {name: getattr(want, name) for name in counted}, "real": real})
        out += [
            Mismatch(f"stages[{real['stage']}].{name}", getattr(want, name), value)
            for name, value in counted.items()
            if getattr(want, name) != value
        ]
    return pairs, tuple(out)


def _emitted(config: Any, plan: Plan) -> Iterator[Mismatch]:
    """Compare what the emitter decides, field by field (emit/settings.py)."""
    for field, planned in decided_fields(plan).items():
        actual = _property(config, field)
        if actual is _ABSENT:
            yield Mismatch(field, planned, None, "no such field")
        elif (resolved := normalise(field, actual)) != planned:
            yield Mismatch(field, planned, resolved)


_ABSENT = object()


def _property(config: Any, field: str) -> Any:
    """The value at a dotted path, which may be a property of its section and no field."""
    try:
        return attrgetter(field)(config)
    except AttributeError:
        return _ABSENT


def _environment(config: Any, plan: Plan) -> list[Mismatch]:
    prefix = "env_vars."
    own = {n.removeprefix(prefix): v for n, v in plan.set.items() if n.startswith(prefix)}
    planned = {**plan.env, **own}
    said = getattr(config, "env_vars", os.environ)  # before 0.6 the recipe sets them itself
    has = {name: str(value) for name, value in said.items()}
    return [Mismatch(f"env_vars.{n}", v, has.get(n)) for n, v in planned.items() if has.get(n) != str(v)]
