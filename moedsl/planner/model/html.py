"""Show a plan as HTML in a notebook: no script, and colours for dark and light pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from moedsl.facts.axes import show
from moedsl.planner.model.decisions import Decision
from moedsl.planner.model.estimate import Estimate, Memory, Stage
from moedsl.support.visible import visible

COLOURS = {
    "weights": "#3b6fb6", "gradients": "#7aa6d6", "optimizer": "#c9803a", "activations": "#5a9a5a",
    "buffers": "#9a9a9a",
}  # fmt: skip
_CELL = "text-align:left;padding:1px 10px 1px 0;vertical-align:top;background:none"


def escape(text: str) -> str:
    """Write a text in HTML, with its hidden characters shown."""
    return html.escape(visible(text))


def page(title: str, meshes: Sequence[tuple[str, str]], estimate: Estimate, decisions: Sequence[Decision]) -> str:
    """Show meshes, memory for each stage as bars, speed, and decisions with their reasons."""
    speed = (
        f"{estimate.step_time_s:.2f} s a step, {estimate.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, "
        f"{estimate.model_tflops_per_gpu:.0f} model TFLOPS/GPU"
    )
    rows = [("name", "value", "origin", "reason")]
    rows += [(d.name, show(d.value), d.origin, d.because or "") for d in decisions]
    parts = (
        f"<b>{escape(title)}</b>",
        _table(meshes),
        f"<div style='margin-top:6px'><b>Speed</b> {escape(speed)}</div>",
        _memory(estimate.memory),
        f"<details style='margin-top:6px'><summary>{len(decisions)} decisions</summary>{_table(rows)}</details>",
    )
    return f"<div style='color:inherit;font-family:monospace;font-size:12px'>{''.join(parts)}</div>"


def _memory(m: Memory) -> str:
    widest = max(m.visible_gib, *(s.total_gib for s in m.stages)) if m.stages else m.visible_gib
    head = f"{m.peak_gib:.1f} of {m.visible_gib:.1f} GiB on the most loaded rank: {m.verdict}"
    legend = " ".join(f"<span style='color:{c}'>&#9632;</span> {kind}" for kind, c in COLOURS.items())
    bars = "".join(_bar(s, widest) for s in m.stages)
    return f"<div style='margin-top:6px'><b>Memory</b> {escape(head)}<br>{legend}{bars}</div>"


def _bar(s: Stage, widest: float) -> str:
    parts = "".join(
        f"<div title='{kind} {getattr(s, f'{kind}_gib'):.1f} GiB' "
        f"style='height:12px;background:{colour};width:{100 * getattr(s, f'{kind}_gib') / widest:.2f}%'></div>"
        for kind, colour in COLOURS.items()
    )
    frame = "display:flex;flex:1;border:1px solid currentColor;opacity:0.9"
    label = f"<div style='width:13em'>stage {s.stage}: {s.total_gib:.1f} GiB</div>"
    return f"<div style='display:flex;max-width:700px;margin:2px 0'>{label}<div style='{frame}'>{parts}</div></div>"


def _table(rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join(f"<td style='{_CELL}'>{escape(c)}</td>" for c in row) for row in rows)
    return "<table style='border-collapse:collapse'>" + "".join(f"<tr>{r}</tr>" for r in cells) + "</table>"
