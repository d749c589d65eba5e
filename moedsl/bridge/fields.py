"""Normalise Bridge's fields of a plan or a recipe, so that equal settings have equal values."""

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
"""Name endings of fields whose objects each run makes itself."""


def of_plan(plan: Plan) -> dict[str, Any]:
    """Return the fields that a plan decides, plus its dataset class, mock data and environment as fields."""
    made = {n: v for n, v in decided_fields(plan).items() if not n.startswith("env_vars.")}
    own = {n: v for n, v in plan.set.items() if "." in n and n not in CHOICES}
    env = {f"env_vars.{n}": v for n, v in plan.env.items()}
    return _plain(
        {"dataset": dataset(plan).name, "dataset.mock": is_mock(plan), **preprocessed(plan), **made, **env, **own}
    )


def built_by(plan: Plan, model: Model) -> dict[str, Any]:
    """Return a plan's fields plus those that it leaves to Bridge, where their values are known without Bridge."""
    return _plain(settings.known_values(plan, model)) | of_plan(plan)


def of_recipe(fields: Json, classes: Mapping[str, str]) -> dict[str, Any]:
    """Normalise the fields that `configs.flat` returns; mock data is known by the dataset's class, flag or missing
    paths."""
    env = {f"env_vars.{n}": v for n, v in (fields.get("env_vars") or {}).items()}
    out = {n: v for n, v in fields.items() if n != "env_vars" and not n.endswith(_UNSTABLE)} | env
    if out.get("checkpoint.load") == out.get("checkpoint.save"):
        out.pop("checkpoint.load", None)  # loading its own checkpoints only resumes a run
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
    """Normalise all values; a pipeline layout in any form becomes a list of each stage's letters."""
    out = {n: _value(n, v) for n, v in fields.items()}
    layout = fields.get(LAYOUT)
    if isinstance(layout, str) or (isinstance(layout, list) and layout and isinstance(layout[0], list)):
        out[LAYOUT] = stages(layout)
    return out


def _value(name: str, value: Any) -> Any:
    """Normalise a value: dtypes to names, whole floats to integers, environment variables to text."""
    if name.startswith("env_vars."):
        return str(value)
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if isinstance(value, list | tuple):
        return [_value(name, v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
