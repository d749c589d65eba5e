"""Read `adapter`: what `task peft` trains. What it leaves out is the default of Bridge's class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.cost import adapters as counts
from moedsl.cost import pipeline
from moedsl.facts import adapters
from moedsl.facts.adapter import EXPERTS, METHODS, PARTS, TARGETS, Adapter
from moedsl.facts.facts import Model
from moedsl.lang import ast
from moedsl.rules.interpreter import evaluate
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, error, suggest, warning
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


def read(stmt: ast.AdapterStmt | None, trains: bool, diagnostics: list[Diagnostic]) -> Adapter | None:
    """Read the adapter of a run that `trains` one; errors go to `diagnostics`."""
    if stmt is not None and not trains:
        text, help = "only `task peft` trains an adapter", "write `task peft`, or drop `adapter`"
        fixes = (Fix("Drop `adapter`", DROP, stmt.span),)
        diagnostics.append(error("check.adapter", text, stmt.span, help=help, fixes=fixes))
    method = stmt.method.id if stmt else METHODS[0]
    if stmt is not None and method not in METHODS:
        text = f"an adapter is one of {', '.join(METHODS)}, not `{method}`"
        diagnostics.append(error("check.unknown_word", text, stmt.method.span, help=suggest(method, [*METHODS])))
        return None
    own = _options(stmt.bindings, method, diagnostics) if stmt else {}
    if not trains:
        return None
    options: dict[str, Any] = {**adapters.defaults(method), "method": method, **own}
    return Adapter(**options)


def _options(bindings: tuple[ast.Binding, ...], method: str, diagnostics: list[Diagnostic]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for b in bindings:
        name = b.name.id
        found = [*_mistakes(b, method, own)]
        diagnostics += found
        if not found:
            own[name] = _OPTIONS[name][0](b.value)
    return own


def _mistakes(b: ast.Binding, method: str, own: Mapping[str, Any]) -> Iterator[Diagnostic]:
    name = b.name.id
    if name not in _OPTIONS:
        help = suggest(name, [*_OPTIONS]) or (f"one of {', '.join(_OPTIONS)}",)
        yield error("check.adapter", f"an adapter has no `{name}`", b.name.span, help=help)
    elif name in own:
        fixes = (Fix("Drop this one", DROP, b.span),)
        yield error("check.twice", f"`{name}` is stated twice", b.span, help="keep one of them", fixes=fixes)
    elif _OPTIONS[name][0](b.value) is None:
        yield mistyped(b, *_OPTIONS[name][1:])
    elif not adapters.has(method, name):
        yield error("check.adapter", f"{method} has no `{name}` in Bridge", b.span, help="use `adapter lora`")
    elif name == "experts" and not adapters.has_experts(method, _experts(b.value)):
        yield error("check.adapter", f"{method} has no `experts=outer` in Bridge", b.span, help="use `adapter lora`")
    elif name == "targets":
        yield from _targets(b.value, method)


def _targets(value: ast.Expr, method: str) -> Iterator[Diagnostic]:
    """Report unknown modules, and modules that the method names in parts or as a whole."""
    assert isinstance(value, ast.List)
    refused = _FUSED if method == "canonical_lora" else _SPLIT
    for item in value.items:
        assert isinstance(item, ast.Name)
        if item.id not in TARGETS:
            text = f"no module that takes an adapter is called `{item.id}`"
            yield error("check.unknown_word", text, item.span, help=_meant(item.id, refused))
        elif item.id in refused:
            right = ", ".join(PARTS.get(item.id) or [w for w, parts in PARTS.items() if item.id in parts])
            text = f"{method} does not know `{item.id}`"
            cites = ("bridge peft/canonical_lora.py:277",)
            yield error("check.adapter", text, item.span, help=Instead(f"write `{right}`", right), cites=cites)


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
        text = f"this adapter trains nothing of {m.name}: it has no {' and no '.join(sorted(a.targets))} that it adapts"
        known = [t for t in TARGETS if t in has and t not in (_FUSED if a.method == "canonical_lora" else _SPLIT)]
        help = f"`targets=[...]` takes {', '.join(known)}"
        yield error("check.adapter", text, stmt.span if stmt else anywhere, help=help, cites=cites)
    elif stmt is not None:
        values = (b.value for b in stmt.bindings if b.name.id == "targets" and isinstance(b.value, ast.List))
        for item in (i for v in values for i in v.items if isinstance(i, ast.Name) and i.id not in has):
            text = f"{m.name} has no `{item.id}` that this adapter adapts, so Bridge leaves it out"
            yield warning("check.adapter_target", text, item.span, help="drop it", cites=cites)


def mistyped(b: ast.Binding, takes: str, example: str) -> Diagnostic:
    """Report a value that an option does not take; a text without quotes keeps its word."""
    help: str = f"write `{example}`"
    if takes == TEXT and isinstance(b.value, ast.Name):
        right = f'"{b.value.id}"'
        help = Instead(f"write `{b.name.id}={right}`", right)
    elif takes == SWITCH and (on := _said(b.value)):
        help = Instead(f"write `{b.name.id}={on}`", on)
    return error("check.type", f"`{b.name.id}` is {takes}", b.value.span, help=help)


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


_OPTIONS: Mapping[str, tuple[Callable[[ast.Expr], Any], str, str]] = {
    "rank": (_whole, "a whole number from 1 to 8192", "rank=32"),
    "alpha": (_whole, "a whole number from 1 to 8192", "alpha=32"),
    "dropout": (_share, "a share below 1", "dropout=0.1"),
    "targets": (_names, "a list of modules", "targets=[linear_qkv, linear_proj]"),
    "experts": (_experts, f"one of {', '.join(EXPERTS)}", "experts=each"),
    "normalized": (flag, SWITCH, "normalized=on"),
    "regather": (flag, SWITCH, "regather=on"),
}
"""Each option with its reader, and what it takes."""
OPTIONS = tuple(_OPTIONS)
