"""Write every field of the installed Bridge's ConfigContainer to moedsl/facts/bridge_fields_VERSION.json.

usage: .venv/bin/python tools/bridge_fields.py [FILE]     needs the real Bridge, which .venv has
       .venv/bin/python tools/bridge_fields.py --older    of each older release that `moedsl targets add` has fetched
The file of an older release has what differs from the newest release's (moedsl/facts/fields.py).
Shape: {"bridge", "core", "sections": {section: {field: {"type": text, "default": JSON, "in": [classes], "others":
{class: JSON}}}}, "absent": {section: "module:class" or null}, "words": {type: {"module", "names"}}, "overwritten":
{field: field}, "provided": {model: {field: JSON}}, "unbuilt": {model: reason}, "families": [model_type], "common":
{task: {field: JSON}}}.
A section that several classes may fill (the model's providers, the datasets) is their union. "in" is absent if all of
them have the field, and "others" has the defaults that differ from the first class's. "absent" are the sections that
are None by default; null is an abstract class. "overwritten" maps a field to the one whose value Bridge writes over it.
"provided" are the fields to which AutoBridge gives another value than their default, for each model of the stdlib;
"unbuilt" are those for which it has no bridge, with its words. "families" are the `model_type`s that it has a bridge
for. "common" is what the common function of a task gives a
field, where that is not what moedsl/facts/common.py says.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

from moedsl.bridge.verify import environments, stand_ins
from moedsl.facts import fields
from moedsl.facts.common import COMMON, MODULE
from moedsl.facts.families import family
from moedsl.facts.releases import BY_VERSION, NEWEST, RELEASES
from moedsl.facts.values import normalise
from moedsl.support.resources import stdlib_dir

RELEASE = BY_VERSION[version("megatron-bridge")]
MODEL = {
    "GPTModelProvider": "megatron.bridge.models.gpt_provider:GPTModelProvider",
    "MLAModelProvider": "megatron.bridge.models.mla_provider:MLAModelProvider",
    "HybridModelProvider": "megatron.bridge.models.hybrid.hybrid_provider:HybridModelProvider",
    "Qwen3VLMoEModelProvider": "megatron.bridge.models.qwen_vl.qwen3_vl_provider:Qwen3VLMoEModelProvider",
    "KimiK25VLModelProvider": "megatron.bridge.models.kimi_vl.kimi_k25_vl_provider:KimiK25VLModelProvider",
    "Gemma4VLModelProvider": "megatron.bridge.models.gemma_vl.gemma4_vl_provider:Gemma4VLModelProvider",
}
"""The providers that AutoBridge makes for the stdlib's models, by the newest release's names."""
_SOURCE = "megatron.bridge.data.sources.hf:HFDatasetSourceConfig"
NESTED = {
    "dataset.hf_dataset": (_SOURCE,),
    "dataset.hf_validation_dataset": (_SOURCE,),
    "dataset.hf_test_dataset": (_SOURCE,),
    "dataset.offline_packing_specs": ("megatron.bridge.data.packing.config:PackedSequenceSpecs",),
    "dataset.packed_sequence_specs": ("megatron.bridge.data.datasets.packed_sequence:PackedSequenceSpecs",),
    "dataset.preprocessing": (
        "megatron.bridge.data.sft_processing:PromptCompletionSFTPreprocessingConfig",
        "megatron.bridge.data.sft_processing:ChatSFTPreprocessingConfig",
    ),
}
"""Fields that hold a dataclass or None, and are a section of their own, where a release has them."""
COPIED = {"dataset.sequence_length": "dataset.seq_length"}
"""Fields that their own section copies from another (bridge training/config.py:304)."""
REGISTERED = re.compile(r"^@MegatronModelBridge\.register_bridge\((.*?)\)\nclass ", re.DOTALL | re.MULTILINE)
"""The arguments with which a bridge is registered, in its source."""
OTHERWISE = {"gemma4": "gemma4_text", "gemma4_vl": "gemma4", "qwen3_omni": "qwen3_omni_moe"}
"""Bridge's name of a family, if it is not the `model_type` of the configurations."""
BY_CLASS = {
    "Glm4vMoeForConditionalGeneration": "glm4v_moe",
    "KimiK25ForConditionalGeneration": "kimi_k25",
    "SarvamMLAForCausalLM": "sarvam_mla",
    "SarvamMoEForCausalLM": "sarvam_moe",
}
"""Families with experts that Bridge registers by the class of the model alone."""
LITERAL = re.compile(r"Literal(\[[^\]]*\])")
OPTIONAL = {
    "comm_overlap": ("megatron.bridge.training.comm_overlap:CommOverlapConfig",),
    "mixed_precision": ("megatron.bridge.training.mixed_precision:MixedPrecisionConfig",),
    "peft": (
        "megatron.bridge.peft.lora:LoRA",
        "megatron.bridge.peft.dora:DoRA",
        "megatron.bridge.peft.canonical_lora:CanonicalLoRA",
    ),
}


