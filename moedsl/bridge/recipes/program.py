"""Write the words of a recipe as a program, with fields of Bridge below them as `set` statements and comments."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import asdict, field, frozen

from moedsl.bridge.recipes.stated import Stated
from moedsl.facts import axes, secrets
from moedsl.facts.adapter import TARGETS, Adapter
from moedsl.facts.adapters import defaults
from moedsl.facts.recipes import pins
from moedsl.facts.samples import Samples
from moedsl.lang.formatter import format_source
from moedsl.lang.printer import quote
from moedsl.support.source import Source
from moedsl.support.text import tokens

MARK = "by `moedsl import`"
PRECISION = "precision"


@frozen
class Below:
    """What follows the words: fields that a run may set, and comments on the rest."""

    sets: Mapping[str, Any] = field(factory=dict)
    comments: tuple[str, ...] = ()
    env: Mapping[str, Any] = field(factory=dict)
    """Environment variables that a plan would not set so."""
    allow: str | None = None
    """A rule that the recipe breaks and the program allows."""


def text(s: Stated, origin: str, below: Below) -> str:
    """Write the program as `moedsl fmt` does."""
    whole = "\n".join([f"# Written from {origin} {MARK}.", *_words(s), "", *_layout(s), *_below(below)]) + "\n"
    made, found = format_source(Source("recipe.moe", whole))
    assert made is not None, found
    return made


def _words(s: Stated) -> Iterator[str]:
    yield f"model {s.model.name}"
    yield f"{s.hardware} x {s.gpus}"
    yield f"seq {tokens(s.seq)}"
    yield f"batch {s.batch}"
    yield from (f"precision {p}" for p in [s.formats.get(PRECISION)] if p)
    yield from ([f"task {s.task}"] if s.task != "pretrain" else [])
    yield from ([_adapter(s.adapter)] if s.adapter else [])
    yield from ([f"vlm {' '.join(s.frozen)}"] if s.frozen else [])
    yield from ([_data(s.data, s.samples)] if s.data else [])
    yield from ([f"routing {s.routing}"] if s.routing != "natural" else [])
    yield "throughput first"


_FLAGS = {True: "on", False: "off"}


def _data(name: str, samples: Samples | None) -> str:
    """The data with how its samples are read."""
    words = ["data", *(["hf"] if samples and samples.source == "hf" else []), quote(name)]
    if samples:
        options = {"split": samples.split, "subset": samples.subset}
        words += [f"pack={_FLAGS[bool(samples.pack)]}", *(f"{n}={quote(v)}" for n, v in options.items() if v)]
    return " ".join(words)


def _adapter(a: Adapter) -> str:
    """The adapter with what differs from its defaults."""
    own = {n: v for n, v in asdict(a, recurse=False).items() if n != "method" and v != defaults(a.method)[n]}
    if "targets" in own:
        own["targets"] = [t for t in TARGETS if t in a.targets]
    words = (f"{n}={_FLAGS[v] if isinstance(v, bool) else axes.written(v)}" for n, v in own.items())
    return " ".join([f"adapter {a.method}", *words])


def _layout(s: Stated) -> Iterator[str]:
    off = {a.name: a.decode(a.off) for a in axes.AXES if not a.is_format and a.name not in s.unknown}
    yield from pins(off | dict(s.layout)).splitlines()
    formats = " ".join(f"{n}={v}" for n, v in s.formats.items() if n != PRECISION)
    yield from ([f"pin {formats}"] if formats else [])


def _below(below: Below) -> Iterator[str]:
    if below.allow:
        yield f'allow {below.allow} because "the layout of the recipe"'
    if below.sets:
        yield from ("", "# Fields that the recipe sets and a plan would not")
        yield from (f"set {path} = {literal(value)}" for path, value in below.sets.items())
    if below.env:
        yield from ("", "rules recipe {", *(line for n, v in below.env.items() for line in _variable(n, v)), "}")
    if below.comments:
        yield from ("", "# Of the recipe, but no statement:", *(f"#   {line}" for line in below.comments))


def _variable(name: str, value: Any) -> tuple[str, ...]:
    return f"env {name} = {literal(value)}", 'because "the recipe sets it"', f"cite ours {quote(name)}"


def literal(value: Any) -> str:
    """Write a JSON value as a literal of the language."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, str):
        return quote(value)
    return "none" if value is None else json.dumps(value)


def shown(path: str, value: Any) -> str:
    """Write a field with its value for a comment; a program is a file, so the value of a secret stays out.

    The commit of a repository looks like one, and is none.
    """
    text = literal(value) if is_literal(value) else str(value)
    own = {n: v for n, v in value.items() if n != "revision"} if isinstance(value, Mapping) else text
    return f"{path} = {'(a secret)' if is_secret(path.rpartition('.')[2], str(own)) else text}"


def is_secret(name: str, text: str) -> bool:
    """Whether a field or a variable looks like a secret by its name or its value."""
    return secrets.value_kind(text) is not None or secrets.is_secret_name(name)


def is_literal(value: Any) -> bool:
    """Whether the language can write a value: a scalar or a list of scalars, but not NaN, an infinite number or the
    name of an object's class."""
    if isinstance(value, list):
        return all(is_literal(v) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, str) and value[:1] != "<")
