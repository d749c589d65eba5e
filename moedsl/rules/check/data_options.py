"""Read `data`: random tokens, a path, or a data set of Hugging Face, and what is known of the samples of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.facts.families import PRESET_SPLITS, PRESETS
from moedsl.facts.samples import SOURCES, Samples
from moedsl.lang import ast
from moedsl.rules.check import overrides
from moedsl.rules.check.adapter_options import SWITCH, TEXT, flag, mistyped
from moedsl.rules.interpreter import evaluate
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, error, suggest

MOST_LENGTHS = 1024
_HUB = SOURCES[1]
WORDS = ("mock", _HUB)
_TEXT = "write `task sft` or `task peft`; for pretraining, tokenise it with Megatron's `tools/preprocess_data.py`"
_ENERGON = 'a model with images reads an Energon dataset: write `data "PATH"` of its folder, or `data mock`'


def read(
    stmt: ast.DataStmt | None, reads_samples: bool, images: bool, diagnostics: list[Diagnostic]
) -> tuple[str, Samples | None]:
    """Read the data of a run, which reads samples of a text if it fine-tunes on one, or images; errors go to
    `diagnostics`."""
    if stmt is None:
        return "mock", None
    diagnostics += _source(stmt, reads_samples, images)
    samples = Samples(source=_HUB) if stmt.word else Samples()
    for b in stmt.bindings:
        found = [*_mistakes(b, stmt, reads_samples)]
        diagnostics += found
        samples = samples if found else evolve(samples, **{b.name.id: _OPTIONS[b.name.id][0](b.value)})
    return (stmt.value.value, samples if reads_samples else None) if stmt.value else ("mock", None)


def _source(stmt: ast.DataStmt, reads_samples: bool, images: bool) -> Iterator[Diagnostic]:
    word, value = stmt.word.id if stmt.word else "", stmt.value
    span = (stmt.word or stmt.value or stmt).span
    if word and word not in WORDS:
        yield error("check.unknown_word", f"`data` is one of {', '.join(WORDS)}, not `{word}`", span, help=_near(word))
    elif word == "mock" and value is not None:
        yield error("check.data", "mock data has no name", value.span, help="write `data mock`")
    elif word == _HUB and value is None:
        yield error("check.data", "a data set of Hugging Face has a name", span, help='write `data hf "ORG/NAME"`')
    elif value is not None and value.value in ("", "mock"):
        help = f'write `data {word} "ORG/NAME"`' if word == _HUB else 'write `data mock` or `data "path"`'
        yield error("check.data", "a data path must not be empty or `mock`", value.span, help=help)
    elif word == _HUB and not reads_samples:
        text = "only fine-tuning on text reads a data set of Hugging Face"
        yield error("check.data", text, span, help=_ENERGON if images else _TEXT)
    elif word == _HUB and value is not None and "/" not in value.value and value.value not in PRESETS:
        text = f"Bridge has no text data set of its own called `{value.value}`"
        help = suggest(value.value, [*PRESETS]) or (f'write `data hf "ORG/NAME"`, or one of {", ".join(PRESETS)}',)
        yield error("check.data", text, value.span, help=help, cites=("bridge data/sources/hf.py:129",))
    if value is not None:
        yield from overrides.secret("data", value)


def _near(word: str) -> tuple[str, ...]:
    if "." in word:
        return (Instead(f'write a path in double quotes: `data "{word}"`', f'"{word}"'),)
    if word in PRESETS:
        return (Instead(f'write `data hf "{word}"`', f'hf "{word}"'),)
    return suggest(word, [*WORDS]) or ('write `data mock` or `data "path"`',)


def _mistakes(b: ast.Binding, stmt: ast.DataStmt, reads_samples: bool) -> Iterator[Diagnostic]:
    name = b.name.id
    fixes = (Fix("Drop this one", DROP, b.span),)
    if name not in _OPTIONS:
        help = suggest(name, [*_OPTIONS]) or (f"one of {', '.join(_OPTIONS)}",)
        yield error("check.data", f"`data` has no `{name}`", b.name.span, help=help)
    elif next(o for o in stmt.bindings if o.name.id == name) is not b:
        yield error("check.twice", f"`{name}` is stated twice", b.span, help="keep one of them", fixes=fixes)
    elif _OPTIONS[name][0](b.value) is None:
        yield mistyped(b, *_OPTIONS[name][1:])
    elif not reads_samples or stmt.value is None:
        text = f"`{name}` is for samples, which only fine-tuning on text reads"
        help = 'write `task sft` and `data "FOLDER"`, or drop it'
        yield error("check.data", text, b.span, help=help, fixes=fixes)
    elif name in ("split", "subset") and not stmt.word:
        text = f"a folder has no `{name}`: it has training.jsonl and validation.jsonl"
        yield error("check.data", text, b.span, help="drop it", fixes=fixes)
    elif name == "subset" and stmt.value.value in PRESETS:
        text = f"Bridge's own `{stmt.value.value}` has its subset already"
        help = 'drop it, or name the data set in full: `data hf "ORG/NAME"`'
        yield error("check.data", text, b.span, help=help, fixes=fixes, cites=("bridge data/sources/hf.py:85",))

    elif name == "split" and stmt.value.value in PRESETS:
        yield from _of_preset(b, stmt.value.value)


def _of_preset(b: ast.Binding, data: str) -> Iterator[Diagnostic]:
    """Refuse a part of a split, as in `train[:5%]+test`, that Bridge's own data set does not have."""
    parts = [part.partition("[")[0] for part in (_text(b.value) or "").split("+")]
    known = PRESET_SPLITS[data]
    for part in dict.fromkeys(p for p in parts if p not in known):
        text = f"Bridge's own `{data}` has no split `{part}`"
        help = f'it has {", ".join(known)}; write a part of one as `split="{known[0]}[:5%]"`'
        yield error("check.data", text, b.span, help=help, cites=("bridge data/sources/hf.py:208",))


def _lengths(value: ast.Expr) -> tuple[float, ...] | None:
    items = value.items if isinstance(value, ast.List) else ()
    numbers = [evaluate(i, {}) for i in items if isinstance(i, ast.Number) and i.unit is None]
    fine = 0 < len(numbers) == len(items) <= MOST_LENGTHS and all(0 < n < 2**31 for n in numbers)
    return tuple(sorted(map(float, numbers))) if fine else None


def _text(value: ast.Expr) -> str | None:
    return value.value if isinstance(value, ast.String) and value.value.strip() else None


_OPTIONS: Mapping[str, tuple[Callable[[ast.Expr], Any], str, str]] = {
    "pack": (flag, SWITCH, "pack=off"),
    "lengths": (_lengths, f"a list of at most {MOST_LENGTHS} numbers of tokens", "lengths=[120, 350, 900]"),
    "split": (_text, TEXT, 'split="train"'),
    "subset": (_text, TEXT, 'subset="main"'),
}
"""Each option with its reader, and what it takes."""
OPTIONS = tuple(_OPTIONS)
