"""Read the facts of a ``model`` or ``hardware`` declaration and the constants of a ``calibration``.

Each is checked for its name, type and unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import NOTHING, astuple, fields, frozen

from moedsl.facts import calibration, facts
from moedsl.facts.calibration import UNITS as CONSTANT_UNITS
from moedsl.facts.calibration import Constant, Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.facts.symbols import ARCHS, ATTENTION, POSITIONS, QK_NORMS
from moedsl.lang import ast
from moedsl.rules.evaluators import number
from moedsl.support.diagnostics import Diagnostic, Instead, Label, error, suggest

_WORDS: Mapping[tuple[type, str], tuple[str, ...]] = {
    (Model, "attention"): ATTENTION,
    (Model, "position_embedding_type"): POSITIONS,
    (Model, "qk_norm_over"): QK_NORMS,
    (Hardware, "arch"): ARCHS,
    (Hardware, "host"): ("x86", "grace"),
    (Constant, "unit"): tuple(CONSTANT_UNITS),
}
UNITS: Mapping[tuple[type, str], tuple[str, ...]] = {
    (Hardware, "memory"): ("GB", "GiB", "TB", "TiB"),
    (Hardware, "visible"): ("GB", "GiB", "TB", "TiB"),
    (Hardware, "torch_total"): ("GB", "GiB", "TB", "TiB"),
    (Hardware, "hbm"): ("GB/s", "TB/s"),
    (Hardware, "nvlink"): ("GB/s", "TB/s"),
    (Hardware, "network"): ("GB/s", "TB/s"),
    (Hardware, "host_link"): ("GB/s", "TB/s"),
}
"""The units of a fact that needs one."""
_RATES = ("bf16", "fp8", "mxfp8", "nvfp4")
"""The precisions whose dense rate a declaration of hardware may state."""
_RATE_UNITS = ("TFLOPS", "PFLOPS")
"""The units of a rate; without one it is in TFLOPS."""
MOST_LAYERS, MOST_MTP, LARGEST = 10_000, 100, 1 << 31
MOST_VISION, MOST_PATCH = 1 << 16, 64
LONGEST_PATTERN = 500
"""Layers of a hybrid: where to cut its pattern is searched over every pair of layers, for every pipeline."""
"""The limit on layers and widths, above which a number is a typo."""
LETTERS = "M*E-"
"""The letters of a hybrid's layer_pattern (core models/hybrid/hybrid_layer_allocation.py:17-24)."""
DELTA_NETS = ("qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text")
"""Families that Bridge builds with gated delta nets and experts (bridge models/qwen/qwen3_next_bridge.py:85,
models/qwen/qwen35_bridge.py:61)."""
_COMMIT = re.compile("[0-9a-f]{40}")
_FILLED = {"name", "query_norm", "sources", "source", "constants"}


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
"""Facts of a model by the names of papers and of Hugging Face's configurations."""


def _fact_like(name: str, known: list[str]) -> tuple[str, ...]:
    """Suggest a fact by its name in Megatron or elsewhere, else the nearest one."""
    megatron = {field.removeprefix("model."): fact for fact, field in facts.FIELDS.items()}
    other = (megatron | _FACTS_ELSEWHERE).get(name.lower())
    return (Instead(f"did you mean `{other}`?", other),) if other in known else suggest(name, known)


def _how_to_state(cls: type) -> tuple[str, ...]:
    return ("`moedsl models add config.json` writes them all",) if cls is Model else ()


