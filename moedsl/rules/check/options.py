"""Read the statements of a run with options: `adapter`, `data`, `resilience`, `vlm`, `weights`, and those that set
fields of Bridge under shorter names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import adapters as counts
from moedsl.cost import pipeline
from moedsl.facts import axes, field_words, fields, fine_tuning
from moedsl.facts.facts import Model
from moedsl.facts.families import PRESET_SPLITS, PRESETS
from moedsl.facts.fine_tuning import EXPERTS, METHODS, PARTS, SOURCES, TARGETS, Adapter, Samples
from moedsl.facts.symbols import VLM_WORDS
from moedsl.lang import ast
from moedsl.rules import blocks
from moedsl.rules.blocks import Kind
from moedsl.rules.check import overrides
from moedsl.rules.check.program import Pin
from moedsl.rules.evaluators import number
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, error, suggest, warning
from moedsl.support.source import Span

OF_HUGGING_FACE = {
    "q_proj": "linear_qkv", "k_proj": "linear_qkv", "v_proj": "linear_qkv", "o_proj": "linear_proj",
    "gate_proj": "linear_fc1", "up_proj": "linear_fc1", "down_proj": "linear_fc2", "gate": "router",
    "q_a_proj": "linear_q_down_proj", "q_b_proj": "linear_q_up_proj",
    "kv_a_proj_with_mqa": "linear_kv_down_proj", "kv_b_proj": "linear_kv_up_proj",
}  # fmt: skip
"""Megatron's adapter targets by their names in Hugging Face models and PEFT."""
_FUSED = tuple(PARTS)
_SPLIT = tuple(name for parts in PARTS.values() for name in parts)


def read_adapter(stmt: ast.AdapterStmt | None, trains: bool, diagnostics: list[Diagnostic]) -> Adapter | None:
    """Read the adapter of a run; None if the run does not train one (`trains`). Errors go to `diagnostics`."""
    method, own = METHODS[0], dict[str, Any]()
    if stmt is not None:
        method, at = stmt.method.id, stmt.method.span
        if not trains:
            fixes = (Fix("Drop `adapter`", DROP, stmt.span),)
            diagnostics.append(error("check.adapter:untrained", stmt.span, fixes=fixes))
        if method not in METHODS:
            words, help = ", ".join(METHODS), suggest(method, [*METHODS])
            diagnostics.append(error("check.unknown_word:adapter", at, methods=words, method=method, help=help))
            return None
        stated = blocks.options(
            stmt.bindings,
            ADAPTER_OPTIONS,
            diagnostics,
            lambda name, near: error("check.adapter:adapter", name.span, name=name.id, help=near),
            lambda b, value: _of_method(b, value, method),
        )
        own.update(stated)
    return Adapter(method=method, **{**fine_tuning.defaults(method), **own}) if trains else None


def _of_method(b: ast.Binding, value: Any, method: str) -> Iterator[Diagnostic]:
    """Report an option that Bridge's method does not have, unknown modules, and modules that the method names only
    whole or only in parts."""
    name = b.name.id
    if not fine_tuning.has(method, name):
        yield error("check.adapter:bridge", b.span, method=method, name=name)
    elif name == "experts" and not fine_tuning.has_experts(method, value):
        yield error("check.adapter:experts", b.span, method=method)
    elif name == "targets" and isinstance(b.value, ast.List):
        refused = _FUSED if method == "canonical_lora" else _SPLIT
        for word, at in ((i.id, i.span) for i in b.value.items if isinstance(i, ast.Name)):
            if word not in TARGETS:
                target = OF_HUGGING_FACE.get(word, "")
                if target in refused:
                    target = next(p for p in PARTS[target] if p.endswith("_" + word.removesuffix("_proj")))
                theirs = (Instead(f"in Megatron `{word}` of Hugging Face is in `{target}`", target),) if target else ()
                help = theirs or blocks.suggest_or_list(word, TARGETS)
                yield error("check.unknown_word:module", at, module=word, help=help)
            elif word in refused:
                right = ", ".join(PARTS.get(word) or [w for w, parts in PARTS.items() if word in parts])
                help, cites = Instead(f"write `{right}`", right), ("bridge peft/canonical_lora.py:277",)
                yield error("check.adapter:unknown-target", at, method=method, module=word, help=help, cites=cites)


