"""Read the statements of a run with options: `adapter`, `data`, `resilience`, `vlm` and `weights`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.cost import adapters as counts
from moedsl.cost import pipeline
from moedsl.facts import axes, fields, fine_tuning
from moedsl.facts.facts import Model
from moedsl.facts.families import PRESET_SPLITS, PRESETS
from moedsl.facts.fine_tuning import EXPERTS, METHODS, PARTS, SOURCES, TARGETS, Adapter, Samples
from moedsl.facts.symbols import VLM_WORDS
from moedsl.lang import ast
from moedsl.rules.check import overrides
from moedsl.rules.check.program import Pin
from moedsl.rules.evaluators import evaluate
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, error, suggest, warning
from moedsl.support.source import Span

OF_HUGGING_FACE = {
    "q_proj": "linear_qkv", "k_proj": "linear_qkv", "v_proj": "linear_qkv", "o_proj": "linear_proj",
    "gate_proj": "linear_fc1", "up_proj": "linear_fc1", "down_proj": "linear_fc2", "gate": "router",
    "q_a_proj": "linear_q_down_proj", "q_b_proj": "linear_q_up_proj",
    "kv_a_proj_with_mqa": "linear_kv_down_proj", "kv_b_proj": "linear_kv_up_proj",
}  # fmt: skip
"""The names that Hugging Face's models and its PEFT have for the targets."""
MOST_RANK = 8192
_FLAGS = {"on": True, "off": False}
TEXT, SWITCH = "a text", "on or off"
_FUSED = tuple(PARTS)
_SPLIT = tuple(name for parts in PARTS.values() for name in parts)


def read_adapter(stmt: ast.AdapterStmt | None, trains: bool, diagnostics: list[Diagnostic]) -> Adapter | None:
    """Read the adapter of a run that `trains` one; errors go to `diagnostics`."""
    if stmt is not None and not trains:
        text, help = "only `task peft` trains an adapter", "write `task peft`, or drop `adapter`"
        fixes = (Fix("Drop `adapter`", DROP, stmt.span),)
        diagnostics.append(error("check.adapter", text, stmt.span, help=help, fixes=fixes))
    method = stmt.method.id if stmt else METHODS[0]
    if stmt is not None and method not in METHODS:
        diagnostics.append(
            error(
                "check.unknown_word:adapter",
                stmt.method.span,
                methods=", ".join(METHODS),
                method=method,
                help=suggest(method, [*METHODS]),
            )
        )
        return None
    own = _options(stmt.bindings, method, diagnostics) if stmt else {}
    if not trains:
        return None
    options: dict[str, Any] = {**fine_tuning.defaults(method), "method": method, **own}
    return Adapter(**options)


