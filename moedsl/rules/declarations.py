"""Read the facts of a ``model`` or ``hardware`` declaration and the constants of a ``calibration``.

Each is checked for its name, type and unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import NOTHING, astuple, fields

from moedsl.facts import calibration, facts
from moedsl.facts.calibration import UNITS as CONSTANT_UNITS
from moedsl.facts.calibration import Constant, Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.symbols import ARCHS, ATTENTION, POSITIONS, QK_NORMS
from moedsl.lang import ast
from moedsl.rules import blocks
from moedsl.rules.blocks import Kind
from moedsl.rules.evaluators import number
from moedsl.support.diagnostics import Diagnostic, Instead, error, suggest

_WORDS: Mapping[tuple[type, str], tuple[str, ...]] = {
    (Model, "attention"): ATTENTION,
    (Model, "position_embedding_type"): POSITIONS,
    (Model, "qk_norm_over"): QK_NORMS,
    (Hardware, "arch"): ARCHS,
    (Hardware, "host"): ("x86", "grace"),
    (Constant, "unit"): tuple(CONSTANT_UNITS),
}
UNITS: Mapping[tuple[type, str], tuple[str, ...]] = {
    **{
        (Hardware, name): ("GB", "GiB", "TB", "TiB")
        for name in ("memory", "visible", "torch_total", "node_memory", "host_memory")
    },
    **{(Hardware, name): ("GB/s", "TB/s") for name in ("hbm", "nvlink", "network", "host_link")},
}
"""The units that a fact may have, if it needs one."""
_RATES = ("bf16", "fp8", "mxfp8", "nvfp4")
"""The precisions whose dense rate a declaration of hardware may state."""
_RATE_UNITS = ("TFLOPS", "PFLOPS")
"""The units of a rate; a rate without a unit is in TFLOPS."""
MOST_LAYERS, MOST_MTP, LARGEST = 10_000, 100, 1 << 31
MOST_VISION, MOST_PATCH = 1 << 16, 64
"""The limits on layers and widths, above which a number is a typo."""
LONGEST_PATTERN = 500
"""Maximum layers of a hybrid, because the search for the stages' cuts tries every pair of layers for every pipeline."""
LETTERS = "M*E-"
"""The letters of a hybrid's layer_pattern (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
DELTA_NETS = ("qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text")
"""Families that Bridge builds with gated delta nets and experts (bridge models/qwen/qwen3_next_bridge.py:85,
models/qwen/qwen35_bridge.py:61)."""
_FILLED = {"name", "query_norm", "sources", "source", "constants", "based_on"}


_FACTS_ELSEWHERE = {
    **dict.fromkeys(("kv_heads", "num_kv_heads", "num_key_value_heads", "kv_groups"), "query_groups"),
    **dict.fromkeys(("num_heads", "n_heads", "attention_heads"), "heads"),
    **dict.fromkeys(("hidden_dim", "d_model"), "hidden"),
    **dict.fromkeys(("n_layers", "num_hidden_layers"), "layers"),
    **dict.fromkeys(("ffn", "ffn_dim", "intermediate_size"), "ffn_hidden"),
    **dict.fromkeys(("expert_ffn", "moe_intermediate_size"), "expert_hidden"),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts"), "experts"),
    **dict.fromkeys(("top_k", "num_experts_per_tok"), "topk"),
    **dict.fromkeys(("max_position_embeddings", "max_seq_len"), "max_seq"),
    "head_size": "head_dim", "vocab_size": "vocab", "num_nextn_predict_layers": "mtp_layers",
}  # fmt: skip
"""The facts of a model by their names in papers and in Hugging Face configurations."""


def _fact_like(name: str, known: list[str]) -> tuple[str, ...]:
    """Suggest the fact with that name in Megatron or elsewhere, else a fact with a similar name."""
    megatron = {field.removeprefix("model."): fact for fact, field in facts.FIELDS.items()}
    other = (megatron | _FACTS_ELSEWHERE).get(name.lower())
    return (Instead(f"did you mean `{other}`?", other),) if other in known else suggest(name, known)


def read_facts(
    cls: type, title: str, entries: Iterable[Any], filled: dict[str, Any], name: ast.Name, found: list[Diagnostic]
) -> Any | None:
    """Read a block into an instance of a class of facts; return None, with diagnostics in `found`, if it is wrong.

    `filled` are the facts that no block states, `title` is the block's name in messages, and `name` where the block is.
    """
    before, types = len(found), {f.name: f for f in fields(cls)}
    values, stated = dict(filled), set[str]()
    inside = (e for e in entries if isinstance(e, ast.FactEntry))
    for e in blocks.facts(inside, [n for n in types if n not in _FILLED], title, found, _fact_like):
        stated.add(e.name.id)
        value = _value(cls, e, str(types[e.name.id].type), found)
        if value is not None:
            values[e.name.id] = value
    missing = [n for n, f in types.items() if f.default is NOTHING and n not in values and n not in stated]
    if missing:
        help = ("`moedsl models add config.json` writes them all",) if cls is Model else ()
        text = ", ".join(missing)
        found.append(error("check.missing_fact:facts", name.span, title=title, missing=text, help=help))
    return cls(**values) if len(found) == before else None


def _value(cls: type, e: ast.FactEntry, type_: str, found: list[Diagnostic]) -> Any | None:
    """Read one fact by the type of its field."""
    name, value = e.name.id, e.value
    if type_ == "Vision | None":
        return read_facts(Vision, "a vision tower", value if isinstance(value, tuple) else (), {}, e.name, found)
    if type_.startswith("Mapping"):
        pairs = [v for v in value if isinstance(v, ast.Binding)] if isinstance(value, tuple) else []
        rates = {b.name.id: _rate(b, found) for b in pairs}
        if not pairs:
            found.append(error("check.type:rates", e.name.span, name=name))
        elif "bf16" not in rates:
            found.append(error("check.missing_fact:bf16", e.name.span, name=name))
        return rates or None
    if isinstance(value, tuple):
        found.append(error("check.type:one-value", e.name.span, name=name))
        return None
    kind, units, words = _KINDS[type_], UNITS.get((cls, name), ()), _WORDS.get((cls, name), ())
    read = kind.read(value)
    if read is None:
        found.append(error("check.type:kind", value.span, name=name, wanted=kind.takes))
    elif units and isinstance(value, ast.Number) and value.unit not in units:
        found.append(error("check.unit:needed", value.span, name=name, units=", ".join(units)))
    elif not units and isinstance(value, ast.Number) and value.unit and cls is not Constant:
        found.append(error("check.unit:none", value.span, name=name))  # the units of a constant follow from its own
    elif words and read not in words:
        help = suggest(read, [*words])
        found.append(error("check.unknown_word:one-of", value.span, name=name, words=", ".join(words), help=help))
    else:
        return read
    return None


def _rate(b: ast.Binding, found: list[Diagnostic]) -> float:
    """Read the dense rate of one precision, in TFLOPS."""
    name, value = b.name.id, b.value
    if name not in _RATES:
        help = blocks.suggest_or_list(name, _RATES)
        found.append(error("check.unknown_word:rate", b.name.span, name=name, help=help))
    elif not isinstance(value, ast.Number):
        found.append(error("check.type:kind", value.span, name=name, wanted="a number"))
    elif value.unit is not None and value.unit not in _RATE_UNITS:
        found.append(error("check.unit:rate", value.span, name=name, units=" or ".join(_RATE_UNITS)))
    else:
        return number(value) / (1e12 if value.unit else 1)
    return 0.0


_KINDS = {
    "int": Kind(blocks.whole, "a whole number"),
    "float": Kind(lambda e: float(number(e)) if isinstance(e, ast.Number) else None, "a number"),
    "bool": Kind(lambda e: e.value if isinstance(e, ast.Bool) else None, "true or false"),
    "str": Kind(blocks.word_or_string, "a word or a string"),
    "tuple[int, ...]": Kind(blocks.whole_numbers, "a list of numbers"),
}
"""The kind of value that a fact takes, by the type of its field."""


def model(decl: ast.ModelDecl) -> tuple[Model | None, list[Diagnostic]]:
    """Read the model of a declaration, and check that its facts agree."""
    found: list[Diagnostic] = []
    made = read_facts(Model, "a model", decl.facts, {"name": decl.name.id}, decl.name, found)
    if made is not None:
        for check in (_contradictions, _of_windows, _of_hybrid, _of_delta_nets):
            found += (error("check.model:facts", decl.name.span, model=made.name, wrong=w) for w in check(made))
    return made, found


def _contradictions(m: Model) -> list[str]:
    """List contradictions between a model's facts, and missing facts of its indexer."""
    groups, v = m.routing_groups, m.vision
    least = min(m.layers, m.hidden, m.vocab, m.heads, m.query_groups, m.head_dim, m.experts, m.topk, m.expert_hidden)
    largest = max(size for size in astuple(m, recurse=False) if isinstance(size, int))
    limits = f"{MOST_LAYERS} layers, {MOST_MTP} MTP layers, and {LARGEST} of anything"
    small = m.layers <= MOST_LAYERS and m.mtp_layers <= MOST_MTP and largest <= LARGEST
    # Products of larger sizes of a vision tower exceed 64 bits
    tower = v is None or (
        all(1 <= getattr(v, name) <= MOST_PATCH for name in _PATCH)
        and all(0 <= size < MOST_VISION for size in astuple(v, recurse=False) if isinstance(size, int))
    )
    others = f"{', '.join(_PATCH)} are from 1 to {MOST_PATCH}, others below {MOST_VISION}"
    latent = (m.kv_lora_rank, m.qk_nope_dim, m.qk_rope_dim, m.v_head_dim)
    heads = least < 1 or m.heads % m.query_groups == 0
    commit = not m.revision or re.fullmatch("[0-9a-f]{40}", m.revision)
    # qk_norm_over needs a norm of GQA; all_heads needs as many key heads as query heads
    norm = m.qk_norm_over == "each_head" or (m.qk_norm and m.attention == "gqa")
    wide = "qk_norm_over all_heads needs as many query groups as heads: the norm of the keys is as wide as all heads"
    indexer = ("indexer_heads", "indexer_dim", "indexer_topk")
    missing = [n for n in indexer if not getattr(m, n)]
    own = "each dense layer needs an indexer of its own: indexer_leading is less than dense_layers"
    divided = groups >= 1 and m.experts % groups == 0
    return _failed(
        (m.topk <= m.experts, f"topk {m.topk} is more than its {m.experts} experts"),
        (divided, f"{m.experts} experts do not divide evenly into {groups} routing groups"),
        (1 <= m.topk_groups <= groups, f"topk_groups {m.topk_groups} is not one of its {groups} routing groups"),
        (m.attention != "mla" or all(latent), "MLA needs kv_lora_rank, qk_nope_dim, qk_rope_dim and v_head_dim"),
        (least >= 1, "sizes are at least 1"),
        (heads, f"{m.heads} heads do not divide evenly into {m.query_groups} query groups"),
        (small, f"a size is out of range: at most {limits}"),
        (m.dense_layers <= m.layers, f"{m.dense_layers} dense layers are more than its {m.layers} layers"),
        (commit, "revision is a commit, 40 hexadecimal digits: a branch or a tag may move"),
        (tower, f"a size of its vision is out of range: {others}"),
        (not m.attention_gate or m.attention == "gqa", "attention_gate needs attention gqa: latent attention has none"),
        (not m.shared_expert_gate or m.shared_expert_hidden, "shared_expert_gate needs shared_expert_hidden"),
        (norm, f"qk_norm_over {m.qk_norm_over} needs qk_norm and attention gqa"),
        (m.qk_norm_over != "all_heads" or m.heads == m.query_groups, wide),
        (not m.mtp_dense or (m.mtp_layers and not m.hybrid), "mtp_dense needs mtp_layers, and no layer_pattern"),
        (len(missing) in (0, len(indexer)), f"an indexer needs {', '.join(missing)}"),
        (m.indexer_every >= 1, "indexer_every is at least 1: a layer with an indexer and those that share its keys"),
        (m.sparse or m.indexer_every == 1, "indexer_every needs an indexer"),
        (m.indexer_every == 1 or m.indexer_leading >= m.dense_layers, own),
        (m.attention == "mla" or not m.sparse, "an indexer needs attention mla: only latent attention can be sparse"),
    )