@frozen
class Block:
    """Reads one block of facts into one facts class."""

    cls: type
    title: str
    diagnostics: list[Diagnostic]

    def read(self, entries: tuple[ast.FactEntry, ...], filled: dict[str, Any], name: ast.Name) -> Any | None:
        """Make an instance of `cls`, or None with diagnostics."""
        before = len(self.diagnostics)
        facts = {f.name: f for f in fields(self.cls)}
        seen: dict[str, ast.FactEntry] = {}
        values = dict(filled)
        for entry in entries:
            self._entry(entry, facts, seen, values)
        missing = [n for n, f in facts.items() if f.default is NOTHING and n not in values and n not in seen]
        if missing:
            self._error("check.missing_fact", f"{self.title} needs {', '.join(missing)}", name, _how_to_state(self.cls))
        return self.cls(**values) if len(self.diagnostics) == before else None

    def _entry(
        self, e: ast.FactEntry, facts: Mapping[str, Any], seen: dict[str, ast.FactEntry], out: dict[str, Any]
    ) -> None:
        known = [n for n in facts if n not in _FILLED]
        if e.name.id not in known:
            return self._error(
                "check.unknown_fact", f"{self.title} has no fact `{e.name.id}`", e.name, _fact_like(e.name.id, known)
            )
        if e.name.id in seen:
            first = Label(seen[e.name.id].name.span, "first here")
            self.diagnostics.append(error("check.twice:entry", e.name.span, first, e=e.name.id))
            return None
        seen[e.name.id] = e
        value = self._value(e, str(facts[e.name.id].type))
        if value is not None:
            out[e.name.id] = value
        return None

    def _value(self, e: ast.FactEntry, type_: str) -> Any | None:
        if type_ == "Vision | None":
            entries = tuple(v for v in e.value if isinstance(v, ast.FactEntry)) if isinstance(e.value, tuple) else ()
            return Block(Vision, "a vision tower", self.diagnostics).read(entries, {}, e.name)
        if type_.startswith("Mapping"):
            pairs = [v for v in e.value if isinstance(v, ast.Binding)] if isinstance(e.value, tuple) else []
            if not pairs:
                return self._error("check.type", f"`{e.name.id}` is written `{e.name.id} bf16=989 fp8=1979`", e.name)
            found = {b.name.id: self._rate(b) for b in pairs}
            if "bf16" not in found:
                self._error(
                    "check.missing_fact", f"`{e.name.id}` needs bf16: every other rate falls back to it", e.name
                )
            return found
        if isinstance(e.value, tuple):
            return self._error("check.type", f"`{e.name.id}` is one value", e.name)
        return self._plain(e.name, e.value, type_)

    def _rate(self, b: ast.Binding) -> float:
        """Read the rate of one precision, in the unit of the facts."""
        if b.name.id not in _RATES:
            text = f"no rate is called `{b.name.id}`"
            self._error(
                "check.unknown_word", text, b.name, suggest(b.name.id, list(_RATES)) or (f"one of {', '.join(_RATES)}",)
            )
        elif not isinstance(b.value, ast.Number):
            self._error("check.type", f"`{b.name.id}` must be a number", b.value)
        elif b.value.unit is not None and b.value.unit not in _RATE_UNITS:
            self._error("check.unit", f"the rate of `{b.name.id}` is in {' or '.join(_RATE_UNITS)}", b.value)
        else:
            return number(b.value) / (1e12 if b.value.unit else 1)
        return 0.0

    def _plain(self, name: ast.Name, value: ast.Expr, type_: str) -> Any | None:
        match type_, value:
            case ("int", ast.Number(unit=None)) if isinstance(number(value), int):
                return number(value)
            case ("float", ast.Number()):
                units = UNITS.get((self.cls, name.id))
                if units and value.unit not in units:
                    return self._error("check.unit", f"`{name.id}` needs a unit: {', '.join(units)}", value)
                if (
                    not units and value.unit is not None and self.cls is not Constant
                ):  # those of a constant follow from its own
                    return self._error("check.unit", f"`{name.id}` has no unit", value)
                return float(number(value))
            case ("bool", ast.Bool()):
                return value.value
            case ("str", ast.String() | ast.Name()):
                return self._text(name, value)
            case ("tuple[int, ...]", ast.List()):
                return tuple(int(number(i)) for i in value.items if isinstance(i, ast.Number))
            case _:
                return self._error("check.type", f"`{name.id}` must be {_WANTED[type_]}", value)

    def _text(self, name: ast.Name, value: ast.String | ast.Name) -> str | None:
        text = value.value if isinstance(value, ast.String) else value.id
        words = _WORDS.get((self.cls, name.id))
        if words and text not in words:
            return self._error(
                "check.unknown_word", f"`{name.id}` is one of {', '.join(words)}", value, suggest(text, list(words))
            )
        return text

    def _error(self, id: str, message: str, at: Any, help: tuple[str, ...] = ()) -> None:
        self.diagnostics.append(error(id, message, at.span, help=help))


