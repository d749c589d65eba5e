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
"""One adapter for all experts of a layer; one for each; one for each whose side at the hidden state all share; or none:
only the other targets have adapters."""
TARGETS = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj", "linear_q_proj",
    "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "fc1_latent_proj",
    "fc2_latent_proj", "eh_proj", "router", "linear_q", "linear_k", "linear_v", "linear_fc1_up", "linear_fc1_gate",
)  # fmt: skip
"""Megatron's names of the modules that an adapter may be on; the last five are those of canonical LoRA."""
PARTS = {"linear_qkv": ("linear_q", "linear_k", "linear_v"), "linear_fc1": ("linear_fc1_gate", "linear_fc1_up")}
"""The names of canonical LoRA for the parts of a fused module (bridge peft/canonical_lora.py:208)."""
OF_MLP = ("linear_fc1", *PARTS["linear_fc1"], "linear_fc2")
"""The targets that routed experts have too."""


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
    """Whether experts have the rank over the experts of a token."""
    regather: bool = False
    """Whether an input that TP gathers is gathered again in backward, and not kept."""


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
    # The names in a list of names and patterns; routed experts are left out where a pattern has no star for them
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
"""The field of Bridge that names the folder of the weights."""
FOLDER = "nemo_experiments/weights"
"""The folder of imported weights where no cluster names one, from the folder of the job."""


def imported(name: str, folder: str = FOLDER) -> str:
    """The folder of a model of Hugging Face that was imported."""
    return f"{folder}/{name.replace('/', '--')}"


SOURCES = ("folder", "hf")
GROUPS = 32
"""The numbers in a list of lengths: each is the mean of a group of samples, which are sorted and equally many."""
_COPIES = 16
"""Samples of each group in a trial of packing."""


@frozen
class Samples:
    """What `data` says of the samples of a text that fine-tuning reads."""

    source: str = SOURCES[0]
    pack: bool | None = None
    """Whether a sequence holds several samples; None if the run does not say."""
    lengths: tuple[float, ...] = ()
    """Tokens of a sample in each of equally large groups, sorted; empty if the run does not say."""
    split: str | None = None
    subset: str | None = None


@frozen
class Filled:
    """What a sequence holds."""

    useful: float
    """The share of its tokens that are a sample's."""
    samples: float
    """Samples of a sequence."""
    span: float
    """Tokens of the text that a token's attention is in, in the mean over the tokens."""


def groups(counts: Mapping[int, int]) -> list[int]:
    """Sort samples, whose number `counts` has by length, into equally large groups, and return the mean of each."""
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
    """Fill sequences of `seq` tokens: one sample each, or as many as fit, each padded to a multiple.

    Bridge shuffles the samples and puts each in the first pack with room (bridge data/packing/algorithms.py:121), and
    cuts what is longer than a sequence.
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
