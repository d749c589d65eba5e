"""Describe what fine-tuning adds to a run: pretrained weights, adapters, and the samples of a text.

The options of an adapter are mapped to the fields of Bridge's classes, and back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.facts.fields import Field, lookup
from moedsl.facts.values import Call

METHODS = ("lora", "dora", "canonical_lora")
EXPERTS = ("shared", "each", "outer", "none")
"""`shared`: one adapter for all experts of a layer; `each`: one per expert; `outer`: one per expert, all sharing the
matrix at the hidden state; `none`: only other targets have adapters."""
TARGETS = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj", "linear_q_proj",
    "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "fc1_latent_proj",
    "fc2_latent_proj", "eh_proj", "router", "linear_q", "linear_k", "linear_v", "linear_fc1_up", "linear_fc1_gate",
)  # fmt: skip
"""Megatron's names of the modules that an adapter may target; only canonical LoRA has the last five."""
PARTS = {"linear_qkv": ("linear_q", "linear_k", "linear_v"), "linear_fc1": ("linear_fc1_gate", "linear_fc1_up")}
"""Canonical LoRA's names for the parts of a fused module (bridge peft/canonical_lora.py:208)."""
OF_MLP = ("linear_fc1", *PARTS["linear_fc1"], "linear_fc2")
"""The targets that routed experts also have."""


@frozen
class Adapter:
    """One adapter for each target module of each layer."""

    method: str
    rank: int
    alpha: int
    dropout: float
    targets: frozenset[str]
    experts: str
    normalized: bool = False
    """Whether expert adapters have the rank divided by the number of experts per token."""
    regather: bool = False
    """Whether an input that TP gathers is gathered again in backward instead of kept."""


CLASSES = {"lora": "LoRA", "dora": "DoRA", "canonical_lora": "CanonicalLoRA"}
"""Bridge's class for each method, in the module with the method's name."""
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
"""Patterns for a module of MLPs and shared experts, but not of routed experts; a star matches any text (bridge
peft/utils.py:722)."""
_MERGERS = "vision_model.*merger*.{}"
"""The pattern for a module of a vision tower's mergers, which are not named as MLPs (bridge
models/qwen_vl/modelling_qwen3_vl/vision_model.py:168)."""


def _field(option: str) -> Field:
    found = lookup(f"peft.{_FIELDS[option]}")
    assert found is not None, option
    return found


def has(method: str, option: str) -> bool:
    """Whether a method's class has an option's field; true for `experts`, which any method can leave out by targets."""
    return not (classes := _field(option).classes) or CLASSES[method] in classes or option == "experts"


def has_experts(method: str, word: str | None) -> bool:
    """Whether a method's class supports a value of the `experts` option."""
    outer = lookup(f"peft.{_OUTER}")
    return word != "outer" or (outer is not None and outer.classes == (CLASSES[method],))


def _default(method: str, option: str) -> Any:
    field = _field(option)
    return field.others.get(CLASSES[method], field.default)


def defaults(method: str) -> dict[str, Any]:
    """Return the default options of a method's class."""
    plain = {o: _default(method, o) for o in ("rank", "alpha", "dropout", "normalized", "regather")}
    return {**plain, "targets": frozenset(_default(method, "targets")), "experts": "shared"}


def call(a: Adapter, vision: bool = False) -> Call:
    """Return the object for `cfg.peft`: always rank, alpha, dropout and targets, else only what is not the default.

    `vision` is whether the model's family has a vision tower.
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
    """Return the target modules by name, in `TARGETS` order; MLP modules by pattern if routed experts are left out."""
    named = [t for t in TARGETS if t in a.targets]
    if a.experts != "none":
        return named
    outside = (*_OUTSIDE, _MERGERS) if vision else _OUTSIDE
    return [p for t in named for p in ([o.format(t) for o in outside] if t in OF_MLP else [t])]


def read(kind: str, fields: Mapping[str, Any]) -> Adapter | None:
    """Read a recipe's adapter from the class and fields of `cfg.peft`; None if the options cannot express it."""
    method = next((m for m, name in CLASSES.items() if name == kind), None)
    if method is None:
        return None
    values = {o: fields.get(f"peft.{name}", _default(method, o)) for o, name in _FIELDS.items()}
    # The list mixes names and patterns; modules that have only the patterns in `_OUTSIDE` leave out routed experts
    written = {*(values["targets"] or ())}
    outside = {t for t in OF_MLP if written >= {o.format(t) for o in _OUTSIDE}}
    names = (written - {o.format(t) for t in outside for o in (*_OUTSIDE, _MERGERS)}) | outside
    if not names or not names <= {*TARGETS} or (outside and written & {*OF_MLP}):
        return None
    routed = "outer" if fields.get(f"peft.{_OUTER}") else "shared" if values["experts"] else "each"
    experts = "none" if outside else routed
    own: dict[str, Any] = {**values, "method": method, "targets": frozenset(names), "experts": experts}
    return Adapter(**own)


