"""Estimate the share of a step's tokens that train the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.facts.samples import Filled, filled
from moedsl.rules.check.program import Program
from moedsl.rules.ids import LetName
from moedsl.solver.solve import Chosen


def share(p: Program, env: Mapping[str, Any]) -> float:
    """The tokens that train; a VLM's sample has one image, whose tokens carry no loss, and a text has padding if the
    lengths of its samples are known."""
    held = held_by(p, env)
    image, seq = p.model.vision.image_tokens if p.model.vision else 0, int(env["seq"])
    return held.useful if held else max(seq - image, 0) / seq


def rate(chosen: Chosen, codes: Mapping[str, int], step: float) -> float:
    """Tokens that train per second and GPU in one layout, of a step that takes so long."""
    p = chosen.problem.program
    env = chosen.environment(codes) if p.samples and p.samples.lengths else chosen.problem.values
    return share(p, env) * float(chosen.cost.tokens_per_second_per_gpu(step))


def held_by(p: Program, env: Mapping[str, Any]) -> Filled | None:
    """What a sequence of samples holds; None if the run does not say their lengths."""
    if not (p.samples and p.samples.lengths):
        return None
    return filled(p.samples.lengths, int(env["seq"]), bool(env["pack"]), int(env[LetName.SAMPLE_MULTIPLE]))