_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a word or a string",
    "tuple[int, ...]": "a list of numbers",
}


def model(decl: ast.ModelDecl) -> tuple[Model | None, list[Diagnostic]]:
    """Read the model of a declaration."""
    found: list[Diagnostic] = []
    made = Block(Model, "a model", found).read(decl.facts, {"name": decl.name.id}, decl.name)
    return made, found + (_consistent_model(made, decl) if made else [])


def _consistent_model(m: Model, decl: ast.ModelDecl) -> list[Diagnostic]:
    """Check that the parts of a model agree."""
    wrong: list[str] = []
    if m.topk > m.experts:
        wrong.append(f"topk {m.topk} is more than its {m.experts} experts")
    if m.routing_groups < 1 or m.experts % m.routing_groups:
        wrong.append(f"{m.experts} experts do not divide evenly into {m.routing_groups} routing groups")
    if not 1 <= m.topk_groups <= m.routing_groups:
        wrong.append(f"topk_groups {m.topk_groups} is not one of its {m.routing_groups} routing groups")
    if m.attention == "mla" and not (m.kv_lora_rank and m.qk_nope_dim and m.qk_rope_dim and m.v_head_dim):
        wrong.append("MLA needs kv_lora_rank, qk_nope_dim, qk_rope_dim and v_head_dim")
    if min(m.layers, m.hidden, m.vocab, m.heads, m.query_groups, m.head_dim, m.experts, m.topk, m.expert_hidden) < 1:
        wrong.append("sizes are at least 1")
    elif m.heads % m.query_groups:
        wrong.append(f"{m.heads} heads do not divide evenly into {m.query_groups} query groups")
    largest = max(v for v in astuple(m, recurse=False) if isinstance(v, int))
    if m.layers > MOST_LAYERS or m.mtp_layers > MOST_MTP or largest > LARGEST:
        sizes = f"{MOST_LAYERS} layers, {MOST_MTP} MTP layers, and {LARGEST} of anything"
        wrong.append(f"a size is out of range: at most {sizes}")
    if m.dense_layers > m.layers:
        wrong.append(f"{m.dense_layers} dense layers are more than its {m.layers} layers")
    if m.revision and not _COMMIT.fullmatch(m.revision):
        wrong.append("revision is a commit, 40 hexadecimal digits: a branch or a tag may move")
    # Check that a gate has something to multiply, and a norm of all heads whose they are
    asked = (
        (not m.attention_gate or m.attention == "gqa", "attention_gate needs attention gqa: latent attention has none"),
        (not m.shared_expert_gate or m.shared_expert_hidden, "shared_expert_gate needs shared_expert_hidden"),
        (
            m.qk_norm_over == "each_head" or (m.qk_norm and m.attention == "gqa"),
            f"qk_norm_over {m.qk_norm_over} needs qk_norm and attention gqa",
        ),
        (
            m.qk_norm_over != "all_heads" or m.heads == m.query_groups,
            "qk_norm_over all_heads needs as many query groups as heads: the norm of the keys is as wide as all heads",
        ),
        (not m.mtp_dense or (m.mtp_layers and not m.hybrid), "mtp_dense needs mtp_layers, and no layer_pattern"),
    )
    wrong += _of_vision(m.vision) + [text for fine, text in asked if not fine] + _of_indexer(m) + _of_windows(m)
    wrong += _of_pattern(m) if m.hybrid else _without_pattern(m)
    wrong += _of_delta_nets(m) if m.linear else _without_delta_nets(m)
    return [error("check.model", decl.name.span, m=m.name, w=w) for w in wrong]