def classes(section: str, annotation: str, config: Any) -> list[type]:
    """List the dataclasses that may fill a section, from the names in its annotation."""
    if section == "model":
        places = (RELEASE.classes.get(name, place) for name, place in MODEL.items())
        return [_load(place) for place in places if importlib.util.find_spec(place.partition(":")[0])]
    if section in OPTIONAL:
        return [_load(name) for name in OPTIONAL[section]]
    named = [getattr(config, word, None) for word in re.findall(r"\w+", annotation)]
    found = [c for c in named if inspect.isclass(c) and dataclasses.is_dataclass(c) and not inspect.isabstract(c)]
    more = [_load(place) for name, place in RELEASE.classes.items() if name.endswith("DatasetConfig")]
    return [*dict.fromkeys(found + more)] if section == "dataset" else found


def _newest_name(kind: type) -> str:
    """The name that the newest release has for a class."""
    return next((n for n, place in RELEASE.classes.items() if place.endswith(f":{kind.__name__}")), kind.__name__)


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
                entry["in"].append(_newest_name(kind))
                if default(f) != entry["default"]:
                    entry.setdefault("others", {})[_newest_name(kind)] = default(f)
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
    value = kind() if kind in (list, dict, tuple, set) or f.name == "target_modules" else None
    return "factory" if value is None else _json(value)


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
    unnamed = any(sign in named for sign in (" object at ", "\n", "functools.partial("))
    return type(value).__name__ if unnamed else named


def written(of: list[type], over: tuple[str, ...], kinds: dict[str, list[type]]) -> Iterator[tuple[str, str]]:
    """Pair each field of the other sections with the field of the same name that Bridge writes over it."""
    (owner,) = (name for name, found in kinds.items() if found == of)
    names = {f.name for f in dataclasses.fields(of[0])}
    for section in over:
        found = {f.name for kind in kinds[section] for f in dataclasses.fields(kind)}
        yield from ((f"{section}.{name}", f"{owner}.{name}") for name in sorted(names & found))


def words(kinds: Iterable[type]) -> dict[str, Any]:
    """List the names of each enumeration in the annotations, and torch's dtypes of parameters and states."""
    torch = importlib.import_module("torch")
    parts = (p for kind in kinds for hint in get_type_hints(kind).values() for p in _inside(hint))
    found = {p for p in parts if inspect.isclass(p) and issubclass(p, enum.Enum)}
    every = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    dtypes = sorted(str(d).removeprefix("torch.") for d in every if d.is_floating_point or d is torch.uint8)
    named = {e.__name__: {"module": e.__module__, "names": [m.name for m in e]} for e in found}
    return {**named, "dtype": {"module": "torch", "names": dtypes}}