def built_targets(m: Model, a: Adapter) -> tuple[str, ...]:
    """Return the modules that an adapter of a model may be on, by Megatron's names; none if its layout is unknown."""
    whole = pipeline.layout_for(m, 1, 1)
    alone = (evolve(a, targets=frozenset({t})) for t in TARGETS)
    return tuple(
        t for t, a in zip(TARGETS, alone, strict=True) if whole and counts.stage(m, a, whole, 0, 1, 1, 1).total
    )


def unbuilt(stmt: ast.AdapterStmt | None, a: Adapter, m: Model, anywhere: Span) -> Iterator[Diagnostic]:
    """Report targets that a model does not have: Bridge only warns of them, and trains nothing if none exists."""
    has = built_targets(m, a)
    if not has:
        return
    cites = ("bridge peft/module_matcher.py:195",)
    if a.targets.isdisjoint(has):
        known = [t for t in has if t not in (_FUSED if a.method == "canonical_lora" else _SPLIT)]
        at, wanted, takes = stmt.span if stmt else anywhere, " and no ".join(sorted(a.targets)), ", ".join(known)
        yield error("check.adapter:no-targets", at, model=m.name, targets=wanted, known=takes, cites=cites)
    elif stmt is not None:
        values = (b.value for b in stmt.bindings if b.name.id == "targets" and isinstance(b.value, ast.List))
        for item in (i for v in values for i in v.items if isinstance(i, ast.Name) and i.id not in has):
            yield warning("check.adapter_target", item.span, model=m.name, module=item.id, cites=cites)


_RANK = partial(blocks.whole, most=8192)
ADAPTER_OPTIONS: Mapping[str, Kind] = {
    "rank": Kind(_RANK, "a whole number from 1 to 8192", "rank=32"),
    "alpha": Kind(_RANK, "a whole number from 1 to 8192", "alpha=32"),
    "dropout": Kind(blocks.share, "a share below 1", "dropout=0.1"),
    "targets": Kind(blocks.set_of_words, "a list of modules", "targets=[linear_qkv, linear_proj]"),
    "experts": Kind(partial(blocks.one_of, words=EXPERTS), f"one of {', '.join(EXPERTS)}", "experts=each"),
    "normalized": Kind(blocks.switch, "on or off", "normalized=on"),
    "regather": Kind(blocks.switch, "on or off", "regather=on"),
}


MOST_LENGTHS = 1024
_HUB = SOURCES[1]
WORDS = ("mock", _HUB)


def read_data(
    stmt: ast.DataStmt | None, reads_samples: bool, images: bool, diagnostics: list[Diagnostic]
) -> tuple[str, Samples | None]:
    """Read (data, samples) of a run; samples are None unless it fine-tunes on text (`reads_samples`). Errors go to
    `diagnostics`."""
    if stmt is None:
        return "mock", None
    # Report a source of data that is unknown, or that this run cannot use
    word, value = stmt.word.id if stmt.word else "", stmt.value
    span = (stmt.word or stmt.value or stmt).span
    if word and word not in WORDS:
        help: tuple[str, ...] | None = suggest(word, [*WORDS]) or None
        if "." in word:
            help = (Instead(f'write a path in double quotes: `data "{word}"`', f'"{word}"'),)
        elif word in PRESETS:
            help = (Instead(f'write `data hf "{word}"`', f'hf "{word}"'),)
        diagnostics.append(error("check.unknown_word:data", span, words=", ".join(WORDS), word=word, help=help))
    elif word == "mock" and value is not None:
        diagnostics.append(error("check.data:mock-data", value.span))
    elif word == _HUB and value is None:
        diagnostics.append(error("check.data:data-set", span))
    elif value is not None and value.value in ("", "mock"):
        example = 'write `data hf "ORG/NAME"`' if word == _HUB else None
        diagnostics.append(error("check.data:path", value.span, help=example))
    elif word == _HUB and not reads_samples:
        of_text = error("check.data:only-text", span) if images else error("check.data:only-fine-tuning", span)
        diagnostics.append(of_text)
    elif word == _HUB and value is not None and "/" not in value.value and value.value not in PRESETS:
        help = suggest(value.value, [*PRESETS]) or (f'write `data hf "ORG/NAME"`, or one of {", ".join(PRESETS)}',)
        cites = (f"{_HF}:129",)
        diagnostics.append(error("check.data:unknown-set", value.span, value=value.value, help=help, cites=cites))
    if value is not None:
        diagnostics += overrides.secret("data", value)
    stated = blocks.options(
        stmt.bindings,
        DATA_OPTIONS,
        diagnostics,
        lambda name, near: error("check.data:data", name.span, name=name.id, help=near),
        lambda b, _: _of_data(b, stmt, reads_samples),
    )
    samples = evolve(Samples(source=_HUB) if stmt.word else Samples(), **dict(stated))
    return (stmt.value.value, samples if reads_samples else None) if stmt.value else ("mock", None)


