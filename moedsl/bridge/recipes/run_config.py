"""Read the `run_config.yaml` that Bridge saves with a checkpoint: the configuration after its update, without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moedsl.bridge.lint.recipe import Recipe
from moedsl.facts.facts import Hardware
from moedsl.facts.fields import absent
from moedsl.support.foreign import text_of

NAME = "run_config"


class UnreadableError(Exception):
    """The file is not a configuration of Bridge; the message says why, `help` what to do."""

    def __init__(self, message: str, *help: str) -> None:
        super().__init__(message)
        self.help = help


def is_one(target: str) -> bool:
    """Whether a target is such a file, by its name."""
    return target.endswith((".yaml", ".yml"))


def read(path: Path, hardware: Hardware, world: int) -> Recipe:
    """Read the fields of a run; its machines are not in the file. Raises UnreadableError."""
    try:
        return _recipe(path, _load(path), hardware, world)
    except RecursionError:
        raise UnreadableError(f"{path} is nested too deep, or contains itself") from None


def _recipe(path: Path, data: Mapping[str, Any], hardware: Hardware, world: int) -> Recipe:
    sections = {n: v for n, v in data.items() if isinstance(v, Mapping) and "_target_" in v and not _is_value(v)}
    if "model" not in sections:
        raise UnreadableError(f"{path} has no `model` section: it is not a `run_config.yaml` of Megatron Bridge")
    fields = {n: plain(v) for n, v in data.items() if n not in sections and n != "_target_"}
    every = {**sections, **dict(_inside(sections))}
    fields |= {f"{s}.{n}": plain(v) for s, held in every.items() for n, v in held.items() if n != "_target_"}
    classes = {n: str(v["_target_"]).rpartition(".")[2] for n, v in sections.items()}
    return Recipe(
        target=str(path), function=NAME, file=str(path), line=1, fields=fields, hardware=hardware, world=world,
        settled=fields, classes=classes,
    )  # fmt: skip


def _inside(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The sections that are fields of others, such as that of packing."""
    for path in absent():
        section, _, name = path.rpartition(".")
        held = sections.get(section, {}).get(name)
        if isinstance(held, Mapping):
            yield path, held


def plain(value: Any) -> Any:
    """Convert a value to JSON as `verify/flat.py` does: a dtype and an enum member by name, another object by its
    class."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, Mapping) or "_target_" not in value:
        return {str(n): plain(v) for n, v in value.items()} if isinstance(value, Mapping) else value
    target = str(value["_target_"])
    if target.startswith("torch.") and target.count(".") == 1:
        return target.removeprefix("torch.")
    return value.get("_name_", f"<{target.rpartition('.')[2]}>")


def _is_value(value: Mapping[str, Any]) -> bool:
    return "_call_" in value


def _load(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # comes with Bridge and with NeMo-Run; nothing else needs it
    except ImportError as missing:
        raise UnreadableError("PyYAML is not installed, which reads this file", "pip install pyyaml") from missing
    if os.path.exists(path) and not os.path.isfile(path):
        raise UnreadableError(f"{path} is not a regular file", "save it as a file first")
    try:
        data = yaml.safe_load(text_of(path))
    except OSError as refused:
        raise UnreadableError(f"cannot read {path}: {refused.strerror or refused}") from refused
    except (yaml.YAMLError, ValueError) as wrong:
        raise UnreadableError(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
    return data if isinstance(data, Mapping) else {}
