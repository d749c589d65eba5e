"""Derive the model and hardware facts that rules need from one recipe, for any MoE model of Bridge.

Fact names are those of moedsl/facts/facts.py; fields are those of Megatron-Core's TransformerConfig and Bridge's
providers. Facts that no field has (the vision tower) come from the stdlib, if it declares the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs import field, frozen

from moedsl.emit.read_back import Configuration, graph_modules
from moedsl.facts.facts import DELTA_NET, FLAGS, INDEXER, MIXER, OR_ZERO, PLAIN, Hardware
from moedsl.facts.symbols import HARDWARE, MODEL, POSITIONS
from moedsl.facts.values import PATTERN, stages
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import BALANCING, WEIGHTS, known, listed

Place = tuple[str, int]
"""File and line, counted from 1."""


@frozen
class Argument:
    """One argument of a Megatron-LM run."""

    flag: str
    dest: str | None
    """Megatron-LM's name for its value; None if this release has no such argument."""
    value: Any
    line: int
    holes: tuple[str, ...] = ()
    """The variables that its value needs and that nothing sets."""
    wrong: str = ""
    """Why Megatron-LM's parser refuses the value."""

    @property
    def text(self) -> str:
        value = " ".join(map(str, self.value)) if isinstance(self.value, list) else self.value
        return self.flag if isinstance(value, bool) or value is None else f"{self.flag} {value}"


@frozen(kw_only=True)
class Recipe(Configuration):
    """One recipe's fields as built, and where each was set."""

    target: str
    """The name that the user gave."""
    function: str
    file: str
    line: int
    """The line of the function's `def`."""
    hardware: Hardware
    world: int
    settled: Mapping[str, Any] = field(factory=dict)
    """The fields after Bridge's update; empty if the update did not run."""
    places: Mapping[str, tuple[Place, ...]] = field(factory=dict)
    """Field -> the line that sets it, then its callers, innermost first."""
    asked: str | None = None
    """The flex dispatcher backend that the last call of Bridge's helper named."""
    model: Mapping[str, Any] | None = None
    """The stdlib's facts of the model, for facts that no field has; None if it does not declare the model."""
    unknown: Mapping[str, Any] = field(factory=dict)
    """The attributes that the recipe sets and that are not fields of Bridge, with their values."""
    unread: tuple[str, ...] = ()
    """Descriptions of what could not be read."""
    assumed: frozenset[str] = frozenset()
    """The fields of a new provider that no line sets, so that they have their defaults."""
    arguments: Mapping[str, Any] = field(factory=dict)
    """The value of every argument of a Megatron-LM run, by name; empty for a recipe of Bridge. `accepted` is true if
    they come from a log: `validate_args` has completed them already, and rules over them have nothing to say."""
    given: tuple[Argument, ...] = ()
    """The arguments that such a run is called with."""

    @property
    def stated(self) -> dict[str, Any]:
        """The fields that a line of the recipe sets."""
        return {n: v for n, v in self.fields.items() if n not in self.assumed}

    @property
    def env(self) -> Mapping[str, Any]:
        """The recipe's environment variables."""
        return self.fields.get("env_vars") or {}


Facts = dict[str, Any]
_M = "model."
_FAMILIES = {
    "Qwen3VLMoEModelProvider": "qwen3_vl_moe",
    "Qwen35VLMoEModelProvider": "qwen3_5_moe",
    "KimiK25VLModelProvider": "kimi_k25",
    "Gemma4VLModelProvider": "gemma4",
}
"""Provider class -> `model_type`, where rules need it."""
_VARIANT = "model.experimental_attention_variant"


def model_facts(r: Recipe) -> Facts:
    """Return every known fact of the model."""
    out: Facts = {n: v for n, v in (r.model or {}).items() if n in MODEL}
    out |= {word: r.get(_M + name) for word, name in PLAIN.items() if r.get(_M + name) is not None}
    out |= {word: r.get(_M + name) or 0 for word, name in OR_ZERO.items() if r.knows(_M + name)}
    out |= {word: bool(r.get(_M + name)) for word, name in FLAGS.items() if r.knows(_M + name)}
    if r.knows(PATTERN):
        out |= _hybrid(r)
    if r.knows(_VARIANT):
        out |= _delta_nets(r)
        if r.get(_VARIANT) == "dsa":
            out |= {word: r.get(_M + name) for word, name in INDEXER.items() if r.knows(_M + name)}
        else:
            out |= dict.fromkeys(INDEXER, 0) | {"indexer_every": 1}
    if r.whole:
        out |= _whole(r)
    out.setdefault("model", "")
    out.setdefault("family", _FAMILIES.get(r.classes.get("model", ""), ""))
    return {n: v for n, v in out.items() if v is not None}