_HF = "bridge data/sources/hf.py"


def _of_data(b: ast.Binding, stmt: ast.DataStmt, reads_samples: bool) -> Iterator[Diagnostic]:
    """Report an option that this data does not have, and split names (as in `train[:5%]+test`) that Bridge's own data
    set does not have."""
    name, fixes, data = b.name.id, (Fix("Drop this one", DROP, b.span),), stmt.value.value if stmt.value else ""
    if not reads_samples or stmt.value is None:
        yield error("check.data:samples", b.span, name=name, fixes=fixes)
    elif name in ("split", "subset") and not stmt.word:
        yield error("check.data:training", b.span, name=name, fixes=fixes)
    elif name == "subset" and data in PRESETS:
        yield error("check.data:subset", b.span, data=data, fixes=fixes, cites=(f"{_HF}:85",))
    elif name == "split" and data in PRESETS and isinstance(b.value, ast.String):
        has, parts = PRESET_SPLITS[data], [part.partition("[")[0] for part in b.value.value.split("+")]
        named = {"known": ", ".join(has), "first": has[0], "cites": (f"{_HF}:208",)}
        for part in dict.fromkeys(p for p in parts if p not in has):
            yield error("check.data:split", b.span, data=data, part=part, **named)


def _lengths(value: ast.Expr) -> tuple[float, ...] | None:
    items = value.items if isinstance(value, ast.List) else ()
    numbers = [number(i) for i in items if isinstance(i, ast.Number) and i.unit is None]
    fine = 0 < len(numbers) == len(items) <= MOST_LENGTHS and all(0 < n < 2**31 for n in numbers)
    return tuple(sorted(map(float, numbers))) if fine else None


DATA_OPTIONS: Mapping[str, Kind] = {
    "pack": Kind(blocks.switch, "on or off", "pack=off"),
    "lengths": Kind(_lengths, f"a list of at most {MOST_LENGTHS} numbers of tokens", "lengths=[120, 350, 900]"),
    "split": Kind(blocks.text, "a text", 'split="train"'),
    "subset": Kind(blocks.text, "a text", 'subset="main"'),
}


@frozen
class Section:
    """The fields of Bridge that a keyword of `resilience` stands for."""

    path: str
    """The section of Bridge's ConfigContainer."""
    on: Mapping[str, bool | str]
    """The fields that switch it on."""
    options: tuple[str, ...] = ()
    """The fields that may be options; empty means all fields of the section."""


SECTIONS: Mapping[str, Section] = {
    "ft": Section("ft", {"enable_ft_package": True, "calc_ft_timeouts": True}),
    "inprocess_restart": Section("inprocess_restart", {"enabled": True}),
    "nvrx_straggler": Section("nvrx_straggler", {"enabled": True}),
    "preemption": Section("train", {"exit_signal_handler": True}, ("exit_signal_handler_for_dataloader",)),
    "rerun_state_machine": Section("rerun_state_machine", {"rerun_mode": "validate_results"}),
}
"""The keywords of `resilience`: Bridge's names of its sections, and preemption, the name of NVIDIA's plugin."""


def options(section: str) -> tuple[str, ...]:
    """Return the options of a section: names of Bridge's fields."""
    of = SECTIONS[section]
    named = tuple(path.partition(".")[2] for path in fields.fields() if path.startswith(f"{of.path}."))
    return of.options or named


def mistakes(stmt: ast.ResilienceStmt | ast.FieldsStmt) -> Iterator[Diagnostic]:
    """Report an unknown section of `resilience`, or options that the section or the keyword does not have."""
    if isinstance(stmt, ast.FieldsStmt):
        name, known = stmt.keyword.id, field_words.options(stmt.keyword.id)
    else:
        name = stmt.section.id
        known = options(name) if name in SECTIONS else ()
        if not known:
            words, help = ", ".join(SECTIONS), suggest(name, [*SECTIONS])
            yield error("check.unknown_word:resilience", stmt.section.span, sections=words, name=name, help=help)
    for b in (b for b in stmt.bindings if known and b.name.id not in known):
        help = blocks.suggest_or_list(b.name.id, known)
        yield error("check.resilience", b.name.span, section=name, option=b.name.id, help=help)


