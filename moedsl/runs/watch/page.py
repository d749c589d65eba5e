"""Make a page that the browser loads again by itself: the text of each run, and its loss and step times as curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from moedsl.runs.watch.reading import Attempt
from moedsl.runs.watch.view import Watched, text
from moedsl.support import svg
from moedsl.support.visible import visible

SIGN = '<meta name="generator" content="moedsl watch">'
"""The marker by which a page is known."""
POINTS = 500
"""The most points of a curve; of more lines, each point is the mean of several."""
WIDTH, HEIGHT = 1000, 160


def page(runs: Sequence[Watched], views: Sequence[dict[str, Any]], every: float) -> str:
    """Make one HTML document; it loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, autoescape=True
    )
    shown = [{"name": visible(v["name"]), "text": visible(text([v])), "curves": [*_curves(r.attempts())]}
             for r, v in zip(runs, views, strict=True)]  # fmt: skip
    return environment.get_template("page.html.j2").render(
        runs=shown, every=math.ceil(every), width=WIDTH, height=HEIGHT
    )


def _curves(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    """The loss and the seconds of a step over the iterations, a line for each attempt."""
    losses = [[*zip(a.ends, a.losses, strict=True)] for a in attempts]
    times = [[(a.ends[i], (a.trained[i] - a.trained[i - 1]) / (a.ends[i] - a.ends[i - 1]))
              for i in range(1, len(a.ends))] for a in attempts]  # fmt: skip
    for name, each in (("loss", losses), ("s a step", times)):
        lines = [thinned([(x, y) for x, y in line if math.isfinite(y)]) for line in each]
        points = [p for line in lines for p in line]
        if len(points) < 2:
            continue
        (left, right), (low, high) = ((min(v), max(v)) for v in zip(*points, strict=True))
        area = svg.Area(0.0, 0.0, WIDTH, HEIGHT, (left, low), (right, high))
        paths = [svg.polyline(area.at(x, y) for x, y in line) for line in lines]
        yield {"name": name, "paths": paths, "left": f"{left:,.0f}", "right": f"{right:,.0f}", "low": f"{low:.4g}",
               "high": f"{high:.4g}"}  # fmt: skip


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `POINTS` points, each the mean of its neighbours."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
