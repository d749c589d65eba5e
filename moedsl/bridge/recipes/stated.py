"""Read what a program can say of a recipe: its model, machines, length, batch and policies, and its layout as pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.bridge.lint.facts import chunks, model_facts
from moedsl.bridge.lint.recipe import Recipe
from moedsl.cost import pipeline
from moedsl.emit.fields import words
from moedsl.emit.read_back import adapter_of
from moedsl.facts import axes
from moedsl.facts.adapter import Adapter
from moedsl.facts.facts import Model
from moedsl.facts.families import PRESETS
from moedsl.facts.samples import Samples
from moedsl.facts.values import PATTERN, decoder
from moedsl.rules.library import Library

_IDENTITY = (
    "layers", "hidden", "heads", "query_groups", "attention", "ffn_hidden", "dense_layers", "experts", "topk",
    "expert_hidden", "shared_expert_hidden", "moe_latent", "q_lora_rank", "kv_lora_rank", "layer_pattern",
    "linear_every", "has_vision",
)  # fmt: skip
"""Facts that a recipe's fields state exactly."""
_ENUMS = {a.name: a.words for a in axes.AXES if a.kind == "enum"}
_HUB = "dataset.hf_dataset"
_SPLIT = "model.account_for_{}_in_pipeline_split"


@frozen
class Stated:
    """The words of a recipe. `layout` has each axis that is on, and the pipeline layout, but no format of numbers."""

    model: Model
    hardware: str
    gpus: int
    task: str
    seq: int
    batch: int
    formats: Mapping[str, str]
    """The axes whose words are formats of numbers, precision among them."""
    routing: str
    frozen: tuple[str, ...]
    """The parts of a vision model that do not learn."""
    mtp: int | None
    """The depth of multi-token prediction if it is not the model's own."""
    data: str | None
    """The path of the data, or the name of a data set of Hugging Face; None for mock data."""
    samples: Samples | None
    """How fine-tuning reads a text; None for other data."""
    layout: Mapping[str, Any]
    adapter: Adapter | None
    """What it trains if the weights are frozen."""
    unknown: tuple[str, ...]
    """The axes whose value has no word."""


def stated(r: Recipe, model: Model) -> Stated:
    """Read the words of a recipe whose model is known, as Bridge's update leaves them."""
    known = words(evolve(r, fields={**r.fields, **r.settled}))
    values = {a.name: axes.json_value(known[a.name]) for a in axes.AXES if a.name in known}
    values = {n: v for n, v in values.items() if n not in _ENUMS or v in _ENUMS[n]}  # lint knows more dispatchers
    depth = r.get("model.mtp_num_layers") or 0
    return Stated(
        model=model,
        hardware=r.hardware.name,
        gpus=r.world,
        task=_task(r, model, known.get("task", "pretrain")),
        seq=known["seq"],
        batch=known["global_batch"],
        formats={n: v for n, v in values.items() if axes.BY_NAME[n].is_format},
        routing=known.get("routing", "natural"),
        frozen=tuple(sorted(known.get("vlm", ()))),
        mtp=depth if depth != model.mtp_layers else None,
        data=_path(r),
        samples=_samples(r),
        layout={n: v for n, v in values.items() if not axes.BY_NAME[n].is_format and axes.BY_NAME[n].is_on(v)}
        | _pipeline(r),
        adapter=(adapter := adapter_of(r)),
        unknown=(
            *(a.name for a in axes.AXES if a.name not in values),
            *(["adapter"] if adapter is None and "peft" in r.classes else []),
        ),
    )


def _task(r: Recipe, model: Model, by_data: str) -> str:
    """The task by the data; every image dataset of Bridge's is one for fine-tuning, so there the name says it."""
    return by_data if model.vision is None or by_data == "peft" else "sft" if "_sft_" in r.function else "pretrain"