def _hybrid(r: Recipe) -> Facts:
    """Return the facts of a hybrid: its layer pattern without pipeline stages, and the MTP pattern.

    The MTP pattern follows a slash or has its own field (bridge models/hybrid/hybrid_provider.py:199-214). A mixer
    without a number of heads is twice as wide as the hidden state (core ssm/mamba_mixer.py:216).
    """
    main, *ahead = str(r.get(PATTERN) or "").split("/")
    out: Facts = {"layer_pattern": main.replace("|", ""), "hybrid": bool(main)}
    out |= {n: r.get(_M + field, 0) if main else 0 for n, field in MIXER.items() if not main or r.knows(_M + field)}
    wide, each = 2 * (r.get("model.hidden_size") or 0), out.get("mamba_head_dim") or 0
    if main and each and not out.get("mamba_heads", 1):
        out["mamba_heads"] = wide // each
    apart = "model.mtp_hybrid_override_pattern"
    if not main or ahead or r.knows(apart):
        out["mtp_pattern"] = (r.get(apart) or next(iter(ahead), "")) if main else ""
    return out


def _delta_nets(r: Recipe) -> Facts:
    """Return the facts of linear attention; `linear_every` is the period of full attention, 0 if all layers have it.

    The period comes from a number, or from a list in which 0 marks full attention (core
    models/gpt/experimental_attention_variant_module_specs.py:402-420); an irregular list has none.
    """
    if r.get(_VARIANT) != "gated_delta_net":
        return dict.fromkeys(("linear_every", *DELTA_NET), 0)
    every = r.get("model.linear_attention_freq")
    if isinstance(every, list):
        marks, first = every, every.index(0) + 1 if 0 in every else 0
        regular = first and marks == [int(i % first > 0) for i in range(1, len(marks) + 1)]
        every = first if regular else None
    facts = {word: r.get(_M + name) for word, name in DELTA_NET.items() if r.knows(_M + name)}
    return facts | {"linear_every": every if every != 1 else 0}


