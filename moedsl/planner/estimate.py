"""The estimates of a plan: memory by stage, step time with its interval, a VLM's parts, and tokens that train.

`known` prices the plan and other layouts with every constant moved, which gives the interval of the step and the
layouts that the estimate cannot tell apart. `with_parts` adds the parts of a VLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from moedsl.cost import Cost, step
from moedsl.cost.memory import KINDS
from moedsl.facts.axes import AXES
from moedsl.facts.fine_tuning import Filled, filled
from moedsl.facts.symbols import VLM_WORDS
from moedsl.facts.units import GIB
from moedsl.planner.memory import Memory
from moedsl.rules.check.program import Program
from moedsl.rules.stdlib import LetName, RuleId
from moedsl.solver import uncertainty
from moedsl.solver.laws import Row
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class Covers(JsonForm):
    """What the estimate of time includes."""

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
    """Seconds of a step."""
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
    """A constant that the step leans on, or a part of its time that differs from run to run."""

    constant: str
    """Its name; "uneven tokens" and "launches" are parts of the time."""
    moves: float
    """How far one standard deviation of it moves the step, as a share."""
    about: str


@frozen
class Interval(JsonForm):
    """The interval in which nine of ten steps lie."""

    lower_s: float
    upper_s: float
    leans_on: tuple[Leaning, ...]
    """What moves it most."""
    unlike: tuple[str, ...]
    """How the run differs from all that the constants were fitted to; each makes the interval wider."""


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


def useful_share(p: Program, env: Mapping[str, Any]) -> float:
    """The tokens that train; a VLM's sample has one image, whose tokens carry no loss, and a text has padding if the
    lengths of its samples are known."""
    held = held_by(p, env)
    image, seq = p.model.vision.image_tokens if p.model.vision else 0, int(env["seq"])
    return held.useful if held else max(seq - image, 0) / seq


def useful_rate(chosen: Chosen, codes: Mapping[str, int], step: float) -> float:
    """Tokens that train per second and GPU in one layout, of a step that takes so long."""
    p = chosen.problem.program
    env = chosen.environment(codes) if p.samples and p.samples.lengths else chosen.problem.values
    return useful_share(p, env) * float(chosen.cost.tokens_per_second_per_gpu(step))


def held_by(p: Program, env: Mapping[str, Any]) -> Filled | None:
    """What a sequence of samples holds; None if the run does not say their lengths."""
    if not (p.samples and p.samples.lengths):
        return None
    return filled(p.samples.lengths, int(env["seq"]), bool(env["pack"]), int(env[LetName.SAMPLE_MULTIPLE]))


Layouts = Sequence[tuple[Mapping[str, int], float]]
"""Codes of a layout with its step time."""


@frozen
class Known:
    """The interval of the plan's step, and the codes of layouts whose steps cannot be told from it."""

    interval: Interval
    close: frozenset[tuple[int, ...]]

    def is_close(self, codes: Mapping[str, int]) -> bool:
        return _key(codes) in self.close


def known(cost: Cost, row: Row, others: Layouts) -> Known:
    """Price the plan and other layouts with every constant moved, all at once."""
    every = [(row.codes, row.step_time), *others]
    cols = {name: np.array([codes[name] for codes, _ in every]) for name in row.codes}
    steps = np.array([t for _, t in every])
    slope = uncertainty.leaning(cost, cols, steps)
    with np.errstate(invalid="ignore"):
        near = np.abs(np.log(steps[1:] / steps[0])) < uncertainty.apart(cost, slope[1:] - slope[0])
    close = near & np.isfinite(slope[1:]).all(axis=1)
    doubt = uncertainty.doubt(cost, slope[0])
    keys = (_key(codes) for (codes, _), c in zip(others, close, strict=True) if c)
    return Known(_interval(row.step_time, doubt), frozenset(keys))


def _key(codes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(codes[a.name] for a in AXES)


def _interval(step_time: float, d: uncertainty.Doubt) -> Interval:
    leans = tuple(Leaning(t.name, t.moves, t.about) for t in d.leans_on)
    return Interval(step_time / d.factor, step_time * d.factor, leans, d.unlike)


def with_parts(estimate: Estimate, chosen: Chosen, row: Row, floor: float) -> Estimate:
    """Add the parts of a VLM and the effect of freezing each; a vision share from `floor` on has a note."""
    p = chosen.problem.program
    if p.model.vision is None:
        return estimate
    report = chosen.cost.parts_report(row.codes)
    freeze = tuple(_frozen(chosen.cost, row, word) for word in VLM_WORDS)
    parts = tuple(_part(f, row.step_time) for f in report)
    return evolve(estimate, parts=parts, freeze=freeze, vision_note=_note(p, report, row.step_time, floor))


def _part(part: step.TowerPart, step_time: float) -> Part:
    sizes = {f"{k}_gib": part.bytes[k] / GIB for k in KINDS} | {"total_gib": part.total / GIB}
    return Part(part.name, part.params, **sizes, time_s=part.seconds, share=part.seconds / step_time)


def _frozen(cost: Cost, row: Row, word: str) -> Freeze:
    """Compare the plan's layout with one part frozen and with it trained."""
    with_it, without = (_priced(cost, row, freeze) for freeze in (cost.freeze | {word}, cost.freeze - {word}))
    gib, seconds = (with_it[0] - without[0]) / GIB, with_it[1] / without[1] - 1
    return Freeze(word, word in cost.freeze, gib, seconds, f"{gib:+.1f} GiB, {100 * seconds:+.1f}% step time")


def _priced(cost: Cost, row: Row, freeze: frozenset[str]) -> tuple[float, float]:
    """(peak bytes, seconds of a step) of one layout."""
    if freeze == cost.freeze:
        return row.peak_memory, row.step_time
    other = evolve(cost, freeze=freeze)
    return float(other.memory(row.codes)[0]), float(other.time(row.codes)[0])


def _note(p: Program, report: list[step.TowerPart], step_time: float, floor: float) -> VisionNote | None:
    """The rule on a dominant encoder, if encoder and projector take more of the step than `floor`."""
    share = sum(f.seconds for f in report[:-1]) / step_time
    rule = next((r for r in p.rules if r.id == RuleId.FROZEN_ENCODER), None)
    if rule is None or share < floor:
        return None
    return VisionNote(rule.id, share, rule.because, rule.fix, rule.cites)
