"""Separate a VLM's encoder and projector from its decoder: bytes and seconds on the rank that holds the tower."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import evolve, fields, frozen

from moedsl.cost import activations, compute, formats, memory, parameters, step
from moedsl.cost.compute import Work
from moedsl.cost.memory import Counts, Prices, StageMemory, Trained
from moedsl.cost.parameters import Parameters
from moedsl.cost.rows import Floats, Table
from moedsl.facts.facts import Hardware, Model, Vision

PARTS = ("encoder", "projector", "decoder")


@frozen
class Part:
    """One part of a VLM on a rank of the first pipeline stage. Bytes by kind of `memory.KINDS`, seconds of a step."""

    name: str
    params: int
    bytes: Mapping[str, float]
    seconds: float

    @property
    def total(self) -> float:
        """Sum all bytes."""
        return sum(self.bytes.values())


def counts(v: Vision, tp: int) -> tuple[int, int]:
    """Count the parameters of (encoder, projector) on a rank."""
    projector = sum(parameters.mergers(v, tp))
    return parameters.vision(v, tp) - projector, projector


def prices(v: Vision, hw: Hardware, t: Table, gpus: int, learns: Trained) -> tuple[dict[str, Prices], ...]:
    """Return (encoder, projector): bytes of each kind by feature of `profiles.of_memory`, for a table of one row."""
    tp = int(t["tp"][0])
    kept = activations.vision_parts(v, t, learns.passed)
    encoder, projector = counts(v, tp)
    roots = (encoder - parameters.vision_layers(v, tp), projector)
    out: list[dict[str, Prices]] = []
    for i, (count, learnt) in enumerate(((encoder, learns.tower), (projector, learns.projection))):
        gathered = formats.fsdp(t) * roots[i] * (gpus > tp) * formats.BF16
        flowing: dict[str, Prices] = {"activations": {"vision_live": kept[i]}, "buffers": {"vision": gathered}}
        out.append({**memory.held(_alone(count, learnt), t, gpus, hw.transposes), **flowing})
    return tuple(out)


def _alone(count: int, learns: bool) -> Counts:
    return Counts({"vision": Parameters(count)}, {"vision": Parameters(count * learns)})


def seconds(m: Model, hw: Hardware, t: Table, seq: int, learns: Trained) -> tuple[Floats, Floats]:
    """Return (encoder, projector) of one microbatch by row, with recompute; launches count as the encoder's."""
    shape = t.narrow(step.SHAPE)
    whole = compute.work(m, hw, shape, seq, skew=1.0)
    nothing = Work(*(np.zeros(shape.rows) for _ in fields(Work)))
    encoder = step.computed(m, hw.constants, shape, evolve(nothing, vision=whole.vision), learns)["vision"]
    projector = step.computed(m, hw.constants, shape, evolve(nothing, merger=whole.merger), learns)["vision"]
    again = learns.tower * (0.0 if m.vision is None else activations.again(m.vision, t))
    encoder = encoder + again * whole.vision[shape.inverse]
    return np.maximum(compute.host_tower(m, hw, t, learns.tower), encoder), projector


def apart(
    m: Model, v: Vision, tp: int, profile: Floats, priced: tuple[dict[str, Prices], ...], times: tuple[float, float]
) -> tuple[Part, Part]:
    """Return encoder and projector of the stage with this row of `profiles.memory`."""
    sizes = [{k: float(profile @ memory.matrix(m, {k: p}, 1)[:, 0]) for k, p in kinds.items()} for kinds in priced]
    first, second = (
        Part(name, *of) for name, of in zip(PARTS, zip(counts(v, tp), sizes, times, strict=True), strict=False)
    )
    return first, second


def rest(stage: StageMemory, seconds: float, others: tuple[Part, ...]) -> Part:
    """Return the decoder: everything else that the stage holds and computes, with its share of buffers and logits."""
    left = {k: float(getattr(stage, k)) - sum(o.bytes[k] for o in others) for k in memory.KINDS}
    params = stage.params + stage.expert_params - sum(o.params for o in others)
    return Part("decoder", params, left, seconds - sum(o.seconds for o in others))
