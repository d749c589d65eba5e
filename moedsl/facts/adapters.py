"""Map the options of an adapter to the fields of Bridge's classes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moedsl.facts.adapter import OF_MLP, TARGETS, Adapter
from moedsl.facts.fields import Field, lookup
from moedsl.facts.values import Call

CLASSES = {"lora": "LoRA", "dora": "DoRA", "canonical_lora": "CanonicalLoRA"}
"""The class of each method, in the module of its name."""
_FIELDS = {
    "rank": "dim",
    "alpha": "alpha",
    "dropout": "dropout",
    "targets": "target_modules",
    "experts": "share_expert_adapters",
    "normalized": "normalize_moe_lora",
    "regather": "sequence_parallel_input_regather",
}
_OUTER = "experts_shared_outer_loras"
_OUTSIDE = ("*.shared_experts.{}", "*.mlp.{}")
"""A module of the MLPs and of the shared experts, but not of the routed ones: a star is any text (bridge
peft/utils.py:722)."""
_MERGERS = "vision_model.*merger*.{}"
"""A module of the mergers of a vision tower, which are no MLPs by name (bridge
models/qwen_vl/modelling_qwen3_vl/vision_model.py:168)."""


def _field(option: str) -> Field:
    found = lookup(f"peft.{_FIELDS[option]}")
    assert found is not None, option
    return found


def has(method: str, option: str) -> bool:
    """Whether the class of a method has the field of an option. Any method leaves experts out by its targets."""
    return not (classes := _field(option).classes) or CLASSES[method] in classes or option == "experts"


def has_experts(method: str, word: str | None) -> bool:
    """Whether the class of a method can give experts their adapters in this way."""
    outer = lookup(f"peft.{_OUTER}")
    return word != "outer" or (outer is not None and outer.classes == (CLASSES[method],))


def _default(method: str, option: str) -> Any:
    field = _field(option)
    return field.others.get(CLASSES[method], field.default)


def defaults(method: str) -> dict[str, Any]:
    """The options of a method as its class has them."""
    plain = {o: _default(method, o) for o in ("rank", "alpha", "dropout", "normalized", "regather")}
    return {**plain, "targets": frozenset(_default(method, "targets")), "experts": "shared"}


def call(a: Adapter, vision: bool = False) -> Call:
    """The object for `cfg.peft`: what is not its default, and the rank, alpha, dropout and targets in any case.

    `vision` is whether the model is of a family with a vision tower.
    """
    values = {
        "rank": a.rank, "alpha": a.alpha, "dropout": a.dropout, "targets": patterns(a, vision),
        "experts": a.experts != "each", "normalized": a.normalized, "regather": a.regather,
    }  # fmt: skip
    stated = ("targets", "rank", "alpha", "dropout")
    own = {o: values[o] for o in values if o not in stated and values[o] != _default(a.method, o)}
    kwargs = {_FIELDS[o]: v for o, v in ({o: values[o] for o in stated} | own).items()}
    kwargs |= {_OUTER: True} if a.experts == "outer" else {}
    return Call(f"megatron.bridge.peft.{a.method}", CLASSES[a.method], kwargs)


def patterns(a: Adapter, vision: bool = False) -> list[str]:
    """The modules by name, in the order of `TARGETS`; by pattern where routed experts are left out."""
    named = [t for t in TARGETS if t in a.targets]
    if a.experts != "none":
        return named
    outside = (*_OUTSIDE, _MERGERS) if vision else _OUTSIDE
    return [p for t in named for p in ([o.format(t) for o in outside] if t in OF_MLP else [t])]


def read(kind: str, fields: Mapping[str, Any]) -> Adapter | None:
    """The adapter of a recipe from the class of `cfg.peft` and its fields; None if no options say it."""
    method = next((m for m, name in CLASSES.items() if name == kind), None)
    if method is None:
        return None
    values = {o: fields.get(f"peft.{name}", _default(method, o)) for o, name in _FIELDS.items()}
    named, outside = _read_targets(values["targets"] or ())
    if named is None:
        return None
    routed = "outer" if fields.get(f"peft.{_OUTER}") else "shared" if values["experts"] else "each"
    experts = "none" if outside else routed
    own: dict[str, Any] = {**values, "method": method, "targets": named, "experts": experts}
    return Adapter(**own)


def _read_targets(written: Iterable[str]) -> tuple[frozenset[str] | None, bool]:
    """The names in a list of names and patterns, and whether routed experts are left out; None for other patterns."""
    written = {*written}
    outside = {t for t in OF_MLP if written >= {o.format(t) for o in _OUTSIDE}}
    names = (written - {o.format(t) for t in outside for o in (*_OUTSIDE, _MERGERS)}) | outside
    plain = names <= {*TARGETS} and bool(names) and not (outside and written & {*OF_MLP})
    return (frozenset(names), bool(outside)) if plain else (None, False)