def _inside(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _inside(part)


def provided(known: dict[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Map each model of the stdlib to the fields that differ from their default in what AutoBridge makes of it, or to
    the words with which it refuses the model."""
    bridge: Any = importlib.import_module("megatron.bridge").AutoBridge
    transformers: Any = importlib.import_module("transformers")
    out: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for folder in sorted(f.parent for f in (stdlib_dir() / "hf").glob("*/config.json")):
        name = folder.name.replace("--", "/")
        kin = family(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"])
        code = {"trust_remote_code": kin.remote_code}
        try:
            if kin.config_only:
                found = bridge.from_hf_config(transformers.AutoConfig.from_pretrained(name, **code))
            else:
                found = bridge.from_hf_pretrained(name, **code)
            made = found.to_megatron_provider(load_weights=False)
            made = getattr(made, kin.language)() if kin.language else made
        except ValueError as error:
            first = next(line.strip(" \u2717\n") for line in str(error).splitlines() if line.strip())
            refused[name] = first.rpartition("Last error: ")[2].partition(". ")[0]
            continue
        values = {f.name: _json(getattr(made, f.name)) for f in dataclasses.fields(made) if f.name in known}
        out[name] = {n: v for n, v in sorted(values.items()) if {v != d for d in _defaults(known[n])} != {False}}
    return out, refused


def families() -> list[str]:
    """List the `model_type` of each family that has a bridge."""
    found = importlib.util.find_spec("megatron.bridge")
    assert found is not None and found.submodule_search_locations
    files = (Path(found.submodule_search_locations[0]) / "models").rglob("*_bridge.py")
    said = "\n".join(one for f in files for one in REGISTERED.findall(f.read_text(encoding="utf-8")))
    names: list[str] = re.findall(r'model_type="([^"]+)"', said)
    return sorted(
        {OTHERWISE.get(name, name) for name in names}
        | {family for name, family in BY_CLASS.items() if re.search(rf'source="?{name}\b', said)}
    )


def common() -> dict[str, dict[str, Any]]:
    """Map each task to the fields to which its common function gives another value than COMMON says."""
    out: dict[str, dict[str, Any]] = {}
    for task, said in COMMON.items():
        made = getattr(importlib.import_module(MODULE), said.function)()
        found = {path: _at(made, path) for path in said.values if not path.startswith("model.")}
        out[task] = {p: v for p, v in found.items() if v != normalise(p, said.values[p])}
    return out


def _at(config: Any, path: str) -> Any:
    """The value of a field as `normalise` writes it; "absent" where the object has no such field."""
    section, _, name = path.partition(".")
    value = getattr(getattr(config, section), name, inspect.Parameter.empty)
    return "absent" if value is inspect.Parameter.empty else normalise(path, value)


def _defaults(entry: dict[str, Any]) -> list[Any]:
    return [entry["default"], *entry.get("others", {}).values()]


def generate() -> dict[str, Any]:
    """Build the whole document; imports Bridge."""
    home = Path(tempfile.mkdtemp())
    environments.build_hub(home, stdlib_dir() / "hf", home / "none")
    os.environ.update(environments.hub_environment(home))  # read while transformers is imported
    stand_ins.install_engine()
    stand_ins.install_mamba()
    config: Any = importlib.import_module("megatron.bridge.training.config")
    kinds: dict[str, list[type]] = {}
    absent: dict[str, str | None] = {}
    for f in dataclasses.fields(config.ConfigContainer):
        found = classes(f.name, str(f.type), config)
        if found and not f.name.startswith("_"):
            kinds[f.name] = found
            if f.default is None:
                absent[f.name] = None if inspect.isabstract(found[0]) else f"{found[0].__module__}:{found[0].__name__}"
    sections = {name: union(kinds[name]) for name in sorted(kinds)}
    nested = {path: places for path, places in NESTED.items() if _has(sections, path)}
    absent |= {path: places[0] for path, places in nested.items()}
    kinds |= {path: [*map(_load, places)] for path, places in nested.items()}
    sections = dict(sorted((sections | {path: union(kinds[path]) for path in nested}).items()))
    both = ("ddp", "model", "optimizer")
    made, refused = provided(sections["model"])
    return {
        "bridge": version("megatron-bridge"),
        "core": version("megatron-core"),
        "sections": sections,
        "absent": absent,
        "words": words(kind for found in kinds.values() for kind in found),
        "provided": made,
        "unbuilt": refused,
        "families": families(),
        "common": common(),
        "overwritten": {a: b for a, b in COPIED.items() if _has(sections, a)}
        | dict(pair for owner in OPTIONAL for pair in written(kinds[owner], both, kinds)),
    }


def _has(sections: dict[str, dict[str, Any]], path: str) -> bool:
    section, _, name = path.rpartition(".")
    return name in sections.get(section, {})


def older() -> None:
    """Run this script once for each older release, which needs a process of its own."""
    for release in filter(environments.made, RELEASES[:-1]):
        path = os.pathsep.join([*environments.folders(release), str(stdlib_dir().parent)])
        subprocess.run([sys.executable, __file__], env=os.environ | {"PYTHONPATH": path}, check=True)


def main() -> None:
    if sys.argv[1:] == ["--older"]:
        older()
        return
    document = generate()
    folder = Path(__file__).resolve().parent.parent / "moedsl/facts"
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / f"bridge_fields_{document['bridge']}.json"
    written = document
    if RELEASE is not NEWEST:
        newest = json.loads((folder / f"bridge_fields_{NEWEST.bridge}.json").read_text(encoding="utf-8"))
        written = fields.differences(document, newest)
    file.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{file}: {sum(map(len, document['sections'].values()))} fields in {len(document['sections'])} sections")


if __name__ == "__main__":
    main()
