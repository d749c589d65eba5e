"""Make the changes that `what-if` compares: one change at a time, each a program with the same tokens a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import evolve, field, frozen

from moedsl.facts import axes, releases, unbuilt
from moedsl.facts.gpu_counts import MOST_GPUS
from moedsl.facts.symbols import VLM_WORDS
from moedsl.queries.gpus import held
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.library import Library
from moedsl.solver.laws import obeyed
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Table
from moedsl.support.text import counted, tokens

_SETTLED = [a for a in axes.AXES if a.kind in ("enum", "flag") and not a.opened and a.name != "precision"]
"""The axes with one default value; precision has changes of its own."""
KINDS = {
    "gpus": "More and fewer GPUs",
    "hardware": "Other GPUs",
    "seq": "Sequence length",
    "target": "Other releases of Megatron Bridge",
    "precision": "Number formats",
    "freeze": "Freezing",
    "sharding": "Sharding",
    **{a.name: a.doc[0].upper() + a.doc[1:] for a in _SETTLED if not a.is_format and a.name != "sharding"},
}
"""The kinds of changes in order, with their headings."""
SLOWEST = 1 / 3
"""The BF16 peak of another GPU that is asked, over that of the run: a slower one is no alternative."""
_LABELS = {"sharding fsdp": "Megatron FSDP", "sharding optimizer": "the distributed optimizer instead of FSDP"}


@frozen
class Change:
    """One change. `program` states its GPUs, sequence length and batch; it is None if nothing can be compiled."""

    kind: str
    label: str
    program: Program | None = field(repr=False)
    why: str | None = None
    """Why nothing can be compiled."""


def changes(chosen: Chosen, library: Library) -> list[Change]:
    """Make every change of a run, in the order of `KINDS`."""
    p = held(chosen)
    frozen_parts = _freezing(p) if p.model.vision is not None else ()
    return [
        *_gpus(p), *_hardware(p, library), *_seq(p), *_target(p), *_precision(chosen, p),
        *_settled(chosen, p, formats=True), *frozen_parts, *_settled(chosen, p, formats=False),
    ]  # fmt: skip


def _gpus(p: Program) -> Iterator[Change]:
    assert p.gpus is not None
    for times in (2, 4):
        gpus = p.gpus * times
        label = f"{times}x GPUs: {gpus} {p.hardware.name}"
        if gpus > MOST_GPUS:
            yield Change("gpus", label, None, f"more than {MOST_GPUS} GPUs are not supported")
        else:
            yield Change("gpus", label, evolve(p, gpus=gpus))
    if p.gpus % 2:
        yield Change("gpus", "half the GPUs", None, f"{p.gpus} is an odd number")
    else:
        yield Change("gpus", f"half the GPUs: {p.gpus // 2} {p.hardware.name}", evolve(p, gpus=p.gpus // 2))


def _hardware(p: Program, library: Library) -> Iterator[Change]:
    """Every other declared GPU that is fast enough: as many of them, and as many nodes if that is another number."""
    assert p.gpus is not None
    for name in sorted(library.hardware.keys() - {p.hardware.name}):
        h, diagnostics = library.gpu(name)
        if h is None:
            yield Change("hardware", f"{p.gpus} {name}", None, f"its declaration is wrong: {diagnostics[0].message}")
            continue
        if h.tflops["bf16"] < SLOWEST * p.hardware.tflops["bf16"]:
            continue
        yield Change("hardware", f"{p.gpus} {name}", evolve(p, hardware=h))
        nodes = -(-p.gpus // p.hardware.gpus_per_node)
        same_nodes = nodes * h.gpus_per_node
        if p.gpus >= p.hardware.gpus_per_node and same_nodes not in (p.gpus, 0) and same_nodes <= MOST_GPUS:
            label = f"{same_nodes} {name} ({counted(nodes, 'node')}, as now)"
            yield Change("hardware", label, evolve(p, hardware=h, gpus=same_nodes))


def _seq(p: Program) -> Iterator[Change]:
    """Twice and half the length, with as many tokens a step."""
    assert p.batch is not None
    step = p.batch * p.seq
    for seq, word in ((p.seq * 2, "2x"), (p.seq // 2, "half")):
        label = f"{word} the sequence: {tokens(seq)}"
        if seq == 0 or step % seq or (word == "half" and p.seq % 2):
            yield Change("seq", label, None, f"the {step} tokens of a step do not divide into such sequences")
        else:
            yield Change("seq", label, evolve(p, seq=seq, batch=step // seq))


def _target(p: Program) -> Iterator[Change]:
    """Every other release of Bridge, newest first."""
    for r in reversed(releases.RELEASES):
        if r.bridge != p.target:
            refused = unbuilt.why(p.model, r.bridge)
            model = evolve(p.model, query_norm=r.query_norm)
            yield Change(
                "target", f"Bridge {r.bridge}", None if refused else evolve(p, target=r.bridge, model=model), refused
            )


def _precision(chosen: Chosen, p: Program) -> Iterator[Change]:
    """Every other number format of matrix products on this GPU."""
    for word in supported(chosen):
        code = axes.PRECISION.index(word)
        if code != chosen.solution.rows[0].codes["precision"]:
            yield Change("precision", f"precision {word}", _pinned(evolve(p, precision=word), "precision", code))


def supported(chosen: Chosen) -> list[str]:
    """The number formats that no law refuses in every layout, and of which the GPU has a rate."""
    codes = np.arange(len(axes.PRECISION))
    table = Table({"precision": codes}, chosen.problem.codes, chosen.compiled.lets)
    laws = [w for w in chosen.compiled.laws if w.needs == {"precision"} and not w.rule.wish]
    hw = chosen.problem.program.hardware
    priced = (w == "bf16" or hw.rate_of(w) != "bf16" for w in axes.PRECISION)
    return [w for w, legal, p in zip(axes.PRECISION, obeyed(laws, table), priced, strict=True) if legal and p]


def _settled(chosen: Chosen, p: Program, formats: bool) -> Iterator[Change]:
    """Every other value of the axes of `_SETTLED`: of the number formats, or of the others."""
    for axis in (a for a in _SETTLED if a.is_format == formats):
        for code in range(len(axis.words) or 2):
            text = f"{axis.name} {axes.show(axis.decode(code))}"
            if code != chosen.solution.rows[0].codes[axis.name]:
                kind = "precision" if formats else axis.name
                yield Change(kind, _LABELS.get(text, text), _pinned(p, axis.name, code))


def _pinned(p: Program, axis: str, code: int) -> Program:
    """Pin a value; the pin points at the hardware if the run does not state the axis."""
    span = p.pins[axis].span if axis in p.pins else p.spans.get(axis, p.spans["hardware"])
    return evolve(p, pins={**p.pins, axis: Pin(axis, code, span)})


def _freezing(p: Program) -> Iterator[Change]:
    for word in VLM_WORDS:
        part = word.removeprefix("freeze_")
        label = f"train the {part} too" if word in p.vlm else f"freeze the {part}"
        yield Change("freeze", label, evolve(p, vlm=p.vlm ^ {word}))