def model_of(r: Recipe, library: Library) -> Model | None:
    """The declared model with the recipe's Hugging Face id, which may be its tokenizer's, else with its architecture;
    None if its facts differ."""
    models, said = declared(library), model_facts(evolve(r, model=None))
    id = r.get("model.hf_model_id") or r.get("tokenizer.tokenizer_model")
    named = [m for m in models if m.hf == id]
    return next((m for m in named or models if not any(differing_facts(m, said))), None)


def declared(library: Library) -> list[Model]:
    """Every model of a library."""
    return [m for m in (library.model(n)[0] for n in library.models) if m is not None]


def differing_facts(m: Model, said: Mapping[str, Any]) -> Iterator[str]:
    """The facts of a model that a recipe states otherwise."""
    own = {"has_vision": m.vision is not None}
    return (n for n in _IDENTITY if n in said and own.get(n, getattr(m, n, None)) != said[n])


def _path(r: Recipe) -> str | None:
    """The data of a recipe: the path of its text, of its folder, or of its images, or the name of its data set."""
    paths = (r.get(f"dataset.{n}") for n in ("data_path", "dataset_root", "path"))
    found = next((p for p in paths if p), _hub(r))
    return found[0] if isinstance(found, list) and len(found) == 1 else found if isinstance(found, str) else None


def _hub(r: Recipe) -> str | None:
    """The data set of Hugging Face that a recipe reads, if a run can name it: one of Bridge's own, or ORG/NAME.

    A benchmark may have one that it cannot read: it has no tokenizer.
    """
    own, other, subset = (r.get(f"{_HUB}.{n}") for n in ("dataset_name", "path_or_dataset", "subset"))
    found = own if own in PRESETS else other if "/" in str(other) else None
    return None if isinstance(subset, list) or r.get("tokenizer.tokenizer_type") == "NullTokenizer" else found


def _samples(r: Recipe) -> Samples | None:
    packs = bool(r.get("dataset.enable_offline_packing"))
    if _hub(r):
        return Samples("hf", packs, split=r.get(f"{_HUB}.split"), subset=r.get(f"{_HUB}.subset"))
    return Samples(pack=packs) if r.get("dataset.dataset_root") else None


def _pipeline(r: Recipe) -> dict[str, str]:
    """The pipeline layout, if layers do not split evenly: Megatron's own text, or what its other fields amount to."""
    pattern = decoder(r.get(PATTERN))
    if pattern is not None:
        return {"pipeline_layout": pattern} if "|" in pattern else {}
    counts = _counts(r)
    last = len(counts) - 1
    ahead = "m" * (r.get("model.mtp_num_layers") or 0) + "L"
    words = chunks(r) or ["E" * (i == 0) + "t" * n + ahead * (i == last) for i, n in enumerate(counts)]
    return {"pipeline_layout": pipeline.compressed(words)} if words else {}


def _counts(r: Recipe) -> list[int]:
    """The layers of each chunk, if embedding and loss count as layers or the ends have a number of their own (core
    transformer/transformer_config.py:1997-2110); empty for an even split."""
    pp, layers = r.get("model.pipeline_model_parallel_size") or 1, r.get("model.num_layers") or 0
    vpp = r.get("model.virtual_pipeline_model_parallel_size") or 1
    first, last = (r.get(f"model.num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    if pp > 1 and (first is not None or last is not None):
        own = {i: n for i, n in ((0, first), (pp - 1, last)) if n is not None}
        rest = (layers - sum(own.values())) // max(pp - len(own), 1)
        return [own.get(i % pp, rest) // vpp for i in range(pp * vpp)]
    extra = [bool(r.get(_SPLIT.format(n))) for n in ("embedding", "loss")]
    if pp == 1 or not any(extra):
        return []
    counts = [(layers + sum(extra)) // (pp * vpp)] * (pp * vpp)
    return [counts[0] - extra[0], *counts[1:-1], counts[-1] - extra[1]]
