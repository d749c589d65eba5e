"""The estimates of a plan: memory by stage with its verdict, step time with its interval, a VLM's parts, useful tokens.

`known` prices the plan and other layouts with every constant varied. This gives the interval of the step time, and the
layouts that are as fast as the plan within the estimate's error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from attrs import evolve, frozen

from moedsl.cost import Cost
from moedsl.cost.estimate import Bounds, Spread
from moedsl.cost.memory import KINDS, OutsidePart
from moedsl.facts import axes
from moedsl.facts.axes import AXES
from moedsl.facts.fine_tuning import Filled, filled
from moedsl.facts.symbols import VLM_WORDS
from moedsl.facts.units import GIB
from moedsl.rules.check.program import Program
from moedsl.rules.stdlib import LetName, RuleId
from moedsl.solver import uncertainty
from moedsl.solver.laws import Row
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import ABSENT, Absent, JsonForm
from moedsl.support.text import table, wrapped

MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers")
"""The kinds of memory; `Stage` and `Part` have each in GiB."""


@frozen
class Stage(JsonForm):
    """The memory of one pipeline stage, on its most loaded rank."""

    stage: int
    """Position in the pipeline, from 0."""
    layers: Mapping[str, int]
    """Number of layers by kind."""
    params: int
    """Parameters on a rank."""
    expert_params: int
    """Parameters of routed experts, which `params` includes."""
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    buffers_gib: float
    total_gib: float


@frozen
class Range(JsonForm):
    """A term that is known only within bounds."""

    name: str
    lower_gib: float
    """Low case, GiB; for uncertain terms, relative to the best estimate."""
    upper_gib: float
    """High case, GiB; for uncertain terms, relative to the best estimate."""
    because: str


@frozen
class Outside(JsonForm):
    """Memory that torch does not allocate: CUDA, NCCL, DeepEP."""

    lower_gib: float
    upper_gib: float
    parts: tuple[Range, ...]


@frozen
class CertainLayout(JsonForm):
    """The best layout with the verdict FITS, compared with a TIGHT plan."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    step_time_s: float
    against_plan: str


@frozen
class Certain(JsonForm):
    """The search for the best layout that FITS, made if the plan is TIGHT."""

    within: float | None
    """Largest increase of the step time that was allowed, as a share; null if every layout was tried."""
    layout: CertainLayout | None


@frozen
class Faster(JsonForm):
    """The faster layout that `risk oom` chooses."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    lower_gib: float
    """Low case of all memory on the GPU."""
    upper_gib: float
    """High case of all memory on the GPU: more than the GPU has."""
    chance: float
    """Chance to run out of memory, as a share."""
    step_time_s: float
    against_plan: str
    statement: str
    """The statement for the run file that chooses this layout."""


@frozen
class Memory(JsonForm):
    """The memory of the most loaded rank, GiB."""

    peak_gib: float
    """Best estimate of the peak."""
    capacity_gib: float
    """Memory of the GPU by its data sheet; plans use `visible_gib` instead."""
    stages: tuple[Stage, ...]
    covers: str
    """What the estimate includes."""
    lower_gib: float
    """Low case of the peak, with memory outside torch."""
    upper_gib: float
    """High case of the peak, with memory outside torch."""
    visible_gib: float
    """GPU memory that the driver shows: the limit for all memory in use. The page prints it."""
    verdict: str
    """FITS, TIGHT or DOES NOT FIT."""
    because: str
    chance: float
    """Chance to run out of memory, as a share: 0 if the plan FITS."""
    unknown: tuple[Range, ...]
    """Uncertain terms."""
    unused_gib: float
    """Memory that torch's allocator holds unused in the high case."""
    outside: Outside
    certain: Certain | None = None
    """Only for a plan that is TIGHT."""
    faster: Faster | None = None
    """Only for a plan that FITS."""

    @property
    def worst_gib(self) -> float:
        """The high case of all memory on the GPU: in torch, unused in its allocator, and outside."""
        return self.upper_gib + self.unused_gib + self.outside.upper_gib