FIELD = "checkpoint.pretrained_checkpoint"
"""Bridge's field for the folder of the pretrained weights."""
FOLDER = "nemo_experiments/weights"
"""The folder of imported weights if no cluster names one, relative to the job's folder."""


def imported(name: str, folder: str = FOLDER) -> str:
    """Return the folder of an imported Hugging Face model."""
    return f"{folder}/{name.replace('/', '--')}"


SOURCES = ("folder", "hf")
GROUPS = 32
"""How many lengths a list has: each is the mean length of one of this many equally large groups of sorted samples."""
_COPIES = 16
"""Samples per group in a trial packing."""


@frozen
class Samples:
    """What `data` states about the samples of a fine-tuning text."""

    source: str = SOURCES[0]
    pack: bool | None = None
    """Whether a sequence holds several samples; None if the run does not state it."""
    lengths: tuple[float, ...] = ()
    """Mean tokens per sample in each of several equally large groups, sorted; empty if the run states none."""
    split: str | None = None
    subset: str | None = None


@frozen
class Filled:
    """How full sequences are, on average."""

    useful: float
    """The share of a sequence's tokens that belong to samples, not padding."""
    samples: float
    """Samples per sequence."""
    span: float
    """Length of the text that a token attends within, averaged over tokens: a padded sample, or a sequence."""


def groups(counts: Mapping[int, int]) -> list[int]:
    """Split samples, counted by length, into `GROUPS` equally large groups by length; return each mean length."""
    total, most = sum(counts.values()), GROUPS
    sums, at = [0.0] * most, 0.0
    for length, count in sorted(counts.items()):
        left = count * most / total
        while left > 1e-9:
            group = min(int(at + 1e-9), most - 1)
            part = min(left, group + 1 - at) if group + 1 < most else left
            sums[group] += part * length
            at, left = at + part, left - part
    return [max(1, round(n)) for n in sums]


def filled(lengths: Sequence[float], seq: int, packed: bool, multiple: int) -> Filled:
    """Fill sequences of `seq` tokens with one sample each, or with as many as fit, each padded to a multiple.

    Bridge shuffles the samples and puts each in the first pack with room (bridge data/packing/algorithms.py:121), and
    truncates samples that are longer than a sequence.
    """
    cut = [min(float(n), float(seq)) for n in lengths]
    if not packed:
        return Filled(sum(cut) / len(cut) / seq, 1.0, float(seq))
    padded = [min(-(-n // multiple) * multiple, seq) for n in cut]
    order = [*range(len(cut))] * _COPIES
    random.Random(0).shuffle(order)
    # Put each sample in the first pack with room; the last pack is left out, as it is seldom full
    packs, room = list[list[int]](), list[float]()
    for i in order:
        at = next((k for k, free in enumerate(room) if free >= padded[i]), len(room))
        if at == len(room):
            packs.append([])
            room.append(float(seq))
        packs[at].append(i)
        room[at] -= padded[i]
    packs = packs[:-1] or packs
    inside = [i for pack in packs for i in pack]
    total = sum(padded[i] for i in inside)
    return Filled(
        sum(cut[i] for i in inside) / (len(packs) * seq),
        len(inside) / len(packs),
        sum(padded[i] ** 2 for i in inside) / total,
    )