_PATCH = ("patch", "temporal_patch", "merge", "in_channels")


def _of_windows(m: Model) -> list[str]:
    """List errors in the facts of layers whose window has another shape."""
    if not m.windowed:
        said = _has(m, "window_leading", "window_first", "window_sinks", "full_head_dim")
        ways = "window_heads, window_query_groups or full_query_groups"
        return [f"{', '.join(said)}: only for windows of another shape, which need {ways}"] if said else []
    own = ", ".join(_has(m, "window_heads", "window_query_groups", "full_query_groups"))
    groups = (
        ("query groups of windows", m.window_heads or m.heads, m.window_query_groups or m.query_groups),
        ("query groups of full attention", m.heads, m.full_query_groups or m.query_groups),
    )
    return _failed(
        (m.window and m.window_every > 1, f"{own}: needs window, and window_every of 2 or more"),
        (m.attention == "gqa", f"{own}: needs attention gqa"),
        *((n and heads % n == 0, f"{heads} heads do not divide evenly into {n} {name}") for name, heads, n in groups),
        (not m.mtp_layers, "MTP of a model whose windows have another shape is not supported"),
    )


def _of_hybrid(m: Model) -> list[str]:
    """List errors in the facts that only a hybrid has, and in those that its pattern needs.

    A hybrid's only attention is Megatron's `*`, over the whole sequence.
    """
    repeated = ["mtp_repeated needs mtp_layers"] if m.mtp_repeated and not m.mtp_layers else []
    if not m.hybrid:
        said = _has(m, "mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups", "mtp_pattern")
        return [f"{', '.join(said)}: only for a hybrid, which needs a layer_pattern", *repeated] if said else repeated
    both = m.layer_pattern + m.mtp_pattern
    odd = sorted(set(both) - set(LETTERS))
    # Mamba's groups and heads, as core ssm/mamba_mixer.py:239-272 checks them
    mixer = "M" not in both or min(m.mamba_heads, m.mamba_head_dim, m.mamba_state, m.mamba_groups) >= 1
    divides = "M" not in both or not mixer or m.mamba_heads % m.mamba_groups == 0
    return _failed(
        (not odd, f"{''.join(odd)} is not a letter of a pattern: M Mamba-2, * attention, E experts, - dense MLP"),
        (len(m.layer_pattern) == m.layers, f"a pattern of {len(m.layer_pattern)} layers, but there are {m.layers}"),
        (m.layers <= LONGEST_PATTERN, f"a pattern of {m.layers} layers; {LONGEST_PATTERN} is the limit"),
        ("E" in m.layer_pattern, "no layer of its pattern has experts"),
        (not m.dense_layers, "dense_layers cannot be combined with a pattern, where - marks the dense layers"),
        (m.attention == "gqa", "the * of a pattern is GQA; latent attention has no letter"),
        (not m.window, "the * of a pattern attends to the whole sequence: no window"),
        (m.vision is None, "a hybrid with a vision tower is not supported"),
        (m.family == "nemotron_h", f"Bridge builds hybrids of the family nemotron_h, not {m.family}"),
        (bool(m.mtp_pattern) == bool(m.mtp_layers), "mtp_layers and mtp_pattern go together"),
        *((False, text) for text in repeated),
        (mixer, "an M needs mamba_heads, mamba_head_dim, mamba_state and mamba_groups"),
        (divides, f"{m.mamba_heads} Mamba heads do not divide evenly into {m.mamba_groups} groups"),
    )


