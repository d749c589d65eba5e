"""Prices of a model on a machine: peak memory and step time, for whole columns and, in parts, for one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost import communication, flops, formats, memory, parameters, pipeline, profiles, rows, step
from moedsl.cost.pipeline import Layout
from moedsl.cost.rows import Floats, Ints, Table
from moedsl.facts import Hardware, Model

Columns = Mapping[str, ArrayLike]
"""Axis name to a column of codes (`moedsl.axes`) or one number; what is missing takes its default."""
DEEPEST = 3
"""More microbatches than DEEPEST x pp fill a pipeline no further."""


@frozen
class Cost:
    """The prices of a run. Rows whose (pp, vpp) have no layout cost infinite memory and time."""

    model: Model
    hardware: Hardware
    gpus: int
    seq: int
    global_batch: int
    task: str = "pretrain"
    freeze: frozenset[str] = frozenset()
    layout: str | None = None
    """A pinned pipeline layout; it is then the only one, and pp x vpp its number of chunks."""
    _chunks: int = field(init=False, repr=False)

    @_chunks.default
    def _count(self) -> int:
        return len(pipeline.unroll(self.layout)[0]) if self.layout else 0

    @property
    def covers(self) -> dict[str, str]:
        """What each estimate includes and leaves out, in plain sentences."""
        return {"memory": memory.COVERS, "time": step.COVERS}

    def layout_for(self, pp: int, vpp: int) -> Layout | None:
        """The pinned layout where its chunks are pp x vpp, else the one that `pipeline.layout_for` finds."""
        if self.layout is None:
            return pipeline.layout_for(self.model, pp, vpp)
        return pipeline.parse_layout(self.layout, self.model, pp, vpp)[0] if self._chunks == pp * vpp else None

    def has_layout(self, pp: ArrayLike, vpp: ArrayLike) -> NDArray[np.bool_]:
        """Where a pipeline layout exists, by row."""
        if self.layout is None:
            return pipeline.has_layout(self.model, pp, vpp)
        p, v = np.broadcast_arrays(np.asarray(pp, np.int64), np.asarray(vpp, np.int64))
        pairs, index = np.unique(p.ravel() << 20 | v.ravel(), return_inverse=True)
        found = [self.layout_for(int(k) >> 20, int(k) & 0xFFFFF) is not None for k in pairs]
        return np.array(found, bool)[index].reshape(p.shape)

    def memory(self, cols: Columns) -> Floats:
        """Peak bytes on the most loaded rank, by row."""
        full = rows.complete(cols)
        n = rows.length(full)
        pipes = self._pipes(full, n)
        t = rows.unique(full, memory.COLUMNS, n)
        priced = memory.matrix(memory.prices(self.model, self.hardware, t, self.gpus, self.seq, self._trained), t.rows)
        return rows.largest([self._live(pipes, i) for i in range(pipes.rows)], pipes.inverse, priced, t.inverse)

    def time(self, cols: Columns) -> Floats:
        """Seconds of one step, by row."""
        full = rows.complete(cols)
        n = rows.length(full)
        shape = rows.unique(full, ("pp", "vpp"), n)
        t = rows.unique(full, step.COLUMNS, n)
        stages = [self._timed(int(p), int(v)) for p, v in zip(shape["pp"], shape["vpp"], strict=True)]
        priced = self._step(t)
        slowest, wire, adam = (
            rows.largest(stages, shape.inverse, step.matrix(priced, parts, t.rows), t.inverse)
            for parts in (step.MICROBATCH, ("data_communication",), ("optimizer",))
        )
        return sum(self._outside(full, t, slowest, wire).values()) + adam

    def memory_report(self, row: Mapping[str, int]) -> list[memory.StageMemory]:
        """Every stage of one row in parts; raises ValueError where its (pp, vpp) have no layout."""
        full = rows.complete(row)
        layout = self._layout(full)
        t = rows.unique(full, memory.COLUMNS, 1)
        priced = memory.prices(self.model, self.hardware, t, self.gpus, self.seq, self._trained)
        counts = profiles.memory(self.model, layout, int(self._deep(full)))
        tp, ep, etp = (int(full[name]) for name in ("tp", "ep", "etp"))
        report = list[memory.StageMemory]()
        for s, profile in enumerate(counts):
            held = parameters.stage(self.model, layout, s, tp, ep, etp)
            kinds = {k: float((memory.matrix({k: priced[k]}, 1)[0] * profile).sum()) for k in memory.KINDS}
            report.append(memory.StageMemory(s, held.dense, held.expert, **kinds))
        return report

    def time_report(self, row: Mapping[str, int]) -> dict[str, float]:
        """One row's seconds by part of `step.PARTS`; they sum to the step."""
        full = rows.complete(row)
        layout = self._layout(full)
        t = rows.unique(full, step.COLUMNS, 1)
        priced = self._step(t)
        stages = profiles.time(self.model, layout)
        by = {part: stages @ step.matrix(priced, (part,), 1)[0] for part in (*step.MICROBATCH, *step.STEP)}
        slowest = int(np.argmax(sum(by[part] for part in step.MICROBATCH)))
        m = float(self.microbatches(full))
        out = {part: float(by[part][slowest]) * m for part in step.MICROBATCH}
        total = np.array([sum(float(by[part][slowest]) for part in step.MICROBATCH)])
        outside = self._outside(full, t, total, by["data_communication"].max(keepdims=True))
        out |= {name: float(seconds[0]) for name, seconds in outside.items() if name != "microbatches"}
        return out | {"optimizer": float(by["optimizer"].max())}

    def microbatches(self, cols: Columns) -> Ints:
        """Microbatches of a step: global batch over data parallelism and micro batch, at least 1."""
        full = rows.complete(cols)
        dp = np.maximum(self.gpus // (full["tp"] * full["cp"] * full["pp"]), 1)
        return np.maximum(self.global_batch // (dp * full["micro_batch"]), 1)

    def tokens_per_second_per_gpu(self, seconds: ArrayLike) -> Floats:
        """Tokens/s of one GPU for a step of so many seconds."""
        return self.global_batch * self.seq / (np.asarray(seconds, float) * self.gpus)

    def model_tflops_per_gpu(self, seconds: ArrayLike, tp: int = 1) -> Floats:
        """TFLOPS of one GPU as Bridge logs them."""
        return flops.of_step(self.model, self.seq, self.global_batch, tp) / (np.asarray(seconds, float) * self.gpus) / 1e12

    @property
    def _trained(self) -> memory.Trained:
        return memory.trained(self.freeze)

    def _layout(self, full: Mapping[str, Ints]) -> Layout:
        layout = self.layout_for(int(full["pp"]), int(full["vpp"]))
        if layout is None:
            raise ValueError(f"no pipeline layout for pp={int(full['pp'])} vpp={int(full['vpp'])}")
        return layout

    def _deep(self, full: Mapping[str, Ints]) -> Ints:
        return np.minimum(self.microbatches(full), DEEPEST * full["pp"])

    def _pipes(self, full: dict[str, Ints], n: int) -> Table:
        keyed = {"pp": full["pp"], "vpp": full["vpp"], "deep": self._deep(full)}
        return rows.unique(keyed, tuple(keyed), n)

    def _live(self, pipes: Table, i: int) -> Floats:
        pp, vpp, deep = (int(pipes[name][i]) for name in ("pp", "vpp", "deep"))
        layout = self.layout_for(pp, vpp)
        return _nowhere(len(profiles.MEMORY)) if layout is None else rows.undominated(profiles.memory(self.model, layout, deep))

    def _timed(self, pp: int, vpp: int) -> Floats:
        layout = self.layout_for(pp, vpp)
        return _nowhere(len(profiles.TIME)) if layout is None else rows.undominated(profiles.time(self.model, layout))

    def _step(self, t: Table) -> dict[str, step.Prices]:
        n = memory.counts(self.model, t, self._trained)
        return step.prices(self.model, self.hardware, t, self.gpus, self.seq, n, self._trained)

    def _outside(self, full: Mapping[str, Ints], t: Table, slowest: Floats, wire: Floats) -> dict[str, Floats]:
        """What comes on top of a microbatch's parts: the microbatches themselves, the bubble and the wires."""
        m = self.microbatches(full) * np.ones(1)
        hop = communication.pipeline(self.model, self.hardware, t, self.gpus, self.seq)[t.inverse]
        return {
            "microbatches": slowest * m,
            "pipeline_communication": hop * m,
            "bubble": step.bubble(slowest, full["pp"] * 1.0, full["vpp"] * 1.0),
            "data_communication": step.after_overlap(wire, slowest, formats.fsdp(t)[t.inverse], m),
        }


def _nowhere(features: int) -> Floats:
    return np.full((1, features), np.inf)
