"""Bring Bridge's fields of a plan or a recipe into one form, so that equal settings have equal values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.emit import settings
from moedsl.emit.dataset import dataset, fields_of, is_mock, preprocessed
from moedsl.emit.settings import decided_fields
from moedsl.facts.facts import Model
from moedsl.facts.families import CHOICES, PREPROCESSING, unsaid_preprocessing
from moedsl.facts.values import stages
from moedsl.planner.plan import Plan

Json = Mapping[str, Any]
LAYOUT = "model.pipeline_model_parallel_layout"
_UNSTABLE = (".timers",)
"""Objects that a run makes itself."""


def of_plan(plan: Plan) -> dict[str, Any]:
    """The fields that a plan decides, with equivalents: the dataset's class, mock data, the environment."""
    made = {n: v for n, v in decided_fields(plan).items() if not n.startswith("env_vars.")}
    own = {n: v for n, v in plan.set.items() if "." in n and n not in CHOICES}
    env = {f"env_vars.{n}": v for n, v in plan.env.items()}
    return _plain(
        {"dataset": dataset(plan).name, "dataset.mock": is_mock(plan), **preprocessed(plan), **made, **env, **own}
    )


def built_by(plan: Plan, model: Model) -> dict[str, Any]:
    """The fields of a plan's recipe with those that the plan leaves to Bridge, where they are known without it."""
    return _plain(settings.known_values(plan, model)) | of_plan(plan)


def of_recipe(fields: Json, classes: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a configuration as `configs.flat` writes them; a mock dataset is known by its class or its flag."""
    env = {f"env_vars.{n}": v for n, v in (fields.get("env_vars") or {}).items()}
    out = {n: v for n, v in fields.items() if n != "env_vars" and not n.endswith(_UNSTABLE)} | env
    if out.get("checkpoint.load") == out.get("checkpoint.save"):
        out.pop("checkpoint.load", None)  # a run that goes on from its own checkpoints starts like any other
    kind = classes.get("dataset")
    if kind:
        # without paths Bridge makes mock text (core datasets/blended_megatron_dataset_config.py:138)
        paths = [fields.get(f"dataset.{n}") for n in ("data_path", "blend", "blend_per_split", "path", "dataset_root")]
        by_path = kind in ("GPTDatasetConfig", "MockGPTDatasetConfig") and not any(paths)
        mock = kind.startswith("Mock") or bool(fields.get("dataset.mock")) or by_path
        out |= {"dataset": kind, "dataset.mock": mock}
    if PREPROCESSING in out and out[PREPROCESSING] is None and kind == "GPTSFTDatasetConfig":
        made = CHOICES[PREPROCESSING][unsaid_preprocessing(bool(fields.get("dataset.hf_dataset")))]
        out |= {PREPROCESSING: f"<{made.name}>", **fields_of(made)}
    return _plain(out)


def _plain(fields: Json) -> dict[str, Any]:
    """Normalise values; a pipeline layout of any source becomes the list of its stages' letters."""
    out = {n: _value(n, v) for n, v in fields.items()}
    layout = fields.get(LAYOUT)
    if isinstance(layout, str) or (isinstance(layout, list) and layout and isinstance(layout[0], list)):
        out[LAYOUT] = stages(layout)
    return out


def _value(name: str, value: Any) -> Any:
    """Dtypes by name, whole floats as integers, variables of the environment as text."""
    if name.startswith("env_vars."):
        return str(value)
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if isinstance(value, list | tuple):
        return [_value(name, v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
