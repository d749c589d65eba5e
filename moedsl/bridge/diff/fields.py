"""Bring Bridge's fields of a plan, a recipe or overrides into one form, so that equal settings have equal values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from moedsl.emit import base
from moedsl.emit.dataset import dataset, fields_of, is_mock, preprocessed
from moedsl.emit.settings import decided_fields
from moedsl.facts.facts import Model
from moedsl.facts.families import CHOICES, PREPROCESSING, unsaid_preprocessing
from moedsl.facts.fields import absent
from moedsl.facts.values import stages
from moedsl.planner.model.plan import Plan

Json = Mapping[str, Any]
LAYOUT = "model.pipeline_model_parallel_layout"
LONGEST = 50_000
"""The characters of a line of overrides: a word of 400,000 takes half a minute to split off."""
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
    return _plain(base.values(plan, model)) | of_plan(plan)


def of_recipe(fields: Json, classes: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a configuration as `configs.flat` writes them; a mock dataset is known by its class or its flag."""
    env = {f"env_vars.{n}": v for n, v in (fields.get("env_vars") or {}).items()}
    out = {n: v for n, v in fields.items() if n != "env_vars" and not n.endswith(_UNSTABLE)} | env
    if out.get("checkpoint.load") == out.get("checkpoint.save"):
        out.pop("checkpoint.load", None)  # a run that goes on from its own checkpoints starts like any other
    kind = classes.get("dataset")
    if kind:
        out |= {"dataset": kind, "dataset.mock": _is_mock(kind, fields)}
    if PREPROCESSING in out and out[PREPROCESSING] is None and kind == "GPTSFTDatasetConfig":
        made = CHOICES[PREPROCESSING][unsaid_preprocessing(bool(fields.get("dataset.hf_dataset")))]
        out |= {PREPROCESSING: f"<{made.name}>", **fields_of(made)}
    return _plain(out)


def _is_mock(kind: str, fields: Json) -> bool:
    """Whether a dataset has no paths: Bridge makes mock text (core datasets/blended_megatron_dataset_config.py:138)."""
    paths = [fields.get(f"dataset.{n}") for n in ("data_path", "blend", "blend_per_split", "path", "dataset_root")]
    by_path = kind in ("GPTDatasetConfig", "MockGPTDatasetConfig") and not any(paths)
    return kind.startswith("Mock") or bool(fields.get("dataset.mock")) or by_path


def of_overrides(text: str) -> dict[str, Any]:
    """Read Hydra overrides, one or several, quoted for a shell or xargs; raises ValueError for another word."""
    if len(max(text.splitlines(), key=len, default="")) > LONGEST:
        raise ValueError(f"a line of over {LONGEST} characters is not an override")
    words = shlex.split(text, comments=True)
    try:
        found = {k: v for word in words for k, v in _override(word)}
    except RecursionError:
        raise ValueError("a value is nested too deep") from None
    kind = found.get("dataset")
    return _plain(found | ({"dataset.mock": _is_mock(kind, found)} if isinstance(kind, str) else {}))


def _override(word: str) -> Iterator[tuple[str, Any]]:
    name, equals, value = word.partition("=")
    name = name.lstrip("+~")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        raise ValueError(f"`{word}` is not an override")
    read = _Reader(value).value() if "_target_:" in value.replace(" ", "") else _scalar(value)
    yield from _flat(name, read) if isinstance(read, dict) else [(name, read)]


def _flat(name: str, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The class of an object and its fields, as `verify.configs.flat` writes them; what is not called is a word."""
    kind = str(value.get("_target_", "")).rpartition(".")[2]
    if not kind:
        yield name, value
        return
    yield name, kind
    for key, v in value.items():
        path = f"{name}.{key}"
        if key.startswith("_"):
            continue
        if not isinstance(v, dict) or "_target_" not in v:
            yield path, v
        elif v.get("_call_") is False:
            yield path, v["_target_"].rpartition(".")[2]
        else:
            (_, inner), *own = _flat(path, v)
            yield path, f"<{inner}>"
            yield from own if path in absent() else ()


class _Reader:
    """Reads a value in Hydra's grammar with the objects and lists in it."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def value(self) -> Any:
        match self._text[self._at : self._at + 1]:
            case "{":
                return dict(self._items("}", self._pair))
            case "[":
                return [*self._items("]", self.value)]
            case _:
                return _scalar(self._until(",}]"))

    def _pair(self) -> tuple[str, Any]:
        key = self._until(":").strip()
        self._at += 1
        self._blanks()
        return key, self.value()

    def _items(self, end: str, read: Callable[[], Any]) -> Iterator[Any]:
        self._at += 1
        while self._at < len(self._text):
            self._blanks()
            if self._text[self._at : self._at + 1] != end:
                yield read()
            self._blanks()
            self._at += 1
            if self._text[self._at - 1 : self._at] != ",":
                return

    def _blanks(self) -> None:
        while self._text[self._at : self._at + 1] == " ":
            self._at += 1

    def _until(self, ends: str) -> str:
        """The text up to one of these characters, which may stand in quotes before it."""
        start, quote = self._at, ""
        while self._at < len(self._text) and (quote or self._text[self._at] not in ends):
            char = self._text[self._at]
            if char == "\\" and quote:
                self._at += 1
            elif char in "'\"":
                quote = "" if char == quote else quote or char
            self._at += 1
        return self._text[start : self._at]


def _scalar(text: str) -> Any:
    """Read a value of Hydra: null, a flag, a number, a list of such, or text."""
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
    """Normalise a value: dtypes by name, whole floats as integers, variables of the environment as text."""
    if name.startswith("env_vars."):
        return str(value)
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if isinstance(value, list | tuple):
        return [_value(name, v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _layout(value: Any) -> Any:
    """Convert a pipeline layout of any source to a list of its stages' letters."""
    lists = isinstance(value, list) and value and isinstance(value[0], list)
    return stages(value) if lists or isinstance(value, str) else value
