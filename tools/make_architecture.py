"""Draws docs/architecture.svg from the imports of moedsl/, and writes the table of packages in docs/architecture.md.

usage: .venv/bin/python tools/make_architecture.py     tests/docs/test_docs.py holds both to the code

The packages and their order are the layers that import-linter enforces (pyproject.toml). An arrow goes from a package
to one that it imports; an arrow that follows from others (A imports B, B imports C, A imports C too) is left out.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from html import escape
from pathlib import Path

import grimp
import networkx
from attrs import frozen

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"(?<=<!-- packages -->\n).*?(?=<!-- end of packages -->)", re.DOTALL)
BOX, ROW, GAP, EDGE = 30, 64, 90, 16
"""Pixels: height of a box, distance of two rows, distance of two boxes, margin."""
SWEEPS = 24
"""How often the rows are put in order; from then on nothing moves."""
CHARACTER = 8.2
"""Pixels of a letter."""


def layers() -> list[list[str]]:
    """The packages of each layer, the highest first, as pyproject.toml has them."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(c for c in linter["contracts"] if c["type"] == "layers")
    return [re.split(r" *[:|] *", layer) for layer in contract["layers"]]


def arrows() -> list[tuple[str, str]]:
    """Which package imports which, without what follows from other arrows."""
    graph = grimp.build_graph("moedsl", cache_dir=None)
    packages = {name for layer in layers() for name in layer}
    for name in packages:
        graph.squash_module(f"moedsl.{name}")
    pairs = [
        (a, b)
        for a in packages
        for b in packages
        if a != b and graph.direct_import_exists(importer=f"moedsl.{a}", imported=f"moedsl.{b}")
    ]
    return sorted(networkx.transitive_reduction(networkx.DiGraph(pairs)).edges)


def summaries() -> dict[str, str]:
    """The first sentence of each package's docstring."""
    return {name: _summary(name) for layer in layers() for name in layer}


def _summary(name: str) -> str:
    folder, module = ROOT / "moedsl" / name / "__init__.py", ROOT / "moedsl" / f"{name}.py"
    text = ast.get_docstring(ast.parse((folder if folder.exists() else module).read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"moedsl/{name} has no docstring that says what it is")
    return " ".join(text.split("\n\n")[0].split())


def table() -> str:
    """The packages with a line each, the lowest first."""
    lines = ["| package | what it does |", "| --- | --- |"]
    known = summaries()
    lines += [f"| `{name}` | {known[name]} |" for layer in reversed(layers()) for name in layer]
    return "\n".join(lines) + "\n"


def picture() -> str:
    """The SVG: a package stands one row above the highest of those that it imports."""
    places = _places(arrows())
    width = max(p.x + p.width for p in places.values()) + EDGE
    height = max(p.y for p in places.values()) + BOX + EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="monospace" font-size="14">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        *(_line(places[a], places[b]) for a, b in arrows()),
        *(_box(name, place) for name, place in places.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@frozen
class Place:
    """Where a box stands, in pixels: its left upper corner and its width."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def _places(pairs: Sequence[tuple[str, str]]) -> dict[str, Place]:
    """Rows by the longest way down; within a row, each box near the middle of those that it is joined to."""
    graph = networkx.DiGraph(pairs)
    below = dict.fromkeys(graph, 0)
    for name in reversed(list(networkx.topological_sort(graph))):
        below[name] = max((below[b] + 1 for b in graph.successors(name)), default=0)
    rows = [sorted(n for n in graph if below[n] == r) for r in range(max(below.values()), -1, -1)]
    middles = {name: 100.0 * i for row in rows for i, name in enumerate(row)}
    for _ in range(SWEEPS):
        for row in rows:
            near = {n: [middles[m] for m in (*graph.successors(n), *graph.predecessors(n))] for n in row}
            row.sort(key=lambda n: (sum(near[n]) / len(near[n]), n))
            middles.update(_spread(row, [sum(near[n]) / len(near[n]) for n in row]))
    left = min(middles[n] - _width(n) / 2 for n in graph) - EDGE
    return {
        n: Place(middles[n] - _width(n) / 2 - left, EDGE + i * ROW, _width(n))
        for i, row in enumerate(rows)
        for n in row
    }


def _spread(row: Sequence[str], wanted: Sequence[float]) -> dict[str, float]:
    """The middles of a row's boxes: as wanted, pushed apart where they would overlap; their mean stays."""
    out: list[float] = []
    for name, middle in zip(row, wanted, strict=True):
        free = out[-1] + (_width(row[len(out) - 1]) + _width(name)) / 2 + GAP if out else middle
        out.append(max(middle, free))
    shift = (sum(wanted) - sum(out)) / len(out)
    return {name: middle + shift for name, middle in zip(row, out, strict=True)}


def _width(name: str) -> float:
    return len(name) * CHARACTER + 24


def _line(a: Place, b: Place) -> str:
    """An arrow from the lower edge of a box to the upper edge of one below it."""
    (x1, y1), (x2, y2) = (a.middle, a.y + BOX), (b.middle, b.y)
    half = (y1 + y2) / 2
    bend = f"C {x1:.0f} {half:.0f} {x2:.0f} {half:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="M {x1:.0f} {y1:.0f} {bend}" fill="none" stroke="#99a" marker-end="url(#tip)"/>'


def _box(name: str, p: Place) -> str:
    return (
        f'<rect x="{p.x:.0f}" y="{p.y:.0f}" width="{p.width:.0f}" height="{BOX}" rx="5" fill="#eef3fb" stroke="#446"/>'
        f'<text x="{p.middle:.0f}" y="{p.y + 20:.0f}" text-anchor="middle" fill="#113">{escape(name)}</text>'
    )


def page() -> str:
    """docs/architecture.md with its table of packages as it should be."""
    return TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
