"""Read the values of a recipe that have keywords in the language, and write the recipe as a program.

`stated` reads model, machines, sequence length, batch, policies and layout. `program_text` writes them, the layout as
pins, and below them Bridge's fields as `set` statements and comments.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import asdict, evolve, field, fields, frozen

from moedsl.bridge.lint.facts import Recipe, chunks, model_facts
from moedsl.cost import pipeline
from moedsl.emit.fields import words
from moedsl.emit.read_back import adapter_of
from moedsl.facts import axes, field_words
from moedsl.facts.facts import Model
from moedsl.facts.families import PRESETS
from moedsl.facts.fine_tuning import TARGETS, Adapter, Samples, defaults
from moedsl.facts.recipes import pins
from moedsl.facts.values import PATTERN, decoder
from moedsl.lang.formatter import format_source
from moedsl.lang.printer import quote
from moedsl.rules.library import Library
from moedsl.support import secrets
from moedsl.support.source import Source
from moedsl.support.text import tokens

_IDENTITY = (
    "layers", "hidden", "heads", "query_groups", "attention", "ffn_hidden", "dense_layers", "experts", "topk",
    "expert_hidden", "shared_expert_hidden", "moe_latent", "q_lora_rank", "kv_lora_rank", "layer_pattern",
    "linear_every", "has_vision",
)  # fmt: skip
"""The model facts that a recipe's fields state exactly, and that identify its model."""


@frozen
class Stated:
    """A recipe's values for keywords. `layout` has each axis that is on, and the pipeline layout, but no number
    formats."""

    model: Model
    hardware: str
    gpus: int
    task: str
    seq: int
    batch: int
    formats: Mapping[str, str]
    """The values of the axes that are number formats, including `precision`."""
    routing: str
    frozen: tuple[str, ...]
    """The frozen parts of a vision model."""
    mtp: int | None
    """The MTP depth if it differs from the model's, else None."""
    data: str | None
    """The data path or the name of a Hugging Face dataset; None for mock data."""
    samples: Samples | None
    """How fine-tuning reads text samples; None for other data."""
    layout: Mapping[str, Any]
    adapter: Adapter | None
    """The adapter that is trained on frozen weights; None if there is none."""
    unknown: tuple[str, ...]
    """The axes, and `adapter`, whose value has no keyword."""
    is_new: bool = False
    """Whether the program declares the model itself."""


def stated(r: Recipe, model: Model) -> Stated:
    """Read a recipe's keyword values, with its model known, from its fields after Bridge's update."""
    known = words(evolve(r, fields={**r.fields, **r.settled}))
    values = {a.name: axes.json_value(known[a.name]) for a in axes.AXES if a.name in known}
    enums = {a.name: a.words for a in axes.AXES if a.kind == "enum"}
    values = {n: v for n, v in values.items() if n not in enums or v in enums[n]}  # lint knows more dispatchers
    formats = {n: v for n, v in values.items() if axes.BY_NAME[n].is_format}
    task = known.get("task", "pretrain")
    if model.vision is not None and task != "peft":
        # all image datasets of Bridge are for fine-tuning, so only the function's name tells the task
        task = "sft" if "_sft_" in r.function else "pretrain"
    depth = r.get("model.mtp_num_layers") or 0
    # The data and its samples: the path of its text, folder or images, or a Hugging Face dataset. A run can name one of
    # Bridge's preset datasets or ORG/NAME. With a NullTokenizer the dataset is ignored: a benchmark may have one that
    # it cannot read
    text, folder, images = (r.get(f"dataset.{n}") for n in ("data_path", "dataset_root", "path"))
    own, other, subset, split = (
        r.get(f"dataset.hf_dataset.{n}") for n in ("dataset_name", "path_or_dataset", "subset", "split")
    )
    hub, packs = None, bool(r.get("dataset.enable_offline_packing"))
    samples = Samples(pack=packs) if folder else None
    if not isinstance(subset, list) and r.get("tokenizer.tokenizer_type") != "NullTokenizer":
        hub = own if own in PRESETS else other if "/" in str(other) else None
        samples = Samples("hf", packs, split=split, subset=subset) if hub else samples
    data = text or folder or images or hub
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    adapter = adapter_of(r)
    without_word = [a.name for a in axes.AXES if a.name not in values]
    return Stated(
        model=model, hardware=r.hardware.name, gpus=r.world, task=task, seq=known["seq"], batch=known["global_batch"],
        formats=formats, routing=known.get("routing", "natural"), frozen=tuple(sorted(known.get("vlm", ()))),
        mtp=depth if depth != model.mtp_layers else None, data=data if isinstance(data, str) else None, samples=samples,
        layout={n: v for n, v in values.items() if n not in formats and axes.BY_NAME[n].is_on(v)} | _pipeline(r),
        adapter=adapter,
        unknown=(*without_word, *(["adapter"] if adapter is None and "peft" in r.classes else [])),
    )  # fmt: skip