def memory_of(chosen: Chosen, row: Row, b: Bounds, certain: Certain | None, faster: Faster | None) -> Memory:
    """Estimate the memory of the most loaded rank and of each stage."""
    cost = chosen.cost
    low, high = b.outside_bytes
    return Memory(
        peak_gib=row.peak_memory / GIB,
        capacity_gib=chosen.problem.program.hardware.memory / GIB,
        stages=tuple(
            Stage(s.stage, dict(s.layers), s.params + s.expert_params, s.expert_params, *sizes)
            for s in cost.memory_report(row.codes)
            for sizes in [[getattr(s, kind) / GIB for kind in (*KINDS, "total")]]
        ),
        covers=cost.covers["memory"],
        lower_gib=b.least / GIB,
        upper_gib=b.most / GIB,
        visible_gib=b.visible / GIB,
        verdict=b.verdict,
        because=b.because,
        chance=chance(cost, row.codes),
        unknown=_ranges(b.spread),
        unused_gib=b.unused / GIB,
        outside=Outside(low / GIB, high / GIB, _ranges(b.outside)),
        certain=certain,
        faster=faster,
    )


def chance(cost: Cost, row: Mapping[str, int]) -> float:
    """Return the chance that a layout runs out of memory: all memory on the GPU is a triangle from its low case over
    the best estimate to its high case."""
    low, best, high = (-float(cost.spare(row, case)[0]) for case in ("low", "best", "high"))
    if low >= 0 or high <= 0:
        return float(low >= 0)
    return high**2 / (high - low) / (high - best) if best <= 0 else 1 - low**2 / (high - low) / (best - low)


def _ranges(terms: Iterable[Spread | OutsidePart]) -> tuple[Range, ...]:
    return tuple(Range(t.name, t.least / GIB, t.most / GIB, t.because) for t in terms)


def memory_text(m: Memory) -> str:
    """Print the peak, the verdict with its bounds, and a table that joins neighbouring equal stages into one row."""
    seen = [u for u in m.unknown if max(-u.lower_gib, u.upper_gib) >= 0.05]
    moves = ", ".join(f"{u.name} {u.lower_gib:+.1f} to {u.upper_gib:+.1f}" for u in seen)
    spans = [(p.name, f"{p.lower_gib:.1f}", f"{p.upper_gib:.1f}") for p in m.outside.parts]
    parts = ", ".join(f"{name} {low}" if low == high else f"{name} {low} to {high}" for name, low, high in spans)
    said = [
        f"{m.verdict}: {m.because}",
        f"{m.lower_gib:.1f} to {m.upper_gib:.1f} GiB: {moves}",
        f"outside torch {m.outside.lower_gib:.1f} to {m.outside.upper_gib:.1f} GiB: {parts}",
    ]
    if m.certain and (safe := m.certain.layout):
        said.append(f"nearest layout that FITS: {safe.against_plan}, with {_changes(safe.changes)}")
    elif m.certain:
        near = "" if m.certain.within is None else f" with a step at most {m.certain.within:.0%} longer"
        said.append(f"no layout of this run FITS{near}")
    if f := m.faster:
        needs = f"{f.lower_gib:.1f} to {f.upper_gib:.1f} of {m.visible_gib:.1f} GiB"
        gain = f"{f.step_time_s:.2f} s a step ({f.against_plan}), {needs}, with {_changes(f.changes)}"
        said.append(f"faster, but may run out of memory: {gain}; `{f.statement}` chooses it")
    rows: list[tuple[str, ...]] = [("stage", "parameters", *MEMORY, "total GiB")]
    for _, group in groupby(m.stages, key=lambda s: evolve(s, stage=0)):
        first, *others = group
        name = f"{first.stage}-{others[-1].stage}" if others else str(first.stage)
        sizes = (f"{getattr(first, f'{kind}_gib'):.1f}" for kind in (*MEMORY, "total"))
        rows.append((name, f"{first.params / 1e9:.2f}B", *sizes))
    share = f"{100 * m.peak_gib / m.visible_gib:.0f}%"
    head = f"Memory  {m.peak_gib:.1f} of {m.visible_gib:.1f} GiB ({share}) on the most loaded rank"
    return "\n".join([head, *(wrapped(s, "  ", "    ") for s in said), *table(rows)])


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {axes.written(value)}" for name, value in changes.items())


@frozen
class Covers(JsonForm):
    """What the time estimate includes."""

    step_time: str


@frozen
class Part(JsonForm):
    """One part of a VLM on a rank of the first stage."""

    part: str
    params: int
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    buffers_gib: float
    total_gib: float
    time_s: float
    """Seconds in a step."""
    share: float
    """Share of the step."""


@frozen
class Freeze(JsonForm):
    """The gain from freezing a part of a VLM on this layout."""

    name: str
    frozen: bool
    """Whether the run freezes it."""
    peak_gib: float
    step_time: float
    """Change of the step as a share."""
    effect: str


@frozen
class VisionNote(JsonForm):
    """Advice for a vision encoder that takes a large share of the step."""

    rule: str
    share: float
    because: str | None
    fix: str | None
    cite: tuple[str, ...]


