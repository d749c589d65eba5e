"""List the facts of each kind of block with meanings and words, from the classes that the compiler reads them into."""

from __future__ import annotations

import ast as python
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import attrs

from moedsl.facts import symbols
from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model, Vision
from moedsl.rules.calibrations import EVERY
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.rules.declarations import UNITS
from moedsl.rules.library import Library

BLOCKS: Mapping[str, type] = {
    "model": Model,
    "hardware": Hardware,
    "vision": Vision,
    "cluster": Cluster,
    "calibration": Constants,
}
"""The subject of a block's facts, in words."""
_WHOSE = {"model": "a model", "hardware": "hardware", "vision": "a vision tower", "cluster": "a cluster"}
_FILLED = ("name", "sources", "constants", "known")
_WORDS = {"attention": ("gqa", "mla"), "arch": symbols.ARCHS}


def of(block: str) -> list[Any]:
    """The fields that a block may state."""
    cls = BLOCKS.get(block)
    return [f for f in attrs.fields(cls) if f.name not in _FILLED] if cls else []


def page(block: str, word: str, library: Library) -> str | None:
    """Describe a fact of a declaration in Markdown."""
    if block == "calibration":
        return _constant(word, library)
    found = next((f for f in of(block) if f.name == word), None)
    if found is None:
        return None
    meaning = docs(BLOCKS[block]).get(word, "")
    return f"**{word}**, a fact of {_WHOSE.get(block, 'a ' + block)} ({found.type})" + (
        f"\n\n{meaning}" if meaning else ""
    )


def _constant(word: str, library: Library) -> str | None:
    made, _ = library.constants(EVERY)
    c = made.known.get(word) if made else None
    if c is None:
        return None
    lines = (c.about, f"{c.low:g} to {c.high:g} {c.unit}", f"measured by: {c.measure}", f"source: {c.source}")
    return "\n\n".join((f"**{word}**, a constant of a calibration", *lines))


def words(block: str, word: str, library: Library) -> tuple[str, ...]:
    """The words that a fact may be; none for a size or a text."""
    found = next((f for f in of(block) if f.name == word), None)
    kind = found.metadata.get("kind") if found else None
    if block == "cluster" and word == "hardware":
        return tuple(library.hardware)
    if kind is not None:
        return ("on", "off") if kind.form == "flag" else kind.words
    if found is not None and str(found.type) == "bool":
        return ("true", "false")
    return _WORDS.get(word, ())


def units(block: str, word: str) -> tuple[str, ...]:
    """The units of which a fact needs one."""
    return UNITS.get((BLOCKS.get(block, object), word), ())


@cache
def docs(cls: type) -> Mapping[str, str]:
    """The meaning of each field of a facts class: the docstring below it."""
    tree = python.parse(inspect.getsource(inspect.getmodule(cls) or cls))
    found = next(n for n in tree.body if isinstance(n, python.ClassDef) and n.name == cls.__name__)
    return dict(_documented(found.body))


def _documented(body: list[Any]) -> Iterator[tuple[str, str]]:
    for before, node in pairwise(body):
        text = node.value.value if isinstance(node, python.Expr) and isinstance(node.value, python.Constant) else None
        if isinstance(text, str) and isinstance(before, python.AnnAssign) and isinstance(before.target, python.Name):
            yield before.target.id, " ".join(text.split())