def model_of(r: Recipe, library: Library) -> Model | None:
    """Find the declared model with the recipe's Hugging Face id, or its tokenizer's; without one, search all models.

    None if the facts of each candidate differ from the recipe's.
    """
    models, facts = declared(library), model_facts(evolve(r, model=None))
    if r.arguments and not facts.get("dense_layers"):  # no layer has this width
        facts.pop("ffn_hidden", None)
    id = r.get("model.hf_model_id") or r.get("tokenizer.tokenizer_model")
    named = [m for m in models if m.hf == id]
    equal = [m for m in named or models if not any(differing_facts(m, facts))]
    return min(equal, key=lambda m: m.mtp_layers != (r.get("model.mtp_num_layers") or 0), default=None)


def declaration(r: Recipe, library: Library) -> Model | None:
    """Make the model of a Megatron-LM run that no declared model equals, to be declared in its program.

    None for another recipe, and for a model without experts.
    """
    facts = {n: v for n, v in model_facts(evolve(r, model=None)).items() if n in {a.name for a in fields(Model)}}
    if not r.arguments or not facts.get("experts"):
        return None
    hf = str(r.get("tokenizer.tokenizer_model") or "")
    kin = _of_tokenizer(hf, library)
    name = "m_" + re.sub(r"\W+", "_", os.path.basename(r.file).partition(".")[0], flags=re.ASCII).strip("_").lower()
    family = kin.family if kin else "deepseek_v3" if facts["attention"] == "mla" else "mixtral"
    own: dict[str, Any] = {
        "name": name,
        "hf": hf if "/" in hf and hf[:1] not in "/.$" else f"local/{name}",
        "family": family,
        "vocab": vocabulary(r, library) or ASSUMED_VOCAB,
        "max_seq": r.arguments.get("max_position_embeddings") or facts["max_seq"],
        "routing_groups": r.get("model.moe_router_num_groups") or 1,
        "topk_groups": r.get("model.moe_router_group_topk") or 1,
    }
    return Model(**{**facts, **own})


def vocabulary(r: Recipe, library: Library) -> int | None:
    """Return the vocabulary that arguments state, or that of the declared model with the same tokenizer."""
    kin = _of_tokenizer(str(r.get("tokenizer.tokenizer_model") or ""), library)
    return r.get("model.vocab_size") or (kin.vocab if kin else None)


def _of_tokenizer(name: str, library: Library) -> Model | None:
    return next((m for m in declared(library) if m.hf == name), None)


ASSUMED_VOCAB = 128 << 10
"""The vocabulary of a model whose arguments do not state it."""


def block(m: Model) -> list[str]:
    """Write the declaration of a model: the facts that differ from their defaults."""
    facts = {a.name: getattr(m, a.name) for a in fields(Model) if a.name != "name" and getattr(m, a.name) != a.default}
    texts = ("hf", "layer_pattern", "mtp_pattern")
    lines = [f"{n} {quote(v) if n in texts else str(v).lower()}" for n, v in facts.items()]
    return [f"model {m.name} {{", *lines, "}"]


def declared(library: Library) -> list[Model]:
    """Return every model that a library declares."""
    return [m for m in (library.model(n)[0] for n in library.models) if m is not None]


