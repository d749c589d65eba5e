"""Ask what pretrain() does first, Bridge's runtime_config_update; compare the result, and the stages, with the plan."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from types import CodeType
from typing import Any

from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.configs import Writers, defaults_of, flat, unknown, watching
from moedsl.bridge.verify.report import Change, Mismatch
from moedsl.emit.fields import rows, words
from moedsl.emit.read_back import Configuration
from moedsl.emit.settings import decided_fields
from moedsl.facts.axes import json_value
from moedsl.facts.families import CHOICES, PREPROCESSING
from moedsl.facts.fields import has
from moedsl.facts.values import PATTERN, normalise
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
    counts = {"data_parallel_size": plan.layout.dp, "num_microbatches": plan.batch.num_microbatches}
    resolved = {"data_parallel_size": config.data_parallel_size, "num_microbatches": num_microbatches}
    out = [Mismatch(n, planned, resolved[n]) for n, planned in counts.items() if resolved[n] != planned]
    fields = flat(config)
    return (*out, *_fields(config, plan), *_words(fields, plan), *_samples(fields, plan), *_environment(config, plan))


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


def _fields(config: Any, plan: Plan) -> Iterator[Mismatch]:
    """Compare what the recipe was written from, field by field (emit/fields.py)."""
    for field, planned in decided_fields(plan).items():
        actual = _property(config, field)
        if actual is _ABSENT:
            yield Mismatch(field, planned, None, "no such field")
        elif (resolved := normalise(field, actual)) != planned:
            yield Mismatch(field, planned, resolved)


_COPIED = ("comm_overlap", "mixed_precision")
"""Sections whose fields Bridge copies to the model, where Megatron-Core reads them."""


def _words(fields: Mapping[str, Any], plan: Plan) -> Iterator[Mismatch]:
    """Compare the plan's words with those read back from what Megatron-Core reads, as `lint` reads any recipe.

    This does not depend on how the words were written. A word is skipped if the run sets a field that states it.
    """
    read = words(Configuration({n: v for n, v in fields.items() if n.partition(".")[0] not in _COPIED}))
    for word, planned in {**plan.layout.to_json(), **plan.batch.to_json(), **plan.policy.to_json()}.items():
        value = read.get(word)
        resolved = json_value(value)
        same = value == frozenset(planned) if isinstance(value, frozenset) else resolved in (None, planned)
        if not same and not plan.set.keys() & {r.path for r in rows(word)}:
            yield Mismatch(word, planned, resolved)


def _samples(fields: Mapping[str, Any], plan: Plan) -> Iterator[Mismatch]:
    """Compare how the run says that its samples are read: an object, before 0.6 a keyword of the dataset."""
    word = plan.set.get(PREPROCESSING)
    if word is None:
        return
    if has(PREPROCESSING, plan.target.bridge):
        planned, resolved = f"<{CHOICES[PREPROCESSING][word].name}>", fields.get(PREPROCESSING)
    else:
        planned, resolved = word, "chat" if (fields.get("dataset.dataset_kwargs") or {}).get("chat") else "prompts"
    if resolved != planned:
        yield Mismatch(PREPROCESSING, planned, resolved)


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
