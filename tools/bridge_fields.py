"""Write every field of the installed Bridge's ConfigContainer to moedsl/megatron/bridge_fields_VERSION.json.

usage: .venv/bin/python tools/bridge_fields.py [FILE]     needs the real Bridge, which .venv has
Shape: {"bridge", "core", "sections": {section: {field: {"type": text, "default": JSON, "in": [classes]}}}}.
A section that several classes may fill (the model's providers, the datasets) is their union. "in" is absent if all of
them have the field.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from moedsl.verify import te

# List the providers that AutoBridge makes for the stdlib's models, and every dataset of a recipe.
MODEL = (
    "megatron.bridge.models.gpt_provider:GPTModelProvider",
    "megatron.bridge.models.mla_provider:MLAModelProvider",
    "megatron.bridge.models.hybrid.hybrid_provider:HybridModelProvider",
    "megatron.bridge.models.qwen_vl.qwen3_vl_provider:Qwen3VLMoEModelProvider",
)
LITERAL = re.compile(r"Literal(\[[^\]]*\])")
OPTIONAL = {
    "comm_overlap": ("megatron.bridge.training.comm_overlap:CommOverlapConfig",),
    "mixed_precision": ("megatron.bridge.training.mixed_precision:MixedPrecisionConfig",),
}


def classes(section: str, annotation: str, config: Any) -> list[type]:
    """List the dataclasses that may fill a section, from the names in its annotation."""
    if section == "model":
        return [_load(name) for name in MODEL]
    if section in OPTIONAL:
        return [_load(name) for name in OPTIONAL[section]]
    named = [getattr(config, word, None) for word in re.findall(r"\w+", annotation)]
    return [c for c in named if inspect.isclass(c) and dataclasses.is_dataclass(c)]


def _load(name: str) -> type:
    module, _, cls = name.partition(":")
    return getattr(importlib.import_module(module), cls)


def union(kinds: list[type]) -> dict[str, dict[str, Any]]:
    """Map each field to {type, default, in}, over all classes of a section; the first class describes it."""
    out: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        for f in dataclasses.fields(kind):
            if not f.name.startswith("_"):
                entry = out.setdefault(f.name, {"type": text(f.type), "default": default(f), "in": []})
                entry["type"] = widened(entry["type"], text(f.type), default(f))
                entry["in"].append(kind.__name__)
    for entry in out.values():
        if len(entry["in"]) == len(kinds):
            del entry["in"]
    return dict(sorted(out.items()))


def widened(first: str, other: str, default: Any) -> str:
    """Add to a Literal the words that another class takes: those of its own Literal, or its default."""
    found, more = LITERAL.search(first), LITERAL.search(other)
    if found is None:
        return first
    words = [*ast.literal_eval(found[1])]
    words += [w for w in (ast.literal_eval(more[1]) if more else [default]) if w is not None and w not in words]
    return first.replace(found[1], str(words))


def text(annotation: Any) -> str:
    """Write an annotation without addresses and module paths."""
    written = (
        annotation if isinstance(annotation, str) else annotation.__name__ if _is_plain(annotation) else str(annotation)
    )
    return re.sub(r" at 0x\w+", "", re.sub(r"\b(?:\w+\.)+(?=\w)", "", written))


def _is_plain(annotation: Any) -> bool:
    return isinstance(annotation, type) and not getattr(annotation, "__args__", None)


def default(f: dataclasses.Field[Any]) -> Any:
    """Return the default as JSON, as text if JSON cannot express it, or "required" if there is none."""
    if f.default is not dataclasses.MISSING:
        return _json(f.default)
    if f.default_factory is dataclasses.MISSING:
        return "required"
    kind: Any = f.default_factory
    return _json(kind()) if kind in (list, dict, tuple, set) else "factory"


def _json(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple, set)):
        return [_json(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _json(v) for k, v in value.items()}
    named = getattr(value, "__name__", None) or str(value)
    return named if " object at " not in named and not named.startswith("functools.partial(") else type(value).__name__


def generate() -> dict[str, Any]:
    """Build the whole document; imports Bridge."""
    te.install()
    config: Any = importlib.import_module("megatron.bridge.training.config")
    sections: dict[str, Any] = {}
    for f in dataclasses.fields(config.ConfigContainer):
        kinds = classes(f.name, str(f.type), config)
        if kinds and not f.name.startswith("_"):
            sections[f.name] = union(kinds)
    return {
        "bridge": version("megatron-bridge"),
        "core": version("megatron-core"),
        "sections": dict(sorted(sections.items())),
    }


def main() -> None:
    document = generate()
    root = Path(__file__).resolve().parent.parent
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else root / f"moedsl/megatron/bridge_fields_{document['bridge']}.json"
    file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{file}: {sum(map(len, document['sections'].values()))} fields in {len(document['sections'])} sections")


if __name__ == "__main__":
    main()
