"""Prefer, among layouts that the estimate cannot tell apart, the one nearest to a layout that has run.

What has run: the published runs of the model on the GPU (stdlib/calibration/published.jsonl), and the recipes that
Bridge ships for it. Only the rows that the search keeps anyway are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from math import log2

from attrs import evolve, frozen

from moedsl.facts import axes, recipes
from moedsl.rules.check.program import Program
from moedsl.solver import uncertainty
from moedsl.solver.laws import Compiled
from moedsl.solver.search import Solution
from moedsl.solver.table import Row
from moedsl.support.resources import stdlib_dir

MOST = 0.03
"""The most of a step that nearness is worth. Every pair of layouts within it is too close for the estimate."""
NEAR = 1.0
"""The most doublings of sizes between a layout and one that has run for it to count as near."""
RUNS = "calibration/published.jsonl"
_PIN = re.compile(r"(\w+)=(\[[^\]]*\]|\S+)")


@frozen
class Ran:
    """A layout that has run: a published run or a recipe."""

    name: str
    codes: Mapping[str, int]


@frozen
class Preference:
    """What the chosen layout is nearest to, and the layout that would be chosen by the estimate alone."""

    near: Ran
    fastest: Row

    def reason(self, axis: axes.Axis, code: int, rank: str) -> str:
        """Why a value is not the one that the estimate alone would choose; empty if it is that one."""
        other = self.fastest.codes[axis.name]
        if other == code:
            return ""
        best = axes.show(axis.decode(other))
        return f"nearest to {self.near.name}; {best} is best by {rank}, by less than the estimate can tell"


def has_run(p: Program, gpus: int) -> bool:
    """Tell whether anything has run with the model on the GPU."""
    known = any(published(p.model.name, p.hardware.name))
    return known or bool(recipes.find(p.model.hf, p.hardware.name, gpus, p.task))


def prefer(c: Compiled, found: Solution) -> tuple[Solution, Preference | None]:
    """Put the row first that is nearest to what has run, of those that the estimate cannot tell from the first; if one
    is near at all."""
    close = [*_close(c, found.rows)]
    ran = [*_ran(c.problem.program, c.problem.gpus, close[0])] if len(close) > 1 else []
    if not ran:
        return found, None
    nearest = {id(row): min(ran, key=lambda r: doublings(row.codes, r.codes)) for row in close}
    best = min(close, key=lambda row: doublings(row.codes, nearest[id(row)].codes))
    if best is found.rows[0] or doublings(best.codes, nearest[id(best)].codes) > NEAR:
        return found, None
    rows = (best, *(r for r in found.rows if r is not best))
    return evolve(found, rows=rows), Preference(nearest[id(best)], found.rows[0])


def _close(c: Compiled, rows: tuple[Row, ...]) -> Iterator[Row]:
    """Yield the rows that no key before the price tells from the first, and whose price is close."""
    price = next((i for i, law in enumerate(c.ranks) if law.is_price), None)
    if price is None or not rows:
        return
    at, first = len(c.wishes) + price, rows[0]
    limit = 1 + min(MOST, uncertainty.NINE_OF_TEN * uncertainty.known()[1].between)
    for row in rows:
        if row.keys[:at] == first.keys[:at] and row.keys[at] <= first.keys[at] * limit:
            yield row


def _ran(p: Program, gpus: int, row: Row) -> Iterator[Ran]:
    """Yield what has run with the model on the GPU, in the format of a row."""
    precision = axes.BY_NAME["precision"].decode(row.codes["precision"])
    for line in published(p.model.name, p.hardware.name):
        data = json.loads(line)
        if f"precision {precision};" in data["run"]:
            yield Ran(f"{data['id']} of {data['source']}", sizes(data["run"]))
    for r in recipes.find(p.model.hf, p.hardware.name, gpus, p.task):
        yield Ran(r.name, {n: v for n, v in r.layout.items() if n in axes.MESH})


def published(model: str, hardware: str) -> Iterator[str]:
    """Yield the line of each published run of a model on a GPU."""
    start = f'"run": "{model}; {hardware} x '
    return (line for line in _lines() if start in line)


@cache
def _lines() -> tuple[str, ...]:
    return tuple((stdlib_dir() / RUNS).read_text(encoding="utf-8").splitlines())


def sizes(run: str) -> dict[str, int]:
    """Read the sizes of the mesh that a published run pins."""
    pins = dict(_PIN.findall(run.split("pin ")[1]))
    return {n: int(pins[n]) for n in axes.MESH if n in pins}


def doublings(codes: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Return how many doublings of sizes of the mesh lie between two layouts."""
    names = (n for n in axes.MESH if axes.BY_NAME[n].kind == "int")
    return sum(abs(log2(codes[n] / others.get(n, axes.BY_NAME[n].off))) for n in names)
