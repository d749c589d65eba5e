"""Bridge's fields of a plan, of a recipe and of overrides in one form, so that the same setting is the same value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from moedsl.emit.dataset import dataset, is_mock
from moedsl.emit.fields import decided_fields
from moedsl.megatron.families import CHOICES
from moedsl.megatron.values import stages
from moedsl.planner.model.plan import Plan

Json = Mapping[str, Any]
LAYOUT = "model.pipeline_model_parallel_layout"
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
"""Megatron's letters for the layers of a pipeline layout (core transformer/enums.py, LayerType)."""
_UNSTABLE = (".timers",)
"""Objects that a run makes for itself."""


def of_plan(plan: Plan) -> dict[str, Any]:
    """The fields that a plan decides, and what is as good as one: the dataset's class, mock data, the environment."""
    made = {n: v for n, v in decided_fields(plan).items() if not n.startswith("env_vars.")}
    own = {n: v for n, v in plan.set.items() if "." in n and n not in CHOICES}
    env = {f"env_vars.{n}": v for n, v in plan.env.items()}
    return _plain({"dataset": dataset(plan).name, "dataset.mock": is_mock(plan), **made, **env, **own})


def of_recipe(fields: Json, classes: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a configuration as `bridge.flat` has them; a mock dataset says so by its class or its flag."""
    env = {f"env_vars.{n}": v for n, v in (fields.get("env_vars") or {}).items()}
    out = {n: v for n, v in fields.items() if n != "env_vars" and not n.endswith(_UNSTABLE)} | env
    if out.get("checkpoint.load") == out.get("checkpoint.save"):
        out.pop("checkpoint.load", None)  # a run that goes on from its own checkpoints starts like any other
    kind = classes.get("dataset")
    if kind:
        out |= {"dataset": kind, "dataset.mock": _is_mock(kind, fields)}
    return _plain(out)


def _is_mock(kind: str, fields: Json) -> bool:
    """Bridge makes mock text of a dataset without paths (core datasets/blended_megatron_dataset_config.py:138)."""
    paths = [fields.get(f"dataset.{n}") for n in ("data_path", "blend", "blend_per_split", "path", "dataset_root")]
    by_path = kind in ("GPTDatasetConfig", "MockGPTDatasetConfig") and not any(paths)
    return kind.startswith("Mock") or bool(fields.get("dataset.mock")) or by_path


def of_overrides(text: str) -> dict[str, Any]:
    """Hydra overrides, one or several, as a shell quotes them; raises ValueError for a word that is none."""
    words = shlex.split(text, comments=True)
    found = {k: v for word in words for k, v in _override(word)}
    kind = found.get("dataset")
    return _plain(found | ({"dataset.mock": _is_mock(kind, found)} if isinstance(kind, str) else {}))


def _override(word: str) -> Iterator[tuple[str, Any]]:
    name, equals, value = word.partition("=")
    name = name.lstrip("+~")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        raise ValueError(f"`{word}` is not an override")
    target = re.search(r"_target_:\s*([\w.]+)", value)
    if target is None:
        yield name, _scalar(value)
        return
    yield name, target[1].rpartition(".")[2]
    inside = re.findall(
        r"[{,](\w+):\s*('[^']*'|\[[^\]]*\]|[^,{}\[\]]+)(?=[,}])", value.replace("_target_:" + target[1], "", 1)
    )
    yield from ((f"{name}.{key}", _scalar(v)) for key, v in inside)


def _scalar(text: str) -> Any:
    """A value of Hydra's: null, a flag, a number, a list of such, or text."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip()
        return [_scalar(part) for part in inside.split(",")] if inside else []
    known = {"null": None, "none": None, "~": None, "true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _plain(fields: Json) -> dict[str, Any]:
    return {n: _layout(v) if n == LAYOUT else _value(n, v) for n, v in fields.items()}


def _value(name: str, value: Any) -> Any:
    """Dtypes by their names, whole floats as integers, variables of the environment as text."""
    if name.startswith("env_vars."):
        return str(value)
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if isinstance(value, list | tuple):
        return [_value(name, v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _layout(value: Any) -> Any:
    """A pipeline layout as a list of its stages' letters, whatever wrote it."""
    if isinstance(value, str):
        return stages(value)
    if isinstance(value, list) and value and isinstance(value[0], list):
        return ["".join(_LETTERS.get(str(layer), "?") for layer in chunk) for chunk in value]
    return value
