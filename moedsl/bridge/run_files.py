"""Read the files in which a run states its own configuration: a `run_config.yaml` of Bridge, a log of Bridge, and what
Megatron-LM is called with (megatron_lm/). `read` takes any of them, and reads no Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.megatron_lm import configuration as megatron_lm
from moedsl.bridge.megatron_lm.arguments import printed
from moedsl.facts import fields
from moedsl.facts.facts import Hardware
from moedsl.facts.values import PATTERN
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.foreign import text_of


def read(
    target: str,
    gpu: str | None,
    world: int | None,
    library: Library,
    given: Mapping[str, str] = {},
    command: Sequence[str] = (),
) -> Recipe | tuple[Diagnostic, ...] | None:
    """Read a run's own file, or a command line of Megatron-LM, as a recipe; None if `target` is another kind of file.

    `gpu` and `world` are the machines where the file does not name them, and `given` the variables of a script.
    """
    of_bridge = not command and _is_of_bridge(target)
    if not of_bridge:
        found = megatron_lm.read(target, gpu, world, given, library, command)
        if found is not None or not target.endswith((".yaml", ".yml")):
            return found
    machines = megatron_lm.machines(target, gpu, world, library)
    if isinstance(machines, Diagnostic):
        return (machines,)
    try:
        return (read_log if of_bridge else read_run_config)(Path(target), *machines)
    except UnreadableError as wrong:
        return (error("import.recipe", str(wrong), help=wrong.help),)


_SUMMARY = "Configuration Summary (Non-Default Values vs Megatron Core)"
"""The heading of what Bridge prints of its configuration (bridge training/config.py:1704)."""
_HEADING = re.compile(r"\[(\w+)\](?: Non-default values .*)?:$")
_ROW = re.compile(r"^\W*(\w+): (.*?)(?:  \(Mcore default: .*\))?$")


def _is_of_bridge(target: str) -> bool:
    """Whether a file is a log in which Bridge printed its configuration."""
    if target.endswith((".py", ".moe", ".json", ".yaml", ".yml", ".sh")) or not os.path.isfile(target):
        return False
    try:
        return _SUMMARY in text_of(Path(target))
    except (OSError, ValueError):
        return False


def read_log(path: Path, hardware: Hardware, world: int) -> Recipe:
    """Read the configuration in a log of Bridge: what differs from Megatron-Core's defaults, and more."""
    section, values, places = "", dict[str, Any](), {}
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if _SUMMARY in line:
            values, places = {}, {}
        elif heading := _HEADING.search(line):
            section = heading[1]
        elif section and (row := _ROW.search(line)):
            values[f"{section}.{row[1]}"] = printed(row[2])
            places[f"{section}.{row[1]}"] = ((str(path), number),)
    hybrid, latent = values.get(PATTERN), values.get("model.kv_lora_rank")
    kind = "HybridModelProvider" if hybrid else "MLAModelProvider" if latent else "GPTModelProvider"
    return Recipe(
        target=str(path), function="log", file=str(path), line=1, fields=values, hardware=hardware, world=world,
        settled=values, classes={"model": kind, "dataset": "GPTDatasetConfig"}, places=places,
    )  # fmt: skip


class UnreadableError(Exception):
    """The file is not a configuration of Bridge; the message says why, `help` what to do."""

    def __init__(self, message: str, *help: str) -> None:
        super().__init__(message)
        self.help = help


def read_run_config(path: Path, hardware: Hardware, world: int) -> Recipe:
    """Read a `run_config.yaml`; the machines are given, because the file does not have them. Raises UnreadableError."""
    try:
        import yaml  # comes with Bridge and with NeMo-Run; nothing else needs it
    except ImportError as missing:
        raise UnreadableError("PyYAML is not installed, which reads this file", "pip install pyyaml") from missing
    if os.path.exists(path) and not os.path.isfile(path):
        raise UnreadableError(f"{path} is not a regular file", "save it as a file first")
    try:
        loaded = yaml.safe_load(text_of(path))
        data: Mapping[str, Any] = loaded if isinstance(loaded, Mapping) else {}
        sections = {n: v for n, v in data.items() if isinstance(v, Mapping) and "_target_" in v and "_call_" not in v}
        if "model" not in sections:
            raise UnreadableError(f"{path} has no `model` section: it is not a `run_config.yaml` of Megatron Bridge")
        values = {n: plain(v) for n, v in data.items() if n not in sections and n != "_target_"}
        # sections inside other sections, such as packing
        inside = {p: sections.get(s, {}).get(n) for p in fields.absent() for s, _, n in [p.rpartition(".")]}
        every = {**sections, **{p: held for p, held in inside.items() if isinstance(held, Mapping)}}
        values |= {f"{s}.{n}": plain(v) for s, held in every.items() for n, v in held.items() if n != "_target_"}
        classes = {n: str(v["_target_"]).rpartition(".")[2] for n, v in sections.items()}
        return Recipe(
            target=str(path), function="run_config", file=str(path), line=1, fields=values, hardware=hardware,
            world=world, settled=values, classes=classes, places=_places(path),
        )  # fmt: skip
    except OSError as unread:
        raise UnreadableError(f"cannot read {path}: {unread.strerror or unread}") from unread
    except RecursionError:
        raise UnreadableError(f"{path} is nested too deep, or contains itself") from None
    except (yaml.YAMLError, ValueError) as wrong:
        raise UnreadableError(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong


def _places(path: Path) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the line of each field of a `run_config.yaml`."""
    section, out = "", dict[str, tuple[tuple[str, int], ...]]()
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if found := re.match(r" *(\w+):", line):
            indent = len(line) - len(line.lstrip())
            section = found[1] if not indent else section
            if indent == 2:
                out.setdefault(f"{section}.{found[1]}", ((str(path), number),))
    return out


def plain(value: Any) -> Any:
    """Convert a value to JSON as verify/configs.py does: dtypes and enum members to names, other objects to
    `<Class>`."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, Mapping) or "_target_" not in value:
        return {str(n): plain(v) for n, v in value.items()} if isinstance(value, Mapping) else value
    target = str(value["_target_"])
    if target.startswith("torch.") and target.count(".") == 1:
        return target.removeprefix("torch.")
    return value.get("_name_", f"<{target.rpartition('.')[2]}>")