_PATCH = ("patch", "temporal_patch", "merge", "in_channels")


def _of_vision(v: Vision | None) -> list[str]:
    """Check that a vision tower has sizes that one can have; products of larger ones leave 64 bits."""
    if v is None:
        return []
    patches = all(1 <= getattr(v, name) <= MOST_PATCH for name in _PATCH)
    if patches and all(0 <= size < MOST_VISION for size in astuple(v, recurse=False) if isinstance(size, int)):
        return []
    limits = f"{', '.join(_PATCH)} are from 1 to {MOST_PATCH}, others below {MOST_VISION}"
    return [f"a size of its vision is out of range: {limits}"]


def _of_indexer(m: Model) -> list[str]:
    """Check that an indexer is whole, and that the attention is one that it can serve."""
    facts = {n: getattr(m, n) for n in ("indexer_heads", "indexer_dim", "indexer_topk")}
    missing = [n for n, value in facts.items() if not value]
    asked = (
        (len(missing) in (0, len(facts)), f"an indexer needs {', '.join(missing)}"),
        (m.indexer_every >= 1, "indexer_every is at least 1: a layer with an indexer and those that share its keys"),
        (m.sparse or m.indexer_every == 1, "indexer_every needs an indexer"),
        (
            m.indexer_every == 1 or m.indexer_leading >= m.dense_layers,
            "each dense layer needs an indexer of its own: indexer_leading is less than dense_layers",
        ),
        (m.attention == "mla" or not m.sparse, "an indexer needs attention mla: only latent attention can be sparse"),
    )
    return [text for fine, text in asked if not fine]


def _of_windows(m: Model) -> list[str]:
    """Check that layers with a window are a kind of their own only where they can be told from the others."""
    said = [n for n in ("window_leading", "window_first", "window_sinks", "full_head_dim") if getattr(m, n)]
    if not m.windowed:
        ways = "window_heads, window_query_groups or full_query_groups"
        return [f"{', '.join(said)}: only for windows of another shape, which need {ways}"] if said else []
    own = [n for n in ("window_heads", "window_query_groups", "full_query_groups") if getattr(m, n)]
    groups = (
        ("query groups of windows", m.window_heads or m.heads, m.window_query_groups or m.query_groups),
        ("query groups of full attention", m.heads, m.full_query_groups or m.query_groups),
    )
    asked = (
        (m.window and m.window_every > 1, f"{', '.join(own)}: needs window, and window_every of 2 or more"),
        (m.attention == "gqa", f"{', '.join(own)}: needs attention gqa"),
        *(
            (count and heads % count == 0, f"{heads} heads do not divide evenly into {count} {name}")
            for name, heads, count in groups
        ),
        (not m.mtp_layers, "MTP of a model whose windows have another shape is not supported"),
    )
    return [text for fine, text in asked if not fine]


def _without_pattern(m: Model) -> list[str]:
    """Check facts that only a hybrid has."""
    facts = ("mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups", "mtp_pattern")
    said = [n for n in facts if getattr(m, n)]
    wrong = [f"{', '.join(said)}: only for a hybrid, which needs a layer_pattern"] if said else []
    return wrong + _repeated(m)


def _repeated(m: Model) -> list[str]:
    return ["mtp_repeated needs mtp_layers"] if m.mtp_repeated and not m.mtp_layers else []


def _of_pattern(m: Model) -> list[str]:
    """Check the other facts that a hybrid's pattern needs; attention is Megatron's `*` only, on the whole sequence."""
    both = m.layer_pattern + m.mtp_pattern
    odd = sorted(set(both) - set(LETTERS))
    asked = (
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
    )
    wrong = [text for fine, text in asked if not fine]
    return wrong + _repeated(m) + (_mixer(m) if "M" in both else [])


_DELTA_NET = ("linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim")