_DELTA_NET = ("linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim")


def _of_delta_nets(m: Model) -> list[str]:
    """List errors in the facts that gated delta nets need (core transformer/transformer_config.py:1346-1371), and in
    what Bridge builds with them; MTP is built like the last layer (core models/gpt/gpt_layer_specs.py:767-769)."""
    if not m.linear:
        said = _has(m, *_DELTA_NET)
        return [f"{', '.join(said)}: only for gated delta nets, which need linear_every"] if said else []
    missing = [n for n in _DELTA_NET if getattr(m, n) < 1]
    every, keys, values = m.linear_every, m.linear_key_heads, m.linear_value_heads
    pattern = "linear_every cannot be combined with a layer_pattern, which has no letter for a gated delta net"
    return _failed(
        (not missing, f"a gated delta net needs {', '.join(missing)}"),
        (missing or values % keys == 0, f"{values} value heads are not a multiple of {keys} key heads (linear_*)"),
        (every > 1, "linear_every is more than 1: it counts a layer of full attention and those before it"),
        (every <= m.layers, f"linear_every {every}: none of its {m.layers} layers has full attention"),
        (not m.mtp_layers or m.layers % every == 0, "MTP repeats the last layer, which must have full attention"),
        (m.attention == "gqa", "full attention with gated delta nets is GQA"),
        (not m.window, "full attention with gated delta nets sees the whole sequence: no window"),
        (not m.dense_layers, "each layer of a model with gated delta nets has experts: no dense_layers"),
        (not m.hybrid, pattern),
        (m.family in DELTA_NETS, f"Bridge builds gated delta nets of {', '.join(DELTA_NETS)}, not {m.family}"),
    )