def differing_facts(m: Model, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a model's facts that differ from the recipe's."""
    own = {"has_vision": m.vision is not None}
    return (n for n in _IDENTITY if n in facts and own.get(n, getattr(m, n, None)) != facts[n])


def _pipeline(r: Recipe) -> dict[str, str]:
    """Return the pipeline layout if layers do not split evenly, from Megatron's layout text or from the fields in its
    place.

    These count embedding and loss as layers, or give the first and the last stage their own number of layers (core
    transformer/transformer_config.py:1997-2110).
    """
    pattern = decoder(r.get(PATTERN))
    if pattern is not None:
        return {"pipeline_layout": pattern} if "|" in pattern else {}
    pp, layers = r.get("model.pipeline_model_parallel_size") or 1, r.get("model.num_layers") or 0
    vpp = r.get("model.virtual_pipeline_model_parallel_size") or 1
    first, last = (r.get(f"model.num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    extra = [bool(r.get(f"model.account_for_{n}_in_pipeline_split")) for n in ("embedding", "loss")]
    counts: list[int] = []  # the layers of each chunk; empty for an even split
    if pp > 1 and (first is not None or last is not None):
        own = {i: n for i, n in ((0, first), (pp - 1, last)) if n is not None}
        rest = (layers - sum(own.values())) // max(pp - len(own), 1)
        counts = [own.get(i % pp, rest) // vpp for i in range(pp * vpp)]
    elif pp > 1 and any(extra):
        counts = [(layers + sum(extra)) // (pp * vpp)] * (pp * vpp)
        counts = [counts[0] - extra[0], *counts[1:-1], counts[-1] - extra[1]]
    ahead = "m" * (r.get("model.mtp_num_layers") or 0) + "L"
    made = ["E" * (i == 0) + "t" * n + ahead * (i == len(counts) - 1) for i, n in enumerate(counts)]
    letters = chunks(r) or made
    return {"pipeline_layout": pipeline.compressed(letters)} if letters else {}


_FLAGS = {True: "on", False: "off"}
MARK = "by `moedsl import`"


@frozen
class Below:
    """The statements below the keywords: fields to `set`, environment variables, and comments on the rest."""

    sets: Mapping[str, Any] = field(factory=dict)
    comments: tuple[str, ...] = ()
    env: Mapping[str, Any] = field(factory=dict)
    """Environment variables that a plan would not set to these values."""
    allow: str | None = None
    """A rule that the recipe breaks and the program allows."""


def program_text(s: Stated, origin: str, below: Below) -> str:
    """Write the program, formatted as by `moedsl fmt`: keywords, layout, and the statements in `below`."""
    formats = dict(s.formats)
    precision = formats.pop("precision", None)
    lines = [f"# Written from {origin} {MARK}.", *(block(s.model) if s.is_new else ())]
    lines += [f"model {s.model.name}", f"{s.hardware} x {s.gpus}"]
    lines += [f"seq {tokens(s.seq)}", f"batch {s.batch}"]
    lines += [f"precision {precision}"] if precision else []
    lines += [f"task {s.task}"] if s.task != "pretrain" else []
    if a := s.adapter:
        base = defaults(a.method)
        own = {n: v for n, v in asdict(a, recurse=False).items() if n != "method" and v != base[n]}
        if "targets" in own:
            own["targets"] = [t for t in TARGETS if t in a.targets]
        options = (f"{n}={_FLAGS[v] if isinstance(v, bool) else axes.written(v)}" for n, v in own.items())
        lines.append(" ".join([f"adapter {a.method}", *options]))
    lines += [f"vlm {' '.join(s.frozen)}"] if s.frozen else []
    if s.data:
        words = ["data", *(["hf"] if s.samples and s.samples.source == "hf" else []), quote(s.data)]
        if s.samples:
            options = {"split": s.samples.split, "subset": s.samples.subset}
            words += [f"pack={_FLAGS[bool(s.samples.pack)]}", *(f"{n}={quote(v)}" for n, v in options.items() if v)]
        lines.append(" ".join(words))
    lines += [f"routing {s.routing}"] if s.routing != "natural" else []
    lines += ["throughput first", ""]
    lines += layout_pins(s).splitlines()
    lines += [f"pin {' '.join(f'{n}={v}' for n, v in formats.items())}"] if formats else []
    if below.allow:
        lines.append(f'allow {below.allow} because "the layout of the recipe"')
    if below.sets:
        lines += ["", "# Fields that the recipe sets and a plan would not"]
        lines += field_words.written({path: literal(value) for path, value in below.sets.items()})
    if below.env:
        lines += ["", "rules recipe {"]
        for n, v in below.env.items():
            lines += [f"env {n} = {literal(v)}", 'because "the recipe sets it"', f"cite ours {quote(n)}"]
        lines.append("}")
    if below.comments:
        lines += ["", "# Of the recipe, but no statement:", *(f"#   {line}" for line in below.comments)]
    made, found = format_source(Source("recipe.moe", "\n".join(lines) + "\n"))
    assert made is not None, found
    return made


def layout_pins(s: Stated) -> str:
    """Write the layout as pins; an axis that the recipe leaves off is pinned off."""
    off = {a.name: a.decode(a.off) for a in axes.AXES if not a.is_format and a.name not in s.unknown}
    return pins(off | dict(s.layout))


def literal(value: Any) -> str:
    """Write a JSON value as a literal of the language."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, str):
        return quote(value)
    return "none" if value is None else json.dumps(value)


def shown(path: str, value: Any) -> str:
    """Format a field and its value for a comment, without the value of a secret, because the program goes into a file.

    A `revision` is not checked: a commit hash looks like a secret and is none.
    """
    text = literal(value) if is_literal(value) else str(value)
    own = {n: v for n, v in value.items() if n != "revision"} if isinstance(value, Mapping) else text
    return f"{path} = {'(a secret)' if is_secret(path.rpartition('.')[2], str(own)) else text}"


def is_secret(name: str, text: str) -> bool:
    """Whether a field or a variable looks like a secret by its name or its value."""
    return secrets.value_kind(text) is not None or secrets.is_secret_name(name)


def is_literal(value: Any) -> bool:
    """Whether the language can write a value: a scalar or a list of scalars, but not NaN, infinity or the `<Class>` of
    an object."""
    if isinstance(value, list):
        return all(is_literal(v) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, str) and value[:1] != "<")