def sets(stmt: ast.ResilienceStmt | ast.FieldsStmt) -> Iterator[ast.SetStmt]:
    """Yield a `set` for each field that a statement sets: of `resilience` the fields that switch the section on, unless
    an option replaces them, and its options."""
    if isinstance(stmt, ast.FieldsStmt):
        row, at = field_words.KEYWORDS[stmt.keyword.id], stmt.keyword.span
        stated = [("", at, stmt.value, stmt.span)] if stmt.value else []
        for name, at, value, span in (*stated, *((b.name.id, b.name.span, b.value, b.span) for b in stmt.bindings)):
            yield from (ast.SetStmt(ast.Name(path, at), value, span) for path in row[name])
        return
    of, span = SECTIONS[stmt.section.id], stmt.section.span
    stated = {b.name.id for b in stmt.bindings}
    for name, on in of.on.items():
        if name not in stated:
            value = ast.Bool(on, span) if isinstance(on, bool) else ast.Name(on, span)
            yield ast.SetStmt(ast.Name(f"{of.path}.{name}", span), value, stmt.span)
    for b in stmt.bindings:
        switched = blocks.switch(b.value)
        value = b.value if switched is None else ast.Bool(switched, b.value.span)
        yield ast.SetStmt(ast.Name(f"{of.path}.{b.name.id}", b.name.span), value, b.span)


SHARDED = {"fsdp": "fsdp", "3d": "optimizer"}
"""Options that pin the axis `sharding`, with the value they pin."""
VLM_OPTIONS = (*VLM_WORDS, *SHARDED)


def read_vlm(
    stmt: ast.VlmStmt, model: Model | None, pinned: ast.Binding | None, diagnostics: list[Diagnostic]
) -> tuple[frozenset[str], dict[str, Pin]]:
    """Return the frozen parts, and a pin of the sharding if an option sets it; `pinned` is the run's own pin.

    Errors go to `diagnostics`: check.not_a_vlm, check.unknown_word, check.twice; a warning: check.all_frozen.
    """
    sharded = [o for o in stmt.options if o.id in SHARDED]
    if model is not None and model.vision is None:
        fixes = (Fix("Drop `vlm`", DROP, stmt.span),)
        diagnostics.append(error("check.not_a_vlm", stmt.span, model=model.name, fixes=fixes))
    for o in (o for o in stmt.options if o.id not in VLM_OPTIONS):
        words, help = ", ".join(VLM_OPTIONS), suggest(o.id, [*VLM_OPTIONS])
        diagnostics.append(error("check.unknown_word:vlm", o.span, words=words, word=o.id, help=help))
    if len(sharded) > 1:
        first = Label(sharded[0].span, "first here")
        diagnostics.append(error("check.twice:fsdp", sharded[1].span, first))
    if sharded and pinned is not None:
        first = Label(pinned.span, "pinned here")
        diagnostics.append(error("check.twice:sharding", sharded[0].span, first, word=sharded[0].id))
    frozen = frozenset(o.id for o in stmt.options if o.id in VLM_WORDS)
    if frozen == {*VLM_WORDS}:
        diagnostics.append(warning("check.all_frozen", stmt.span))
    if not sharded:
        return frozen, {}
    code = axes.BY_NAME["sharding"].encode(SHARDED[sharded[0].id])
    return frozen, {"sharding": Pin("sharding", code, sharded[0].span)}


WORD = "hf"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w")


def read_weights(
    stmt: ast.WeightsStmt | None, sets: Mapping[str, Any], diagnostics: list[Diagnostic]
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name of the weights on Hugging Face (None if they are not from there), and the run's fields with the
    folder of the weights added."""
    if stmt is None:
        return None, sets
    wrong: list[Diagnostic] = []
    word, value, field = stmt.word, stmt.value, fine_tuning.FIELD
    if word is not None and word.id != WORD:
        help = suggest(word.id, [WORD]) or None
        wrong.append(error("check.unknown_word:weights", word.span, word=word.id, help=help))
    elif word is not None and not _NAME.fullmatch(value.value):
        wrong.append(error("check.weights:name", value.span, value=value.value))
    elif not value.value:
        wrong.append(error("check.weights:empty", value.span))
    if field in sets:
        fixes = (Fix("Drop this one", DROP, stmt.span),)
        wrong.append(error("check.twice:weights", stmt.span, field=field, fixes=fixes))
    wrong += overrides.secret("weights", value)
    diagnostics += wrong
    if wrong:
        return None, sets
    name = value.value if word else None
    return name, {**sets, field: fine_tuning.imported(name) if name else value.value}
