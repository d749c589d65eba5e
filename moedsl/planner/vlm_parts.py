"""Estimate a VLM by part: encoder, projector and decoder, what freezing saves, and useful tokens."""

from __future__ import annotations

from attrs import evolve

from moedsl.cost import Cost, tower
from moedsl.cost.memory import KINDS
from moedsl.facts.symbols import VLM_WORDS
from moedsl.facts.units import GIB
from moedsl.planner.model.estimate import Estimate, Freeze, Part, VisionNote
from moedsl.rules.check.program import Program
from moedsl.rules.ids import RuleId
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row


def with_parts(estimate: Estimate, chosen: Chosen, row: Row, floor: float) -> Estimate:
    """Add the parts of a VLM and the effect of freezing each; a vision share from `floor` on has a note."""
    p = chosen.problem.program
    if p.model.vision is None:
        return estimate
    report = chosen.cost.parts_report(row.codes)
    freeze = tuple(_frozen(chosen.cost, row, word) for word in VLM_WORDS)
    parts = tuple(_part(f, row.step_time) for f in report)
    return evolve(estimate, parts=parts, freeze=freeze, vision_note=_note(p, report, row.step_time, floor))


def _part(part: tower.Part, step_time: float) -> Part:
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


def _note(p: Program, report: list[tower.Part], step_time: float, floor: float) -> VisionNote | None:
    """The rule on a dominant encoder, if encoder and projector take more of the step than `floor`."""
    share = sum(f.seconds for f in report[:-1]) / step_time
    rule = next((r for r in p.rules if r.id == RuleId.FROZEN_ENCODER), None)
    if rule is None or share < floor:
        return None
    return VisionNote(rule.id, share, rule.because, rule.fix, rule.cites)