def _whole(r: Recipe) -> Facts:
    """Return the facts that follow from several fields."""
    heads, hidden = r.get("model.num_attention_heads"), r.get("model.hidden_size") or 0
    window, positions = r.get("model.window_size"), r.get("model.position_embedding_type")
    # dense layers by `moe_layer_freq`: a list has 0 for them; a number n means one MoE layer in n
    pattern, layers = r.get("model.moe_layer_freq"), r.get("model.num_layers") or 0
    if not r.get("model.num_moe_experts"):
        dense = layers
    elif isinstance(pattern, list):
        dense = pattern.count(0)
    else:
        dense = layers - -(-layers // pattern) if isinstance(pattern, int) and pattern > 1 else 0
    # the model's own vocabulary; one from the tokenizer would be padded (bridge training/setup.py:702)
    own_vocabulary = r.get("model.vocab_size") and not r.get("tokenizer.use_tokenizer_vocab_size")
    return {
        "query_groups": r.get("model.num_query_groups") or heads,
        "head_dim": r.get("model.kv_channels") or (hidden // heads if heads else None),
        "expert_hidden": r.get("model.moe_ffn_hidden_size") or r.get("model.ffn_hidden_size"),
        "attention": "mla" if r.get("model.multi_latent_attention") else "gqa",
        "position_embedding_type": positions if positions in POSITIONS else "rope",
        "attention_sinks": r.get("model.softmax_type") in ("learnable", "off-by-one"),
        "window": window[0] if isinstance(window, list) and window else window or 0,
        "dense_layers": dense,
        # the provider of a model with a vision tower has switches to freeze it
        "has_vision": r.get("model.freeze_vision_model") is not None,
        "vocab": r.get("model.vocab_size") if own_vocabulary else None,
    }


def hardware_facts(r: Recipe) -> Facts:
    """Return the hardware facts, under the names that expressions use."""
    facts = {n: getattr(r.hardware, n) for n in HARDWARE if hasattr(r.hardware, n)}
    return {**facts, "hardware": r.hardware.name}


def computed(r: Recipe) -> Facts:
    """Return the values of recipe_scope.COMPUTED that are known."""
    return {name: known(read(r)) for name, (read, needs) in _COMPUTED.items() if r.knows(*needs)}


def chunks(r: Recipe) -> list[str]:
    """Return the chunks of the pipeline layout as letters (E, t, m, L); empty without a layout."""
    layout = r.get("model.pipeline_model_parallel_layout")
    return [] if layout is None else stages(layout)


_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_LAYER_SPEC = "model.transformer_layer_spec"
_LAYOUT = ("model.pipeline_model_parallel_layout",)
_COMPUTED: Mapping[str, tuple[Callable[[Recipe], Any], tuple[str, ...]]] = {
    "world": (lambda r: r.world, ()),
    "model_class": (lambda r: r.classes.get("model"), ()),
    "dataset_class": (lambda r: r.classes.get("dataset"), ()),
    "asked_dispatcher": (lambda r: r.asked, ()),
    "backend_said": (lambda r: "model.moe_flex_dispatcher_backend" in r.places, ()),
    "runs_sequence_parallel": (
        lambda r: bool((r.settled if r.whole else r.fields).get("model.sequence_parallel")),
        ("model.sequence_parallel",),
    ),
    "balancings": (lambda r: listed(r.get(BALANCING)), (BALANCING,)),
    "balancing_weights": (lambda r: listed(r.get(WEIGHTS)), (WEIGHTS,)),
    "one_layer_spec": (lambda r: r.get(_LAYER_SPEC) == "<default_layer_spec>", (_LAYER_SPEC,)),
    "graphs": (
        lambda r: r.get("model.cuda_graph_impl") not in (None, "none") or "full_iteration" in graph_modules(r),
        ("model.cuda_graph_impl",),
    ),
    "expandable_segments": (
        lambda r: any("expandable_segments:true" in str(r.env.get(n, "")).lower() for n in _ALLOCATOR),
        ("env_vars",),
    ),
    "layout_stages": (lambda r: len(chunks(r)), _LAYOUT),
    "layout_layers": (lambda r: "".join(chunks(r)).count("t"), _LAYOUT),
    "pattern_segments": (
        lambda r: len(str(r.get(PATTERN)).partition("/")[0].split("|")) if r.get(PATTERN) else 0,
        (PATTERN,),
    ),
    "layout_mtp": (lambda r: "".join(chunks(r)).count("m"), _LAYOUT),
}


def splits_evenly(r: Recipe) -> Callable[[int, int], bool]:
    """Return `has_layout` for a recipe: whether Megatron can split its layers over pp stages of vpp chunks.

    Other rules check an explicit layout. Without one, embedding and loss may count as layers, or the first and the last
    stage have their own number of layers (core transformer_config.py:1997-2110). A hybrid's pattern is split elsewhere.
    """

    def splits(pp: int, vpp: int) -> bool:
        if chunks(r) or r.get(PATTERN):
            return True
        first, last = (r.get(f"model.num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
        if first is not None or last is not None:
            layers = r.get("model.num_layers") or 0
            ends = [n for n in (first, last) if n is not None]
            middle, stages_left = layers - sum(ends), pp - len(ends)
            if any(n % vpp for n in ends) or bool(middle) != bool(stages_left):
                return False
            return not stages_left or (middle % stages_left == 0 and middle // stages_left % vpp == 0)
        extra = sum(bool(r.get(f"model.account_for_{x}_in_pipeline_split")) for x in ("embedding", "loss"))
        return ((r.get("model.num_layers") or 0) + extra) % (pp * vpp) == 0

    return splits


def stdlib_facts(hf: Any, library: Library) -> Mapping[str, Any] | None:
    """Return the stdlib's facts of the model with Hugging Face id `hf`, as one flat mapping; None if there is none."""
    found = next((m for n in library.models if hf and (m := library.model(n)[0]) is not None and m.hf == hf), None)
    if found is None:
        return None
    vision = found.vision
    seen = {
        "vision_heads": vision.heads if vision else 0,
        "vision_ffn_hidden": vision.ffn_hidden if vision else 0,
        "deepstack_layers": len(vision.deepstack) if vision else 0,
        "has_vision": vision is not None,
        "hybrid": found.hybrid,
    }
    return {**attrs.asdict(found, recurse=False), "model": found.name, **seen}