def _options(bindings: tuple[ast.Binding, ...], method: str, diagnostics: list[Diagnostic]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for b in bindings:
        name = b.name.id
        found = [*_adapter_mistakes(b, method, own)]
        diagnostics += found
        if not found:
            own[name] = _ADAPTER_OPTIONS[name][0](b.value)
    return own


def _adapter_mistakes(b: ast.Binding, method: str, own: Mapping[str, Any]) -> Iterator[Diagnostic]:
    name = b.name.id
    if name not in _ADAPTER_OPTIONS:
        help = suggest(name, [*_ADAPTER_OPTIONS]) or (f"one of {', '.join(_ADAPTER_OPTIONS)}",)
        yield error("check.adapter:adapter", b.name.span, name=name, help=help)
    elif name in own:
        fixes = (Fix("Drop this one", DROP, b.span),)
        yield error("check.twice:option", b.span, name=name, fixes=fixes)
    elif _ADAPTER_OPTIONS[name][0](b.value) is None:
        yield mistyped(b, *_ADAPTER_OPTIONS[name][1:])
    elif not fine_tuning.has(method, name):
        yield error("check.adapter:bridge", b.span, method=method, name=name)
    elif name == "experts" and not fine_tuning.has_experts(method, _experts(b.value)):
        yield error("check.adapter:experts", b.span, method=method)
    elif name == "targets":
        yield from _targets(b.value, method)


def _targets(value: ast.Expr, method: str) -> Iterator[Diagnostic]:
    """Report unknown modules, and modules that the method names in parts or as a whole."""
    assert isinstance(value, ast.List)
    refused = _FUSED if method == "canonical_lora" else _SPLIT
    for item in value.items:
        assert isinstance(item, ast.Name)
        if item.id not in TARGETS:
            yield error("check.unknown_word:module", item.span, item=item.id, help=_meant(item.id, refused))
        elif item.id in refused:
            right = ", ".join(PARTS.get(item.id) or [w for w, parts in PARTS.items() if item.id in parts])
            cites = ("bridge peft/canonical_lora.py:277",)
            yield error(
                "check.adapter:unknown-target",
                item.span,
                method=method,
                item=item.id,
                help=Instead(f"write `{right}`", right),
                cites=cites,
            )


def _meant(word: str, refused: tuple[str, ...]) -> tuple[str, ...]:
    """What an unknown module may be, as the method names it."""
    target = OF_HUGGING_FACE.get(word)
    if target is not None and target in refused:
        target = next(p for p in PARTS[target] if p.endswith("_" + word.removesuffix("_proj")))
    if target is not None:
        return (Instead(f"in Megatron `{word}` of Hugging Face is in `{target}`", target),)
    return suggest(word, [*TARGETS]) or (f"one of {', '.join(TARGETS)}",)


def unbuilt(stmt: ast.AdapterStmt | None, a: Adapter, m: Model, anywhere: Span) -> Iterator[Diagnostic]:
    """Report targets that a model does not have: Bridge only warns of them, and trains nothing if it has none."""
    whole = pipeline.layout_for(m, 1, 1)
    if whole is None:
        return
    has = {t for t in TARGETS if counts.stage(m, evolve(a, targets=frozenset({t})), whole, 0, 1, 1, 1).total}
    cites = ("bridge peft/module_matcher.py:195",)
    if has.isdisjoint(a.targets):
        known = [t for t in TARGETS if t in has and t not in (_FUSED if a.method == "canonical_lora" else _SPLIT)]
        yield error(
            "check.adapter:no-targets",
            stmt.span if stmt else anywhere,
            m=m.name,
            targets=" and no ".join(sorted(a.targets)),
            known=", ".join(known),
            cites=cites,
        )
    elif stmt is not None:
        values = (b.value for b in stmt.bindings if b.name.id == "targets" and isinstance(b.value, ast.List))
        for item in (i for v in values for i in v.items if isinstance(i, ast.Name) and i.id not in has):
            yield warning("check.adapter_target", item.span, m=m.name, item=item.id, cites=cites)


def mistyped(b: ast.Binding, takes: str, example: str) -> Diagnostic:
    """Report a value that an option does not take; a text without quotes keeps its word."""
    help: str = f"write `{example}`"
    if takes == TEXT and isinstance(b.value, ast.Name):
        right = f'"{b.value.id}"'
        help = Instead(f"write `{b.name.id}={right}`", right)
    elif takes == SWITCH and (on := _said(b.value)):
        help = Instead(f"write `{b.name.id}={on}`", on)
    return error("check.type:option", b.value.span, b=b.name.id, takes=takes, help=help)


def _whole(value: ast.Expr) -> int | None:
    number = evaluate(value, {}) if isinstance(value, ast.Number) and value.unit is None else None
    return number if isinstance(number, int) and 0 < number <= MOST_RANK else None


def _share(value: ast.Expr) -> float | None:
    number = evaluate(value, {}) if isinstance(value, ast.Number) and value.unit in (None, "%") else None
    return float(number) if number is not None and 0 <= number < 1 else None


def _said(value: ast.Expr) -> str:
    """`on` or `off` for another word of it; "" for no such word."""
    word = value.id.lower() if isinstance(value, ast.Name) else value.value if isinstance(value, ast.Bool) else ""
    return {True: "on", "true": "on", "yes": "on", False: "off", "false": "off", "no": "off"}.get(word, "")


def flag(value: ast.Expr) -> bool | None:
    """Read `on` or `off`."""
    return _FLAGS.get(value.id) if isinstance(value, ast.Name) else None


def _experts(value: ast.Expr) -> str | None:
    return value.id if isinstance(value, ast.Name) and value.id in EXPERTS else None


def _names(value: ast.Expr) -> frozenset[str] | None:
    names = [i.id for i in value.items if isinstance(i, ast.Name)] if isinstance(value, ast.List) else []
    return frozenset(names) if names and len(names) == len(value.items) else None  # type: ignore[union-attr]


_ADAPTER_OPTIONS: Mapping[str, tuple[Callable[[ast.Expr], Any], str, str]] = {
    "rank": (_whole, "a whole number from 1 to 8192", "rank=32"),
    "alpha": (_whole, "a whole number from 1 to 8192", "alpha=32"),
    "dropout": (_share, "a share below 1", "dropout=0.1"),
    "targets": (_names, "a list of modules", "targets=[linear_qkv, linear_proj]"),
    "experts": (_experts, f"one of {', '.join(EXPERTS)}", "experts=each"),
    "normalized": (flag, SWITCH, "normalized=on"),
    "regather": (flag, SWITCH, "regather=on"),
}
"""Each option with its reader, and what it takes."""
ADAPTER_OPTIONS = tuple(_ADAPTER_OPTIONS)


MOST_LENGTHS = 1024
_HUB = SOURCES[1]
WORDS = ("mock", _HUB)
_TEXT = "write `task sft` or `task peft`; for pretraining, tokenise it with Megatron's `tools/preprocess_data.py`"
_ENERGON = 'a model with images reads an Energon dataset: write `data "PATH"` of its folder, or `data mock`'


def read_data(
    stmt: ast.DataStmt | None, reads_samples: bool, images: bool, diagnostics: list[Diagnostic]
) -> tuple[str, Samples | None]:
    """Read the data of a run, which reads samples of a text if it fine-tunes on one, or images; errors go to
    `diagnostics`."""
    if stmt is None:
        return "mock", None
    diagnostics += _source(stmt, reads_samples, images)
    samples = Samples(source=_HUB) if stmt.word else Samples()
    for b in stmt.bindings:
        found = [*_data_mistakes(b, stmt, reads_samples)]
        diagnostics += found
        samples = samples if found else evolve(samples, **{b.name.id: _DATA_OPTIONS[b.name.id][0](b.value)})
    return (stmt.value.value, samples if reads_samples else None) if stmt.value else ("mock", None)


def _source(stmt: ast.DataStmt, reads_samples: bool, images: bool) -> Iterator[Diagnostic]:
    word, value = stmt.word.id if stmt.word else "", stmt.value
    span = (stmt.word or stmt.value or stmt).span
    if word and word not in WORDS:
        yield error("check.unknown_word:data", span, words=", ".join(WORDS), word=word, help=_near(word))
    elif word == "mock" and value is not None:
        yield error("check.data:mock-data", value.span)
    elif word == _HUB and value is None:
        yield error("check.data:data-set", span)
    elif value is not None and value.value in ("", "mock"):
        help = f'write `data {word} "ORG/NAME"`' if word == _HUB else 'write `data mock` or `data "path"`'
        yield error("check.data:path", value.span, help=help)
    elif word == _HUB and not reads_samples:
        yield error("check.data:only-fine", span, help=_ENERGON if images else _TEXT)
    elif word == _HUB and value is not None and "/" not in value.value and value.value not in PRESETS:
        help = suggest(value.value, [*PRESETS]) or (f'write `data hf "ORG/NAME"`, or one of {", ".join(PRESETS)}',)
        yield error(
            "check.data:unknown-set", value.span, value=value.value, help=help, cites=("bridge data/sources/hf.py:129",)
        )
    if value is not None:
        yield from overrides.secret("data", value)


def _near(word: str) -> tuple[str, ...]:
    if "." in word:
        return (Instead(f'write a path in double quotes: `data "{word}"`', f'"{word}"'),)
    if word in PRESETS:
        return (Instead(f'write `data hf "{word}"`', f'hf "{word}"'),)
    return suggest(word, [*WORDS]) or ('write `data mock` or `data "path"`',)


def _data_mistakes(b: ast.Binding, stmt: ast.DataStmt, reads_samples: bool) -> Iterator[Diagnostic]:
    name = b.name.id
    fixes = (Fix("Drop this one", DROP, b.span),)
    if name not in _DATA_OPTIONS:
        help = suggest(name, [*_DATA_OPTIONS]) or (f"one of {', '.join(_DATA_OPTIONS)}",)
        yield error("check.data:data", b.name.span, name=name, help=help)
    elif next(o for o in stmt.bindings if o.name.id == name) is not b:
        yield error("check.twice:option", b.span, name=name, fixes=fixes)
    elif _DATA_OPTIONS[name][0](b.value) is None:
        yield mistyped(b, *_DATA_OPTIONS[name][1:])
    elif not reads_samples or stmt.value is None:
        yield error("check.data:samples", b.span, name=name, fixes=fixes)
    elif name in ("split", "subset") and not stmt.word:
        yield error("check.data:training", b.span, name=name, fixes=fixes)
    elif name == "subset" and stmt.value.value in PRESETS:
        yield error(
            "check.data:subset", b.span, stmt=stmt.value.value, fixes=fixes, cites=("bridge data/sources/hf.py:85",)
        )

    elif name == "split" and stmt.value.value in PRESETS:
        yield from _of_preset(b, stmt.value.value)


def _of_preset(b: ast.Binding, data: str) -> Iterator[Diagnostic]:
    """Refuse a part of a split, as in `train[:5%]+test`, that Bridge's own data set does not have."""
    parts = [part.partition("[")[0] for part in (_text(b.value) or "").split("+")]
    known = PRESET_SPLITS[data]
    for part in dict.fromkeys(p for p in parts if p not in known):
        yield error(
            "check.data:split",
            b.span,
            data=data,
            part=part,
            known=", ".join(known),
            known2=known[0],
            cites=("bridge data/sources/hf.py:208",),
        )


def _lengths(value: ast.Expr) -> tuple[float, ...] | None:
    items = value.items if isinstance(value, ast.List) else ()
    numbers = [evaluate(i, {}) for i in items if isinstance(i, ast.Number) and i.unit is None]
    fine = 0 < len(numbers) == len(items) <= MOST_LENGTHS and all(0 < n < 2**31 for n in numbers)
    return tuple(sorted(map(float, numbers))) if fine else None


def _text(value: ast.Expr) -> str | None:
    return value.value if isinstance(value, ast.String) and value.value.strip() else None


_DATA_OPTIONS: Mapping[str, tuple[Callable[[ast.Expr], Any], str, str]] = {
    "pack": (flag, SWITCH, "pack=off"),
    "lengths": (_lengths, f"a list of at most {MOST_LENGTHS} numbers of tokens", "lengths=[120, 350, 900]"),
    "split": (_text, TEXT, 'split="train"'),
    "subset": (_text, TEXT, 'subset="main"'),
}
"""Each option with its reader, and what it takes."""
OPTIONS = tuple(_DATA_OPTIONS)


@frozen
class Section:
    """What a word of `resilience` stands for."""

    path: str
    """The section of Bridge's ConfigContainer."""
    on: Mapping[str, bool | str]
    """The fields that switch it on."""
    options: tuple[str, ...] = ()
    """The fields that belong to it; empty: all of the section."""


SECTIONS: Mapping[str, Section] = {
    "ft": Section("ft", {"enable_ft_package": True, "calc_ft_timeouts": True}),
    "inprocess_restart": Section("inprocess_restart", {"enabled": True}),
    "nvrx_straggler": Section("nvrx_straggler", {"enabled": True}),
    "preemption": Section("train", {"exit_signal_handler": True}, ("exit_signal_handler_for_dataloader",)),
    "rerun_state_machine": Section("rerun_state_machine", {"rerun_mode": "validate_results"}),
}
"""The words of `resilience`: Bridge's names of its sections, and preemption, the name of NVIDIA's plugin."""


def options(section: str) -> tuple[str, ...]:
    """The options of a section: fields of Bridge."""
    of = SECTIONS[section]
    named = tuple(path.partition(".")[2] for path in fields.fields() if path.startswith(f"{of.path}."))
    return of.options or named


def mistakes(stmt: ast.ResilienceStmt) -> Iterator[Diagnostic]:
    """Report an unknown section, and options that it does not have."""
    name = stmt.section.id
    if name not in SECTIONS:
        yield error(
            "check.unknown_word:resilience",
            stmt.section.span,
            sections=", ".join(SECTIONS),
            name=name,
            help=suggest(name, [*SECTIONS]),
        )
        return
    known = options(name)
    for b in stmt.bindings:
        if b.name.id not in known:
            help = suggest(b.name.id, [*known]) or (f"one of {', '.join(known)}",)
            yield error("check.resilience", b.name.span, name=name, b=b.name.id, help=help)


def sets(stmt: ast.ResilienceStmt) -> Iterator[ast.SetStmt]:
    """The fields that a statement sets: those that switch the section on, and its options, which may replace them."""
    of, span = SECTIONS[stmt.section.id], stmt.section.span
    stated = {b.name.id for b in stmt.bindings}
    for name, on in of.on.items():
        if name not in stated:
            value = ast.Bool(on, span) if isinstance(on, bool) else ast.Name(on, span)
            yield ast.SetStmt(ast.Name(f"{of.path}.{name}", span), value, stmt.span)
    for b in stmt.bindings:
        yield ast.SetStmt(ast.Name(f"{of.path}.{b.name.id}", b.name.span), _flag(b.value), b.span)


def _flag(value: ast.Expr) -> ast.Expr:
    """Read `on` and `off` as true and false."""
    return ast.Bool(_FLAGS[value.id], value.span) if isinstance(value, ast.Name) and value.id in _FLAGS else value


SHARDED = {"fsdp": "fsdp", "3d": "optimizer"}
"""Options that decide the axis `sharding`, with their values."""
VLM_OPTIONS = (*VLM_WORDS, *SHARDED)


def read_vlm(
    stmt: ast.VlmStmt, model: Model | None, pinned: ast.Binding | None, diagnostics: list[Diagnostic]
) -> tuple[frozenset[str], dict[str, Pin]]:
    """Read the frozen parts, and the pin of the sharding if an option decides it; `pinned` is the run's own pin.

    Errors go to `diagnostics`: check.not_a_vlm, check.unknown_word, check.twice; a warning: check.all_frozen.
    """
    sharded = [o for o in stmt.options if o.id in SHARDED]
    diagnostics += [*_no_tower(stmt, model), *_unknown(stmt), *_twice(sharded, pinned)]
    frozen = frozenset(o.id for o in stmt.options if o.id in VLM_WORDS)
    if frozen == {*VLM_WORDS}:
        diagnostics.append(warning("check.all_frozen", stmt.span))
    return frozen, {"sharding": _pin(sharded[0])} if sharded else {}


def _pin(option: ast.Name) -> Pin:
    return Pin("sharding", axes.BY_NAME["sharding"].encode(SHARDED[option.id]), option.span)


def _no_tower(stmt: ast.VlmStmt, model: Model | None) -> Iterator[Diagnostic]:
    if model is not None and model.vision is None:
        text, help = f"{model.name} has no vision tower", "drop `vlm`, or name a VLM"
        yield error("check.not_a_vlm", text, stmt.span, help=help, fixes=(Fix("Drop `vlm`", DROP, stmt.span),))


def _unknown(stmt: ast.VlmStmt) -> Iterator[Diagnostic]:
    for o in stmt.options:
        if o.id not in VLM_OPTIONS:
            yield error(
                "check.unknown_word:vlm",
                o.span,
                vlm_options=", ".join(VLM_OPTIONS),
                o=o.id,
                help=suggest(o.id, [*VLM_OPTIONS]),
            )


def _twice(sharded: list[ast.Name], pinned: ast.Binding | None) -> Iterator[Diagnostic]:
    """Report two words for the sharding, or a word and a pin."""
    if len(sharded) > 1:
        first = Label(sharded[0].span, "first here")
        yield error("check.twice:fsdp", sharded[1].span, first)
    if sharded and pinned is not None:
        text, first = f"`vlm {sharded[0].id}` decides the sharding", Label(pinned.span, "pinned here")
        yield error("check.twice", text, sharded[0].span, first, help="keep one of them")


WORD = "hf"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w")


def read_weights(
    stmt: ast.WeightsStmt | None, tunes: bool, sets: Mapping[str, Any], diagnostics: list[Diagnostic]
) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name on Hugging Face, if the run has one, and the run's fields with the folder of its weights."""
    if stmt is None:
        return None, sets
    wrong = [*_weights_mistakes(stmt, tunes, sets)]
    diagnostics += wrong
    if wrong:
        return None, sets
    name = stmt.value.value if stmt.word else None
    return name, {**sets, fine_tuning.FIELD: fine_tuning.imported(name) if name else stmt.value.value}


def _weights_mistakes(stmt: ast.WeightsStmt, tunes: bool, sets: Mapping[str, Any]) -> Iterator[Diagnostic]:
    word, value = stmt.word, stmt.value
    if word is not None and word.id != WORD:
        help = suggest(word.id, [WORD]) or ('write `weights hf "ORG/NAME"` or `weights "PATH"`',)
        yield error("check.unknown_word:weights", word.span, word=word.id, help=help)
    elif word is not None and not _NAME.fullmatch(value.value):
        yield error("check.weights:name", value.span, value=value.value)
    elif not value.value:
        yield error("check.weights:empty", value.span)
    if not tunes:
        help = "write `task sft` or `task peft`, or drop `weights`"
        if not word:
            help += f"; to pretrain further, `set {fine_tuning.FIELD} = {json.dumps(value.value)}`"
        yield error(
            "check.weights:not-fine-tuning", stmt.span, help=help, fixes=(Fix("Drop `weights`", DROP, stmt.span),)
        )
    elif fine_tuning.FIELD in sets:
        fixes = (Fix("Drop this one", DROP, stmt.span),)
        yield error("check.twice:weights", stmt.span, field=fine_tuning.FIELD, fixes=fixes)
    yield from overrides.secret("weights", value)
