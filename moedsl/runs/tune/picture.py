"""Draw the way of a tuning as SVG: the speed of each job, what was expected of it, and the fastest so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from moedsl.facts.axes import show
from moedsl.planner.report.ticks import shares
from moedsl.runs.results.measure import RATE

Json = Mapping[str, Any]
WIDTH, HEIGHT, LEFT, TOP, BELOW, RIGHT = 1200, 500, 80, 30, 190, 220
"""The picture, and the room around the diagram: labels hang down to the right of their job."""
BLUE, GREY, RED = "#3b6fb6", "#999", "#c0504d"


def of_way(tried: Sequence[Json], changes: Sequence[Json | None]) -> str:
    """Draw the jobs from left to right; a bar is the interval in which nine of ten were expected."""
    rates = [t[RATE] for t in tried]
    best = _fastest(rates)
    spans = [_span(changes[i], best[i - 1]) if i else None for i in range(len(tried))]
    values = [*(r for r in rates if r), *(v for s in spans if s for v in s)]
    top = 1.05 * max(values, default=1.0)

    def x(i: int) -> float:
        return LEFT + (i + 0.5) * (WIDTH - LEFT - RIGHT) / len(tried)

    def y(rate: float) -> float:
        return TOP + (1 - rate / top) * (HEIGHT - TOP - BELOW)

    shapes = [*_axis(top, y)]
    for i, (t, rate) in enumerate(zip(tried, rates, strict=True)):
        shapes += _bar(x(i), spans[i], y) if spans[i] else []
        shapes.append(_point(x(i), y(rate)) if rate else _cross(x(i), y(0)))
        shapes += _label(x(i), t, changes[i])
    line = " ".join(f"{x(i):.1f},{y(b):.1f}" for i, b in enumerate(best) if b)
    shapes.append(f'<polyline points="{line}" fill="none" stroke="{BLUE}"/>')
    body = "\n".join([f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *shapes, *_legend()])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12">\n<title>Useful tokens/s/GPU of each job</title>\n{body}\n</svg>\n')  # fmt: skip


def _fastest(rates: Sequence[float | None]) -> list[float]:
    """The highest rate up to each job; 0 before any."""
    out, most = list[float](), 0.0
    for r in rates:
        most = max(most, r or 0.0)
        out.append(most)
    return out


def _span(change: Json | None, before: float) -> tuple[float, float] | None:
    """The rates that were expected of a change to the fastest before it."""
    if not change or not before or change["gain"] is None:
        return None
    return before * (1 + change["low"]), before * (1 + change["high"])


def _axis(top: float, y: Any) -> Iterator[str]:
    for tick in shares(top):
        at = y(tick["at"] / 100 * top)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tick["text"]}</text>'
    yield f'<text x="8" y="{TOP - 12}">useful tokens/s/GPU</text>'


def _legend() -> Iterator[str]:
    """Name the marks, in the room on the right."""
    x, y = WIDTH - RIGHT + 40, TOP + 10
    marks = (
        (_point(x, y), "measured"),
        (f'<path d="M{x - 12} {y + 24} h24" stroke="{BLUE}"/>', "the fastest so far"),
        (
            f'<path d="M{x} {y + 40} v16" stroke="{GREY}" stroke-width="6" stroke-opacity="0.4"/>',
            "nine of ten expected",
        ),
        (_cross(x, y + 72), "failed"),
    )
    for n, (mark, text) in enumerate(marks):
        yield f'{mark}<text x="{x + 20}" y="{y + 24 * n + 4}">{text}</text>'


def _bar(x: float, span: tuple[float, float] | None, y: Any) -> list[str]:
    assert span is not None
    low, high = span
    return [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}" stroke="{GREY}" stroke-width="6" '
            'stroke-opacity="0.4"><title>nine of ten were expected here</title></line>']  # fmt: skip


def _point(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{BLUE}"/>'


def _cross(x: float, y: float) -> str:
    return f'<path d="M{x - 5:.1f} {y - 5:.1f} l10 10 m0 -10 l-10 10" stroke="{RED}" stroke-width="2"/>'


def _label(x: float, t: Json, change: Json | None) -> list[str]:
    said = f"{t['name']}: {change['axis']} {show(change['to'])}" if change else f"{t['name']}: the plan"
    at = f"{x + 4:.1f} {HEIGHT - BELOW + 14}"
    return [f'<text transform="translate({at}) rotate(40)">{escape(said)}</text>']