@frozen
class Leaning(JsonForm):
    """A constant that the step time depends on, or a part of it that differs from run to run."""

    constant: str
    """Its name; "uneven tokens" and "launches" are parts of the time."""
    moves: float
    """Change of the step time for one standard deviation, as a share."""
    about: str


@frozen
class Interval(JsonForm):
    """The interval that contains the step time of nine in ten runs."""

    lower_s: float
    upper_s: float
    leans_on: tuple[Leaning, ...]
    """What changes the step time most."""
    unlike: tuple[str, ...]
    """How the run differs from all runs that the constants were fitted to; each difference widens the interval."""


@frozen
class Estimate(JsonForm):
    """Predicted memory and speed."""

    memory: Memory
    step_time_s: float
    """Seconds of a step."""
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    breakdown: Mapping[str, float]
    """Seconds of a step by part."""
    covers: Covers
    useful_share: float
    """Share of a sequence that trains the decoder."""
    useful_tokens_per_s_per_gpu: float
    interval: Interval | None = None
    """Null in plans of earlier versions."""
    parts: tuple[Part, ...] | None = None
    """A VLM's encoder, projector and decoder."""
    freeze: tuple[Freeze, ...] | None = None
    vision_note: VisionNote | Absent | None = ABSENT


def build(chosen: Chosen, row: Row, env: Mapping[str, Any], memory: Memory, interval: Interval) -> Estimate:
    """Estimate a layout's speed, given its memory and interval; for a VLM also its parts."""
    cost, tokens = chosen.cost, env["global_batch"] * env["seq"]
    estimate = Estimate(
        memory=memory,
        step_time_s=row.step_time,
        interval=interval,
        tokens_per_s_per_gpu=tokens / row.step_time / chosen.problem.gpus,
        model_tflops_per_gpu=float(cost.model_tflops_per_gpu(row.step_time, int(env["tp"]))),
        breakdown={k: float(v) for k, v in cost.time_report(row.codes).items()},
        covers=Covers(cost.covers["time"]),
        useful_share=useful_share(chosen.problem.program, env),
        useful_tokens_per_s_per_gpu=useful_rate(chosen, row.codes, row.step_time),
    )
    return _with_parts(estimate, chosen, row, float(env[LetName.VISION_SHARE_FLOOR]))


def useful_share(p: Program, env: Mapping[str, Any]) -> float:
    """Return the share of tokens that train: without image tokens and, if sample lengths are known, padding."""
    held = held_by(p, env)
    image, seq = p.model.vision.image_tokens if p.model.vision else 0, int(env["seq"])
    return held.useful if held else max(seq - image, 0) / seq


def useful_rate(chosen: Chosen, codes: Mapping[str, int], step: float) -> float:
    """Return the tokens that train per second and GPU in one layout, for a step of `step` seconds."""
    p = chosen.problem.program
    env = chosen.environment(codes) if p.samples and p.samples.lengths else chosen.problem.values
    return useful_share(p, env) * float(chosen.cost.tokens_per_second_per_gpu(step))


def held_by(p: Program, env: Mapping[str, Any]) -> Filled | None:
    """Return how samples fill a sequence; None if the run does not state their lengths."""
    if not (p.samples and p.samples.lengths):
        return None
    return filled(p.samples.lengths, int(env["seq"]), bool(env["pack"]), int(env[LetName.SAMPLE_MULTIPLE]))


@frozen
class Known:
    """The interval of the plan's step time, and the codes of layouts that are as fast within the estimate's error."""

    interval: Interval
    close: frozenset[tuple[int, ...]]

    def is_close(self, codes: Mapping[str, int]) -> bool:
        return _key(codes) in self.close


def known(cost: Cost, row: Row, others: Sequence[tuple[Mapping[str, int], float]]) -> Known:
    """Vary every constant to find the interval of the plan's step, and which `others` are as fast within the error.

    `others` has the codes and step time of each layout; all are priced at once.
    """
    every = [(row.codes, row.step_time), *others]
    cols = {name: np.array([codes[name] for codes, _ in every]) for name in row.codes}
    steps = np.array([t for _, t in every])
    slope = uncertainty.leaning(cost, cols, steps)
    with np.errstate(invalid="ignore"):
        near = np.abs(np.log(steps[1:] / steps[0])) < uncertainty.apart(cost, slope[1:] - slope[0])
    close = near & np.isfinite(slope[1:]).all(axis=1)
    doubt = uncertainty.doubt(cost, slope[0])
    leans = tuple(Leaning(t.name, t.moves, t.about) for t in doubt.leans_on)
    interval = Interval(row.step_time / doubt.factor, row.step_time * doubt.factor, leans, doubt.unlike)
    return Known(interval, frozenset(_key(codes) for (codes, _), c in zip(others, close, strict=True) if c))