def _has(m: Model, *facts: str) -> list[str]:
    return [n for n in facts if getattr(m, n)]


def _failed(*asked: tuple[Any, str]) -> list[str]:
    """Return the texts of the conditions that do not hold."""
    return [text for holds, text in asked if not holds]


def hardware(
    decl: ast.HardwareDecl, reached: Callable[[str], tuple[Constants | None, list[Diagnostic]]], based_on: str = ""
) -> tuple[Hardware | None, list[Diagnostic]]:
    """Read the hardware of a declaration, with the source of each fact and its architecture's constants (`reached`)."""
    arch = next((e.value.id for e in decl.facts if e.name.id == "arch" and isinstance(e.value, ast.Name)), "")
    constants, wrong = reached(arch)
    found = [*wrong]
    sources = {e.name.id: cited(e) for e in decl.facts if e.cites}
    filled = {"name": decl.name.id, "sources": sources, "constants": constants, "based_on": based_on}
    made = read_facts(Hardware, "a hardware", decl.facts, filled, decl.name, found)
    if made is None:
        return None, found
    # Sizes are divisors; one of a node and an NVLink domain is a multiple of the other
    sizes = {n: getattr(made, n) for n in _DIVISORS} | {f"tflops {k}": v for k, v in made.tflops.items()}
    zero = ", ".join(n for n, v in sizes.items() if v <= 0)
    node, domain = made.gpus_per_node, made.nvlink_domain
    if zero:
        found.append(error("check.hardware:more", decl.name.span, hardware=made.name, facts=zero))
    elif made.oversubscription < 1 or made.host_speed <= 0:
        found.append(error("check.hardware:ratio", decl.name.span, hardware=made.name))
    elif max(node, domain) % min(node, domain):
        found.append(error("check.hardware:gpus", decl.name.span, hardware=made.name, node=node, domain=domain))
    return made, found