def _without_delta_nets(m: Model) -> list[str]:
    said = [n for n in _DELTA_NET if getattr(m, n)]
    return [f"{', '.join(said)}: only for gated delta nets, which need linear_every"] if said else []


def _of_delta_nets(m: Model) -> list[str]:
    """Check the other facts that gated delta nets need (core transformer/transformer_config.py:1346-1371), and what
    Bridge builds with them; MTP is built like the last layer (core models/gpt/gpt_layer_specs.py:767-769)."""
    missing = [n for n in _DELTA_NET if getattr(m, n) < 1]
    every, keys, values = m.linear_every, m.linear_key_heads, m.linear_value_heads
    asked = (
        (not missing, f"a gated delta net needs {', '.join(missing)}"),
        (missing or values % keys == 0, f"{values} value heads are not a multiple of {keys} key heads (linear_*)"),
        (every > 1, "linear_every is more than 1: it counts a layer of full attention and those before it"),
        (every <= m.layers, f"linear_every {every}: none of its {m.layers} layers has full attention"),
        (not m.mtp_layers or m.layers % every == 0, "MTP repeats the last layer, which must have full attention"),
        (m.attention == "gqa", "full attention with gated delta nets is GQA"),
        (not m.window, "full attention with gated delta nets sees the whole sequence: no window"),
        (not m.dense_layers, "each layer of a model with gated delta nets has experts: no dense_layers"),
        (
            not m.hybrid,
            "linear_every cannot be combined with a layer_pattern, which has no letter for a gated delta net",
        ),
        (m.family in DELTA_NETS, f"Bridge builds gated delta nets of {', '.join(DELTA_NETS)}, not {m.family}"),
    )
    return [text for fine, text in asked if not fine]


def _mixer(m: Model) -> list[str]:
    """Check Mamba's groups and heads as core ssm/mamba_mixer.py:239-272 does."""
    if min(m.mamba_heads, m.mamba_head_dim, m.mamba_state, m.mamba_groups) < 1:
        return ["an M needs mamba_heads, mamba_head_dim, mamba_state and mamba_groups"]
    if m.mamba_heads % m.mamba_groups:
        return [f"{m.mamba_heads} Mamba heads do not divide evenly into {m.mamba_groups} groups"]
    return []


def hardware(
    decl: ast.HardwareDecl, reached: Callable[[str], tuple[Constants | None, list[Diagnostic]]]
) -> tuple[Hardware | None, list[Diagnostic]]:
    """Read the hardware of a declaration, with the source of each fact, and what its architecture reaches."""
    arch = next((e.value.id for e in decl.facts if e.name.id == "arch" and isinstance(e.value, ast.Name)), "")
    constants, wrong = reached(arch)
    found = [*wrong]
    sources = {e.name.id: cited(e) for e in decl.facts if e.cites}
    made = Block(Hardware, "a hardware", found).read(
        decl.facts, {"name": decl.name.id, "sources": sources, "constants": constants}, decl.name
    )
    return made, found + (_consistent_hardware(made, decl) if made else [])


def cited(e: ast.FactEntry) -> str:
    """Write the sources of a fact."""
    return "; ".join(cite_text(c) for c in e.cites)


def _consistent_hardware(h: Hardware, decl: ast.HardwareDecl) -> list[Diagnostic]:
    """Check rates, sizes that are divisors, and that NVLink domains are whole nodes, or nodes whole domains."""
    sizes = {n: getattr(h, n) for n in ("memory", "nvlink_domain", "gpus_per_node", "sms", "hbm", "nvlink", "network")}
    sizes |= {f"tflops {k}": v for k, v in h.tflops.items()}
    zero = [n for n, v in sizes.items() if v <= 0]
    if zero:
        return [error("check.hardware:more", decl.name.span, h=h.name, zero=", ".join(zero))]
    node, domain = h.gpus_per_node, h.nvlink_domain
    if max(node, domain) % min(node, domain) == 0:
        return []
    return [error("check.hardware:gpus", decl.name.span, h=h.name, node=node, domain=domain)]