def _key(codes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(codes[a.name] for a in AXES)


def _with_parts(estimate: Estimate, chosen: Chosen, row: Row, floor: float) -> Estimate:
    """Add a VLM's parts and the effect of freezing each; add a note if vision takes at least the share `floor`."""
    p, cost = chosen.problem.program, chosen.cost
    if p.model.vision is None:
        return estimate
    report = cost.parts_report(row.codes)
    parts = tuple(
        Part(
            part.name,
            part.params,
            **{f"{k}_gib": part.bytes[k] / GIB for k in KINDS},
            total_gib=part.total / GIB,
            time_s=part.seconds,
            share=part.seconds / row.step_time,
        )
        for part in report
    )
    freeze = list[Freeze]()
    for word in VLM_WORDS:  # compare the layout with this part frozen and trained; the plan is one of the two
        other, is_frozen = evolve(cost, freeze=cost.freeze ^ {word}), word in cost.freeze
        plan = (row.peak_memory, row.step_time)
        changed = (float(other.memory(row.codes)[0]), float(other.time(row.codes)[0]))
        (frozen_bytes, frozen_s), (trained_bytes, trained_s) = (plan, changed) if is_frozen else (changed, plan)
        gib, seconds = (frozen_bytes - trained_bytes) / GIB, frozen_s / trained_s - 1
        freeze.append(Freeze(word, is_frozen, gib, seconds, f"{gib:+.1f} GiB, {100 * seconds:+.1f}% step time"))
    vision = sum(part.seconds for part in report[:-1]) / row.step_time  # encoder and projector
    r = next((r for r in p.rules if r.id == RuleId.FROZEN_ENCODER), None)
    note = VisionNote(r.id, vision, r.because, r.fix, r.cites) if r is not None and vision >= floor else None
    return evolve(estimate, parts=parts, freeze=tuple(freeze), vision_note=note)


def text(e: Estimate) -> str:
    """Print the speed with its interval, and the parts of the step, the longest first."""
    rates = f"{e.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {e.model_tflops_per_gpu:.0f} model TFLOPS/GPU"
    lines = [f"Speed  {e.step_time_s:.2f} s a step, {rates}"]
    if i := e.interval:
        wider = f", wider because there is {' and '.join(i.unlike)}" if i.unlike else ""
        leans = f"; leans on {', '.join(f'{n.constant} ({n.moves:.0%})' for n in i.leans_on)}" if i.leans_on else ""
        lines.append(wrapped(f"{i.lower_s:.2f} to {i.upper_s:.2f} s in nine of ten runs{wider}{leans}"))
    parts = sorted(((v, k) for k, v in e.breakdown.items() if v > 0), reverse=True)
    lines += [f"  {k.replace('_', ' '):<24}{v:8.3f} s {100 * v / e.step_time_s:5.1f}%" for v, k in parts]
    return "\n".join(lines)


def parts_text(e: Estimate, mock: Sequence[str]) -> str:
    """Print a VLM's parts, in GiB on a rank of the first stage and seconds of a step; empty for a text model.

    `mock` is what rules say about mock data."""
    if e.parts is None:
        return ""
    rows: list[tuple[str, ...]] = [("part", "parameters", *MEMORY, "total GiB", "s a step", "share")]
    for part in e.parts:
        sizes = (f"{getattr(part, f'{k}_gib'):.2f}" for k in (*MEMORY, "total"))
        rows.append((part.part, f"{part.params / 1e9:.2f}B", *sizes, f"{part.time_s:.3f}", f"{100 * part.share:.1f}%"))
    useful = f"{e.useful_tokens_per_s_per_gpu:,.0f} useful tokens/s/GPU: {100 * e.useful_share:.1f}%"
    lines = [f"Parts  {useful} of a sequence trains the decoder, the rest is image"]
    lines += [wrapped(f"data is mock: {said}") for said in mock]
    lines += table(rows)
    if isinstance(n := e.vision_note, VisionNote):
        lines.append(wrapped(f"{100 * n.share:.0f}% of the step is vision: {n.because}; {n.fix}"))
    lines += [f"  {f.name} {'buys' if f.frozen else 'would buy'}: {f.effect}" for f in e.freeze or ()]
    return "\n".join(lines)
