"""Print a plan on one page, which a person reads before spending money on it; `text.py` prints all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.cost.estimate import NOT
from moedsl.facts.axes import BY_NAME, pairs, show
from moedsl.planner import checkpoints
from moedsl.planner.decisions import Decision
from moedsl.planner.layout import meshes, policies, racks_summary
from moedsl.planner.plan import Plan
from moedsl.planner.text import batch, head, length, samples, steps
from moedsl.planner.walls import SMALL, listed
from moedsl.support.render import paint
from moedsl.support.text import CLOSE, bar, counted, short, visible, wrapped

LABEL = 14
"""Columns of the labels on the left."""
BAR = 20
PARTS = 2
"""The most parts of a wall that are named."""
_MOST_NOTES = 2
_MOST_DECISIONS = 6
_MOST_PINS = 3
_COLOURS = {"FITS": "help", "TIGHT": "warning", "DOES NOT FIT": "error", "Warning": "warning", "Note": "note"}
Command = tuple[str, str]
"""What to type, and what it does."""
Notes = Sequence[Mapping[str, Any]]
"""Warnings and notes in their JSON form."""


def page_text(p: Plan, notes: Notes, commands: Sequence[Command], width: int) -> str:
    """Print one plan with the diagnostics of its file, and the commands that come next."""
    parts = (
        [wrapped(head(p), "", width=width)],
        _verdict(p, width),
        _layout(p, width),
        _speed(p, width),
        _decisions(p, width),
        [*_others(p, width), *notes_text(notes, width)],
        next_text(commands, width),
    )
    return "\n\n".join("\n".join(lines) for part in parts if (lines := [*part])) + "\n"


def coloured(text: str) -> str:
    """Colour the labels of a page, and its verdict."""
    lines = visible(text).splitlines(keepends=True)
    for i, line in enumerate(lines):
        if label := re.match(rf"{'|'.join(_COLOURS)}|[A-Za-z]\w*(?=  | \[)", line):
            lines[i] = paint(label[0], _COLOURS.get(label[0], "head")) + line[label.end() :]
    return "".join(lines)


def _line(label: str, text: str, width: int) -> str:
    return _wrapped(text, label.ljust(LABEL), " " * LABEL, width)


def _wrapped(text: str, first: str, rest: str, width: int) -> str:
    """Wrap a paragraph, with every number on the line of its unit."""
    return wrapped(re.sub(r"(?<=\d) (?=[A-Za-z])", "\xa0", text), first, rest, width).replace("\xa0", " ")


def _verdict(p: Plan, width: int) -> Iterator[str]:
    """Say whether the layout fits, and what this rests on."""
    m, i = p.estimate.memory, p.estimate.interval
    parts = f"{m.upper_gib:.1f} in torch, {m.unused_gib:.1f} unused there, {m.outside.upper_gib:.1f} outside"
    worst = f"worst case {m.worst_gib:.1f} of {m.visible_gib:.1f} GiB: {parts}"
    yield _line(m.verdict, m.because if m.verdict == NOT else worst, width)
    if m.certain and m.certain.layout:
        safe = m.certain.layout
        yield _line("", f"nearest layout that FITS: {pairs(safe.changes)}, {safe.against_plan}", width)
    rank = f" by {p.search.ranks_by.rule.rpartition('.')[2]}" if p.search.ranks_by else ""
    similar = len({m.rule for m in p.measured})
    known = f"estimates and {counted(similar, 'similar published run')}" if similar else "estimates"
    texts = [known, f"best{rank} of {counted(p.search.legal_layouts, 'legal layout', ',d')}"]
    texts += [f"its speed has a wide range because there is {' and '.join(i.unlike)}"] if i and i.unlike else []
    yield _line("rests on", "; ".join(texts), width)


def _layout(p: Plan, width: int) -> Iterator[str]:
    for name, mesh in meshes(p.layout).items():
        yield _line(name.capitalize(), mesh, width)
    if p.racks:
        yield _line("Racks", racks_summary(p.racks), width)
    yield _line("Batch", batch(p), width)
    if p.samples:
        yield _line("Samples", "; ".join(samples(p)), width)
    yield _line("Policy", ", ".join(w for w in policies(p.policy) if not w.endswith((" none", " off"))), width)
    if p.adapter:
        a = p.adapter
        trained = f"{a.params / 1e6:,.1f}M parameters are trained, {100 * a.share:.2g}% of the model"
        yield _line("Adapter", f"{a.method} of rank {a.rank}, alpha {a.alpha}: {trained}", width)


def _speed(p: Plan, width: int) -> Iterator[str]:
    """Print memory, speed and its walls as bars, each with its range; then what stops the run, and how long it takes.

    The bar of memory is the best estimate, and up to the worst case, of what the GPU has."""
    e, m, w = p.estimate, p.estimate.memory, p.walls
    drawn = bar(m.peak_gib / m.visible_gib, BAR, m.worst_gib / m.visible_gib)
    known = f"{m.peak_gib:.1f} ({m.lower_gib:.1f} to {m.upper_gib:.1f}) of {m.visible_gib:.1f} GiB"
    yield _line("Memory", f"{drawn} {known}", width)
    known = f" ({e.interval.lower_s:.2f} to {e.interval.upper_s:.2f} in 9 of 10 runs)" if e.interval else ""
    rates = f"{e.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {e.model_tflops_per_gpu:.0f} TFLOPS/GPU"
    yield _line("Speed", f"{e.step_time_s:.2f} s a step{known}, {rates}", width)
    if e.parts:
        useful = f"{e.useful_tokens_per_s_per_gpu:,.0f} useful tokens/s/GPU: {e.useful_share:.1%} of a sequence"
        yield _line("", f"{useful} trains the decoder", width)
    for name, share, parts in (
        ("compute", w.compute.share, listed(w.compute.shares, PARTS)),
        ("communication", w.communication.share, listed(w.communication.shares, PARTS)),
        ("host", w.host.share, ""),
        ("recompute", e.breakdown["recompute"] / e.step_time_s, ""),
    ):
        if share >= SMALL:
            yield _line(name, f"{bar(share, BAR)} {share:5.1%}{parts}", width)
    if p.checkpoints:
        yield _line("Goodput", checkpoints.summary(p.checkpoints, steps(p)), width)
    if lasts := length(p):
        yield _line("Length", lasts, width)


def _decisions(p: Plan, width: int) -> Iterator[str]:
    """List what was chosen other than off, each with the price of the best other value."""
    decided = [d for d in p.decisions if d.name in BY_NAME and BY_NAME[d.name].is_on(d.value)]
    chosen = [d for d in decided if d.origin == "chosen"]
    if chosen:
        yield "Decisions, each with the best other value"
    yield from _priced(chosen[:_MOST_DECISIONS], width)
    if len(chosen) > _MOST_DECISIONS:
        yield wrapped(_named(chosen[_MOST_DECISIONS:]), "  and ", "  ", width)
    pinned = [d for d in decided if d.origin == "pinned"]
    if pinned:
        yield _line("Pinned", _named(pinned), width)
    told = [d for d in p.decisions if d.origin == "pinned" and any(CLOSE not in a.effect for a in d.alternatives)]
    if told:
        yield "Pinned, each with the value that the run would choose without that pin"
    yield from _priced(sorted(told, key=lambda d: d.alternatives[0].step_time or 0.0)[:_MOST_PINS], width)


def _named(decisions: Sequence[Decision]) -> str:
    return ", ".join(f"{d.name} {show(d.value)}" for d in decisions)


def _priced(decisions: Sequence[Decision], width: int) -> Iterator[str]:
    """Print each decision with the price of the best other value."""
    names = [f"  {d.name} {show(d.value)}" for d in decisions]
    room = max([2 * LABEL, *(len(name) for name in names if len(name) <= width * 2 // 5)])
    for d, name in zip(decisions, names, strict=True):
        price = "no other value is possible"
        if d.alternatives:
            best = min(d.alternatives, key=lambda a: float("inf") if a.step_time is None else a.step_time)
            price = f"{show(best.value)} is {best.effect}".replace(" std.", " ")
        yield _wrapped(price, name.ljust(room) + "  ", " " * (room + 2), width)


def _others(p: Plan, width: int) -> Iterator[str]:
    """Show NVIDIA's own recipe, how to get its layout where that fits and is faster, and a faster layout that may not
    fit."""
    r, faster = p.shipped, p.estimate.memory.faster
    if r is not None:
        yield _line("NVIDIA", r.name, width)
        if r.step_time_s is None:
            text = f"refused in this run by {r.refused_by}: {r.because}"
        elif not r.changes:
            text = "this plan has its layout"
        else:
            text = f"{r.step_time_s:.2f} s a step ({r.against_plan}), {r.verdict}"
            if r.verdict != "FITS" or r.step_time_s >= p.estimate.step_time_s:
                text += " (`--section nvidia`)"
            else:
                text += "; `--like` takes it"
                text += "" if p.phase == "throughput" else "; `throughput first` looks for the fastest"
        yield _line("", text, width)
    if faster is not None:
        gain = f"{faster.step_time_s:.2f} s a step with {pairs(faster.changes)}"
        yield _line("Faster", f"{gain}; may not fit: `{faster.statement}` chooses it", width)


def notes_text(notes: Notes, width: int) -> Iterator[str]:
    """Print every warning and the first notes, each as one paragraph with its place."""
    warnings, others = ([d for d in notes if d["severity"] == s] for s in ("warning", "note"))
    for d in [*warnings, *others[:_MOST_NOTES]]:
        line = next((f", line {label['line']}" for label in d["labels"] if "line" in label), "")
        yield _line(d["severity"].capitalize(), f"{d['message']} ({short(d['id'])}{line})", width)
    if len(others) > _MOST_NOTES:
        yield _line("", f"and {counted(len(others) - _MOST_NOTES, 'more note')}: `moedsl check` prints them", width)


def next_text(commands: Sequence[Command], width: int) -> Iterator[str]:
    """Print the commands that come next, with what they do as comments of the shell."""
    longest = max((len(c) for c, _ in commands), default=0)
    for i, (command, what) in enumerate(commands):
        line = f"{'' if i else 'Next':<{LABEL}}{command:<{longest}}  # {what}"
        yield line if len(line) <= width else line[: LABEL + len(command)]