_DIVISORS = ("memory", "nvlink_domain", "gpus_per_node", "sms", "hbm", "nvlink", "network")


def cited(e: ast.FactEntry) -> str:
    """Format the sources of a fact."""
    return "; ".join(cite_text(c) for c in e.cites)


def cite_text(cite: ast.Cite) -> str:
    """Format a citation as one string: ``bridge training/comm_overlap.py:520``."""
    return f"{cite.kind.id} {cite.where.value}"


EVERY = "any"
"""The calibration that declares every constant; its values hold for generations that state no others."""


def constants(
    calibrations: Mapping[str, ast.CalibrationDecl], arch: str, replaced: Mapping[str, ast.CalibrationDecl] = {}
) -> tuple[Constants | None, list[Diagnostic]]:
    """Read the constants of an architecture, and check that each is in its range.

    `EVERY` declares them. Where it replaces an earlier declaration (`replaced`), their units must be of the same kind
    as there.
    """
    every, own = calibrations[EVERY], calibrations.get(arch)
    found: list[Diagnostic] = []
    known = _declared(every, _declared(replaced[EVERY], {}, []) if EVERY in replaced else {}, found)
    if found:
        return None, found
    if missing := [name for name in calibration.NAMES if name not in known]:
        found.append(error("check.missing_fact:calibration", every.name.span, every=EVERY, missing=", ".join(missing)))
    # Values that the generation states, in the units of the declared constants
    stated, of_generation = dict[str, float](), own.facts if own and own is not every else ()
    for e in blocks.facts(of_generation, known, "a calibration", found):
        value, unit = e.value, known[e.name.id].unit
        units = (None, unit, *(["%"] if unit in calibration.RATIOS else []))
        if isinstance(value, ast.Number) and value.unit in units:
            stated[e.name.id] = value.value if value.unit == unit else float(number(value))
        else:
            found.append(error("check.type:must-number", e.name.span, name=e.name.id, unit=unit))
    if found:
        return None, found
    made, at = calibration.made(known, stated), (own or every).name
    wrong = calibration.outside(made)
    return made, [error("check.calibration:calibration", at.span, name=at.id, wrong=w) for w in wrong]


def _declared(
    every: ast.CalibrationDecl, replaced: Mapping[str, Constant], found: list[Diagnostic]
) -> dict[str, Constant]:
    """Read the constants that a calibration declares; units must be of the same kind as in the one that it replaces."""
    out: dict[str, Constant] = {}
    for e in blocks.facts(every.facts, calibration.NAMES, "a calibration", found):
        name = e.name.id
        if not isinstance(e.value, tuple):
            found.append(error("check.type:block", e.name.span, name=name, archs=", ".join(ARCHS)))
            continue
        filled = {"name": name, "source": cited(e)}
        made = read_facts(Constant, f"constant {name}", e.value, filled, e.name, found)
        if made is None:
            continue
        out[name] = made
        for v in (v for v in e.value if isinstance(v, ast.FactEntry)):
            allowed = (None, "%") if v.name.id == "spread" or made.unit in calibration.RATIOS else (None,)
            if isinstance(v.value, ast.Number) and v.value.unit not in allowed:
                found.append(error("check.type:without", v.value.span, name=v.name.id, unit=made.unit))
        for text in calibration.wrong(made, replaced.get(name)):
            found.append(error("check.calibration:constant", e.name.span, name=name, wrong=text))
    return out