def cite_text(cite: ast.Cite) -> str:
    """Write a citation as one string: ``bridge training/comm_overlap.py:520``."""
    return f"{cite.kind.id} {cite.where.value}"


EVERY = "any"
"""The calibration that declares each constant, and whose values hold where a generation states none."""


def constants(
    calibrations: Mapping[str, ast.CalibrationDecl], arch: str, replaced: Mapping[str, ast.CalibrationDecl] = {}
) -> tuple[Constants | None, list[Diagnostic]]:
    """Read the constants of an architecture, each in its range; of `EVERY`, those that are declared, with units of the
    same kind as in a declaration that it replaces."""
    every, own = calibrations[EVERY], calibrations.get(arch)
    found: list[Diagnostic] = []
    known = _declared(every, _declared(replaced[EVERY], {}, []) if EVERY in replaced else {}, found)
    if found:
        return None, found
    if missing := [name for name in calibration.NAMES if name not in known]:
        found.append(error("check.missing_fact:calibration", every.name.span, every=EVERY, missing=", ".join(missing)))
    stated = _stated(own, known, found) if own and own is not every else {}
    if found:
        return None, found
    made, at = calibration.made(known, stated), (own or every).name
    wrong = calibration.outside(made)
    return made, [error("check.calibration:calibration", at.span, at=at.id, w=w) for w in wrong]


def _declared(
    every: ast.CalibrationDecl, replaced: Mapping[str, Constant], found: list[Diagnostic]
) -> dict[str, Constant]:
    out: dict[str, Constant] = {}
    for e in every.facts:
        if not _known(e.name, calibration.NAMES, found):
            continue
        if not isinstance(e.value, tuple):
            found.append(error("check.type:block", e.name.span, e=e.name.id, archs=", ".join(ARCHS)))
            continue
        entries = tuple(v for v in e.value if isinstance(v, ast.FactEntry))
        filled = {"name": e.name.id, "source": cited(e)}
        made = Block(Constant, f"constant {e.name.id}", found).read(entries, filled, e.name)
        if made is not None:
            out[e.name.id] = made
            found += _wrong(made, replaced.get(e.name.id), entries, e.name)
    return out


def _wrong(
    c: Constant, before: Constant | None, entries: Sequence[ast.FactEntry], at: ast.Name
) -> Iterator[Diagnostic]:
    """Report units of another kind, and numbers that contradict each other."""
    for e in entries:
        if isinstance(e.value, ast.Number) and e.value.unit and not _percent(e.value, c.unit, e.name.id == "spread"):
            yield error("check.type:without", e.value.span, e=e.name.id, unit=c.unit)
    yield from (
        error("check.calibration:constant", at.span, c=c.name, text=text)
        for text in calibration.wrong(c, before)
    )


def _percent(n: ast.Number, unit: str, spread: bool = False) -> bool:
    return n.unit == "%" and (spread or unit in calibration.RATIOS)


def _stated(decl: ast.CalibrationDecl, known: Mapping[str, Constant], found: list[Diagnostic]) -> dict[str, float]:
    """Read what a generation states, in the units of its constants."""
    out: dict[str, float] = {}
    for e in decl.facts:
        if not _known(e.name, known, found):
            continue
        if e.name.id in out:
            found.append(error("check.twice:entry", e.name.span, e=e.name.id))
            continue
        unit = known[e.name.id].unit
        if not isinstance(e.value, ast.Number) or not (e.value.unit in (None, unit) or _percent(e.value, unit)):
            found.append(error("check.type:must-number", e.name.span, e=e.name.id, unit=unit))
        else:
            out[e.name.id] = e.value.value if e.value.unit == unit else float(number(e.value))
    return out


def _known(name: ast.Name, known: Mapping[str, Constant] | tuple[str, ...], found: list[Diagnostic]) -> bool:
    if name.id not in known:
        found.append(
            error("check.unknown_fact:calibration", name.span, name=name.id, help=suggest(name.id, list(known)))
        )
    return name.id in known
