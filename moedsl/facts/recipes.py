"""Find the recipes that Megatron Bridge ships for the stdlib's models, and write a recipe's layout as pins.

`tools/make_recipes.py` writes the table from the installed wheel, a line for each recipe that Bridge accepts and the
language can express. A line is parsed only when needed, so that a plan without a recipe costs only one search.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.fields import DATA, LATEST
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.json_form import JsonForm
from moedsl.support.source import Source

LIKE = "--like "
"""The prefix of a source's name if its statements are a recipe's pins."""
_KEY = ("hf", "hardware", "gpus", "task")
_REST = ("module", "name", "seq", "batch", "mtp_layers")
_NAMES = "without `--like`, `moedsl plan` names NVIDIA's recipe for the model and GPUs of a run, if there is one"


@frozen
class Shipped(JsonForm):
    """One recipe that Bridge ships. `layout` has each axis that is on and the pipeline layout, no number formats."""

    hf: str
    """Hugging Face id of its model."""
    hardware: str
    gpus: int
    task: str
    module: str
    name: str
    """The name of the function."""
    seq: int
    batch: int
    mtp_layers: int
    """The depth of multi-token prediction that it trains, which may not be the model's own."""
    formats: Mapping[str, str]
    layout: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The recipe's name as an argument of `lint`, `verify` and `diff`."""
        return f"{self.module}:{self.name}"

    @property
    def tuned(self) -> bool:
        """Whether it is one of NVIDIA's benchmark recipes."""
        return of_benchmark(self.module)

    @property
    def pins(self) -> str:
        """The layout as `pin` statements."""
        return pins({a.name: a.decode(a.off) for a in axes.AXES if not a.is_format} | dict(self.layout))


def of_benchmark(module: str) -> bool:
    """Whether a module has NVIDIA's benchmark recipes."""
    return ".perf_recipes." in module


def pins(layout: Mapping[str, Any]) -> str:
    """Write a layout as `pin` statements: one line for each role of axes, and one for the pipeline layout."""
    known = [axes.BY_NAME[n] for n in layout if n in axes.BY_NAME]
    rows: dict[str, list[axes.Axis]] = {}
    for axis in sorted(known, key=lambda a: (_ROWS.index(a.role), a.place)):
        rows.setdefault(axis.role, []).append(axis)
    lines = ["pin " + " ".join(f"{a.name}={axes.written(layout[a.name])}" for a in row) for row in rows.values()]
    text = layout.get("pipeline_layout")
    return "\n".join([*lines, *([f'pin pipeline_layout="{text}"'] if text else [])]) + "\n"


_ROWS = ("parallel", "shape", "held", "moved")


def find(hf: str, hardware: str, gpus: int, task: str) -> list[Shipped]:
    """Return the recipes for a model, GPU type, number of GPUs and task, tuned ones first."""
    start = json.dumps(dict(zip(_KEY, (hf, hardware, gpus, task), strict=True)))[:-1] + ","
    return [_read(line) for line in _lines() if line.startswith(start)]


def named(name: str) -> Shipped | None:
    """Find a recipe by `function` or `module:function`; the tuned one if several match, None if none does."""
    module, _, function = name.rpartition(":")
    found = [_read(line) for line in _lines() if f'"name": "{function}"' in line]
    return next((r for r in found if r.name == function and module in ("", r.module)), None)


def like(name: str) -> Source | tuple[Diagnostic, ...]:
    """Return a recipe's pins as a source for `--like`, or an error that suggests the nearest names."""
    recipe = named(name)
    if recipe is not None:
        return Source(f"{LIKE}{name}", recipe.pins)
    known = [_read(line).name for line in _lines()]
    help = suggest(name.rpartition(":")[2], known) or (_NAMES,)
    own = f"`moedsl import {name}` writes the pins of a recipe of your own" if "." in name else ""
    return (error("check.unknown_recipe", latest=LATEST, name=name, help=(*help, *([own] if own else []))),)


def line(recipe: Shipped) -> str:
    """Format a recipe as a line of the table."""
    key = {n: getattr(recipe, n) for n in _KEY}
    rest = {n: getattr(recipe, n) for n in _REST}
    return json.dumps({**key, **rest, **recipe.formats, **recipe.layout}, ensure_ascii=False)


def ordered(recipes: Iterable[Shipped]) -> Sequence[Shipped]:
    """Sort recipes as in the table: by model, GPU type, GPU count and task, tuned ones first."""
    return sorted(recipes, key=lambda r: (r.hf, r.hardware, r.gpus, r.task, not r.tuned, r.target))


def _read(line: str) -> Shipped:
    data = json.loads(line)
    own = {n: data.pop(n) for n in (*_KEY, *_REST)}
    formats = {n: v for n, v in data.items() if n in axes.BY_NAME and axes.BY_NAME[n].is_format}
    return Shipped(**own, formats=formats, layout={n: v for n, v in data.items() if n not in formats})


@cache
def _lines() -> list[str]:
    return (DATA / f"bridge_recipes_{LATEST}.jsonl").read_text(encoding="utf-8").splitlines()
