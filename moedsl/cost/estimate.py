"""Price a model on a machine: peak memory and step time, for whole columns of layouts or, in parts, for one row.

`Cost` prices one run's layouts; `bounds` says whether a layout fits its GPU in the low, best and high case.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from moedsl.cost import adapters, cases, communication, compute, flops, memory, parameters, pipeline, rows, step
from moedsl.cost.communication import Skew
from moedsl.cost.memory import OutsidePart
from moedsl.cost.pipeline import Layout
from moedsl.cost.rows import Floats, Ints, Known, Table
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Hardware, Model
from moedsl.facts.fine_tuning import Adapter
from moedsl.facts.units import GIB

Columns = Mapping[str, ArrayLike]
"""Axis name to a column of codes (`moedsl.facts.axes`) or one number; missing axes take their defaults."""
FSDP = BY_NAME["sharding"].words.index("fsdp")
_PIPE = ("pp", "vpp", "deep")
DEEPEST = 3
"""More than DEEPEST x pp microbatches do not fill a pipeline further."""
TOGETHER = 4096
"""Rows that are priced at once, each with another policy: of few rows, many policies."""
ROUNDING = 1e-9
"""The largest share by which sums in another order differ."""
Policies = Sequence[Mapping[str, int]]
"""Codes of the same axes in each."""


@frozen(slots=False)
class Cost:
    """The prices of a run. Rows whose (pp, vpp) have no layout cost infinite memory and time."""

    model: Model
    hardware: Hardware
    gpus: int
    seq: int
    global_batch: int
    task: str = "pretrain"
    freeze: frozenset[str] = frozenset()
    adapter: Adapter | None = None
    """What `task peft` trains; the weights are then frozen."""
    layout: str | None = None
    """The pinned pipeline layout, which excludes all others; pp x vpp must be its number of chunks."""
    routing: str = "natural"
    """natural, or balanced (forced, for benchmarks)."""
    loss: str = "te"
    """One of `cases.LOSSES`."""
    fused_activation: bool = True
    """Whether one kernel applies a gated activation (`bias_activation_fusion`)."""
    fused_rotary: bool = True
    """Whether one kernel rotates queries and keys (`apply_rope_fusion`)."""
    fp8: tuple[bool, bool] = (False, False)
    """Whether (attention itself, the output layer) multiplies in 8 bits (`fp8_dot_product_attention`,
    `fp8_output_proj`)."""
    scores: float = 0.0
    """Bytes that attention keeps for each score; fused kernels keep none."""
    accumulates: bool = True
    """Whether weight gradients are accumulated into Megatron's gradient buffer (`gradient_accumulation_fusion`)."""
    fp8_weights: bool | None = None
    """Whether parameters are kept and gathered in FP8 (`fp8_param_gather`); None means the precision's default."""
    overlap: tuple[bool, bool] = (True, True)
    """Whether (gradient reduction, parameter gathering) overlaps with compute."""
    stash: float = cases.STASH
    """`moe_paged_stash_buffer_size_factor_cuda` of a captured iteration."""
    capacity: float = cases.CAPACITY["balanced"]
    """`moe_expert_rank_capacity_factor` of a captured iteration, and of NCCL EP's receive buffers."""
    wire: float = 1.0
    """Bytes of a token that NCCL EP sends, relative to BF16: the mean of a layer's four transfers."""
    drops: cases.Drops = cases.DROPLESS
    span: float = 0
    """Mean number of tokens of the packed sample that a token attends to; 0 means the whole sequence."""

    @property
    def covers(self) -> dict[str, str]:
        """Describe what each estimate includes and leaves out."""
        return {"memory": memory.COVERS, "time": step.COVERS}

    @cached_property
    def uncertain(self) -> cases.Cases:
        """Return the cases of the memory estimate."""
        return cases.Cases(self.hardware.constants, self.routing, self.loss, self.drops)

    def layout_for(self, pp: int, vpp: int) -> Layout | None:
        """Return the pinned layout, or None if its chunks are not pp x vpp; without a pin, `pipeline.layout_for`'s."""
        if self.layout is None:
            return pipeline.layout_for(self.model, pp, vpp)
        return pipeline.parse_layout(self.layout, self.model, pp, vpp)[0]

    def has_layout(self, pp: ArrayLike, vpp: ArrayLike) -> NDArray[np.bool_]:
        """Whether a pipeline layout exists, by row."""
        if self.layout is None:
            return pipeline.has_layout(self.model, pp, vpp)
        p, v = np.broadcast_arrays(np.asarray(pp, np.int64), np.asarray(vpp, np.int64))
        pairs, index = np.unique(p.ravel() << 20 | v.ravel(), return_inverse=True)
        found = [self.layout_for(int(k) >> 20, int(k) & 0xFFFFF) is not None for k in pairs]
        return np.array(found, bool)[index].reshape(p.shape)

    def memory(self, cols: Columns, way: cases.Case | None = None, policies: Policies = ()) -> Floats:
        """Return the peak bytes on the most loaded rank, by row, in whole bytes, in the best case or another one; with
        some policies, a lower bound of it with any of them."""
        full, way = self._keyed(cols), way or self.uncertain.best
        return np.concatenate([self._memory(part, way, policies)[0] for part in rows.chunks(full, rows.length(full))])

    def held(self, cols: Columns) -> Floats:
        """Return what is held on the most loaded rank at any time of a step, by row: a lower bound of `memory` in any
        case. It does not depend on CP, the micro batch and the policies of activations."""
        full = self._keyed(cols)
        n, levels = rows.length(full), rows.Levels.of(full, (*memory.AT_STEP, "pp", "vpp"))
        pipes, t = levels.kinds(("pp", "vpp"), n), levels.table(memory.AT_STEP, n)
        at = evolve(self.uncertain.least, accumulates=self.accumulates)
        held = memory.always_held(self.model, self.hardware, t, self.gpus, self._trained, at)

        def heaviest(i: int) -> Floats | None:
            layout = self.layout_for(int(pipes["pp"][i]), int(pipes["vpp"][i]))
            return None if layout is None else parameters.heaviest(self.model, layout)

        most = rows.largest(pipes.rows, heaviest, pipes.inverse, memory.matrix(self.model, held, t.rows), t.inverse)
        return np.floor(most * (1 - ROUNDING))

    def spare(
        self, cols: Columns, case: str = "high", dispatchers: Sequence[int] = (), policies: Policies = ()
    ) -> Floats:
        """Return the bytes that remain on the most loaded rank in a case (high, best or low), by row, in whole bytes:
        the visible memory, less what torch has reserved and the memory outside torch. Of some dispatchers, the one with
        the least memory outside torch counts. With some policies, it is an upper bound with any of them."""
        full, held = self._keyed(cols), 1 + self.hardware.constants.ends("torch_unused")[case]

        def remains(part: dict[str, Ints]) -> Floats:
            peak, levels = self._memory(part, self.uncertain.of(case), policies)
            t = levels.table(memory.OUTSIDE, len(peak))
            ways = [{**t.columns, "dispatcher": np.full(t.rows, d)} for d in dispatchers] or [t.columns]
            each = (
                memory.outside_torch(self.hardware, self.model, way, self.gpus, self.seq, case, self.capacity)
                for way in ways
            )
            return np.rint(self.hardware.shown - peak * held - functools.reduce(np.minimum, each)[t.inverse])

        return np.concatenate([remains(part) for part in rows.chunks(full, rows.length(full))])

    def _memory(self, full: dict[str, Ints], way: cases.Case, policies: Policies = ()) -> tuple[Floats, rows.Levels]:
        """Return the peak bytes by row, and the levels of the columns that memory depends on.

        With some policies each feature has its least price with any of them. With FSDP other features have a price, so
        those policies are bounded apart.
        """
        n, levels = rows.length(full), rows.Levels.of(full, (*memory.COLUMNS, *_PIPE))
        pipes, t = levels.kinds(_PIPE, n), levels.table(memory.COLUMNS, n)
        if policies:
            alike = ([p for p in policies if (p["sharding"] == FSDP) == fsdp] for fsdp in (False, True))
            each = (self._least_prices(t, some, way) for some in alike if some)
            peak = functools.reduce(
                np.minimum,
                (
                    rows.largest(pipes.rows, lambda i: self._live(pipes, i), pipes.inverse, priced, t.inverse)
                    for priced in each
                ),
            )
            return np.where(peak > 0, np.floor(peak * (1 - ROUNDING)), np.inf), levels
        priced = self._kept("memory", way).prices(
            t, memory.COLUMNS, lambda new: memory.matrix(self.model, self._prices(new, way), new.rows)
        )
        peak = rows.largest(pipes.rows, lambda i: self._live(pipes, i), pipes.inverse, priced, t.inverse)
        peak = np.maximum(peak, self._stepping(levels, n, way))
        return np.where(peak > 0, np.rint(peak), np.inf), levels

    def _least_prices(self, t: Table, policies: Policies, way: cases.Case) -> Floats:
        """Return the least bytes of each feature with any of some policies, all with FSDP or none: (features, rows).
        Shards without FSDP are those of one GPU, divided, so what one GPU needs is kept for all numbers of GPUs."""
        if policies[0]["sharding"] == FSDP:
            return self._of_any(t, policies, way)
        one = evolve(self, gpus=1, global_batch=1)
        known = next((c for c in tuple(_ALONE) if c == one), None)  # another thread may add one meanwhile
        if known is None:
            _ALONE.appendleft(known := one)
        kept = known._kept("least", way, tuple(tuple(policy.items()) for policy in policies))
        least = kept.prices(t, memory.COLUMNS, lambda new: known._of_any(new, policies, way), many=True)
        return least / np.where(parameters.is_shard(self.model), self.gpus, 1)[:, np.newaxis]

    def _of_any(self, t: Table, policies: Policies, way: cases.Case) -> Floats:
        """Return the least bytes of each feature with any of some policies, of which several are priced at once."""

        def least(some: Policies) -> Floats:
            columns = {name: np.tile([policy[name] for policy in some], t.rows) for name in some[0]}
            of = t.times(len(some))
            priced = self._prices(Table({**of.columns, **columns}, of.inverse), way)
            each = memory.matrix(self.model, priced, of.rows)
            return each.reshape(len(each), t.rows, len(some)).min(axis=2)

        size = max(1, TOGETHER // max(1, t.rows))
        return functools.reduce(np.minimum, (least(policies[at : at + size]) for at in range(0, len(policies), size)))

    def _stepping(self, levels: rows.Levels, n: int, way: cases.Case) -> Floats:
        """Return the bytes on the most loaded rank while the optimizer steps, by row; a single 0 if no row copies
        gradients."""
        few = levels.table((*_PIPE, *memory.AT_STEP), n)
        if not memory.copied(few).any():
            return np.zeros(1)
        pipes, t = few.kinds(_PIPE), few.narrow(memory.AT_STEP)
        priced = self._kept("stepping", way).prices(
            t, memory.AT_STEP, lambda new: memory.matrix(self.model, self._step_prices(new, way), new.rows)
        )
        held = rows.largest(pipes.rows, lambda i: self._live(pipes, i), pipes.inverse, priced, t.inverse)
        return held[few.inverse]

    def time(self, cols: Columns) -> Floats:
        """Return the seconds of one step, by row, rounded to nanoseconds.

        If a machine constant has several values, (machines, 1), the result is (machines, rows).
        """
        full = self._keyed(cols)
        n = rows.length(full)
        pipes, layer, once = _time_tables(full, n)
        pairs = bool(layer["ep_overlap"].any())
        each = self._kept("layer", pairs).prices(layer, step.LAYER, lambda new: self._microbatch(new, pairs))
        shared = self._kept("once").prices(once, step.ONCE, self._once)

        def seconds(at: slice) -> Floats:
            slowest = rows.largest(
                pipes.rows, lambda i: self._timed(pipes, i), pipes.inverse[at], each, layer.inverse[at]
            )
            slowest, alone = (slowest[0], slowest[1] - slowest[0]) if pairs else (slowest, np.zeros_like(slowest))
            wire, adam = shared[..., once.inverse[at]]
            total = sum(self._outside(rows.part(full, at), slowest, alone, wire).values()) + adam
            return np.where(slowest > 0, np.round(total, 9), np.inf)

        return np.concatenate([seconds(at) for at in rows.slices(n)], axis=-1)

    def work(self, cols: Columns) -> Floats:
        """Return the seconds of all microbatches if each stage took the mean of the stages, by row: with `overhead` a
        lower bound of `time` with the VPP of the row or a smaller one."""
        full, layout = self._keyed(cols), self.layout_for(1, 1)
        n = rows.length(full)
        if layout is None:  # a pinned layout has other chunks
            return np.zeros(n)
        t = rows.Levels.of(full, step.LAYER).table(step.LAYER, n)
        priced = step.microbatch(self.model, self.hardware, t, self.seq, self._trained, self._skew)
        whole = parameters.time(self.model, layout).sum(axis=0) @ step.matrix(
            self.model, priced, step.MICROBATCH, t.rows
        )
        pp = full["pp"]
        return whole[t.inverse] / pp * (full["microbatches"] + (pp - 1) / full["vpp"])

    @property
    def overhead(self) -> float:
        """The seconds of a step that no layout changes."""
        return self.hardware.constants.host_step

    def peaks(self, row: Mapping[str, int], ways: Sequence[cases.Case]) -> list[float]:
        """Return the peak bytes of one row for each case in `ways`; raises ValueError like `memory_report`."""
        full = self._keyed(row)
        profile = parameters.fullest(self.model, self._layout(full), int(full["deep"]))
        t = rows.Levels.of(full, memory.COLUMNS).table(memory.COLUMNS, 1).times(len(ways))
        joined = cases.joined(ways, self.hardware.transposes)
        priced = self._prices(t, joined)
        moments = [priced, self._step_prices(t, joined, priced)] if memory.copied(t).any() else [priced]
        each = [memory.matrix(self.model, p, t.rows) for p in moments]
        return [max(float((profile @ of[:, [i]]).max()) for of in each) for i in range(t.rows)]

    def memory_report(self, row: Mapping[str, int]) -> list[memory.StageMemory]:
        """Return the memory of each stage of one row, in parts; raises ValueError if its (pp, vpp) have no layout."""
        full = self._keyed(row)
        layout = self._layout(full)
        t = rows.Levels.of(full, memory.COLUMNS).table(memory.COLUMNS, 1)
        best = self.uncertain.best
        priced = self._prices(t, best)
        stepping = self._step_prices(t, best, priced)
        counts = parameters.memory(self.model, layout, int(full["deep"]))
        tp, ep, etp = (int(full[name]) for name in ("tp", "ep", "etp"))
        report = list[memory.StageMemory]()
        for s, profile in enumerate(counts):
            held = parameters.stage(self.model, layout, s, tp, ep, etp)
            if self.adapter is not None:
                held += adapters.stage(self.model, self.adapter, layout, s, tp, ep, etp)
            kinds = {k: float(profile @ memory.matrix(self.model, {k: priced[k]}, 1)[:, 0]) for k in memory.KINDS}
            copies = float(profile @ memory.matrix(self.model, {"buffers": stepping["buffers"]}, 1)[:, 0])
            kinds["buffers"] = max(kinds["buffers"], copies - kinds["activations"])
            report.append(memory.StageMemory(s, held.dense, held.expert, **kinds, layers=layout.holds(s)))
        return report

    def time_report(self, row: Mapping[str, int]) -> dict[str, float]:
        """Return one row's seconds by part of `step.PARTS`; they sum to the step. Raises ValueError like
        `memory_report`."""
        full = self._keyed(row)
        layout = self._layout(full)
        t, once = (rows.Levels.of(full, names).table(names, 1) for names in (step.LAYER, step.ONCE))
        priced = step.microbatch(self.model, self.hardware, t, self.seq, self._trained, self._skew)
        stages = parameters.time(self.model, layout)
        by = np.array([stages @ step.matrix(self.model, priced, (part,), 1)[:, 0] for part in step.MICROBATCH])
        slowest = int(np.argmax(by.sum(axis=0)))
        wire, adam = self._once(once)
        whole = by.sum(axis=0) + stages @ step.matrix(self.model, priced, (step.ALONE,), 1)[:, 0]
        alone = whole.max(keepdims=True) - by[:, slowest].sum()
        outside = self._outside(full, by[:, slowest].sum(keepdims=True), alone, wire)
        m = float(full["microbatches"])
        out = {part: float(seconds) * m for part, seconds in zip(step.MICROBATCH, by[:, slowest], strict=True)}
        out |= {name: float(seconds[0]) for name, seconds in outside.items() if name != "microbatches"}
        out["expert_communication"] += float(outside["microbatches"][0]) - float(by[:, slowest].sum()) * m
        return out | {"optimizer": float(adam[0])}

    def work_report(self, row: Mapping[str, int]) -> dict[str, float]:
        """Return the `compute` of `time_report` by kind of work (`step.KINDS`); raises ValueError like
        `time_report`."""
        full = self._keyed(row)
        stages = parameters.time(self.model, self._layout(full))
        t = rows.Levels.of(full, step.LAYER).table(step.LAYER, 1)
        priced = step.microbatch(self.model, self.hardware, t, self.seq, self._trained, self._skew)
        slowest = stages[int(np.argmax(stages @ step.matrix(self.model, priced, step.MICROBATCH, 1)[:, 0]))]
        return self._work(full, t, slowest, step.KINDS)

    def stage_report(self, row: Mapping[str, int], stage: int) -> dict[str, float]:
        """Return one stage's seconds of a step, to compare with a profile; raises ValueError like `time_report`.

        The keys are the parts of `step.MICROBATCH`, the parts of `compute.Work` for its compute, `reduction` for the
        whole reduction of its gradients, and `between_stages` for the time of its NCCL kernels that send to and receive
        from other stages, overlapped or not: all transfers, and the wait for the other stages.
        """
        full = self._keyed(row)
        mine, m = parameters.time(self.model, self._layout(full))[stage], float(full["microbatches"])
        t, once = (rows.Levels.of(full, names).table(names, 1) for names in (step.LAYER, step.ONCE))
        priced = step.microbatch(self.model, self.hardware, t, self.seq, self._trained, self._skew)
        parts = {p: m * float(mine @ step.matrix(self.model, priced, (p,), 1)[:, 0]) for p in step.MICROBATCH}
        n = memory.counts(self.model, once, self._trained)
        wire = communication.data(
            self.hardware, once, self.gpus, {k: parameters.Parameters(0, 0) for k in n.all}, n.learning
        )
        reduction = float(mine @ step.matrix(self.model, {"reduction": wire}, ("reduction",), 1)[:, 0])
        alone = {part: (part,) for parts in step.KINDS.values() for part in parts}
        whole = self.time_report(row)
        waits = whole["bubble"] + sum(whole[part] - parts[part] for part in step.MICROBATCH)
        hop = communication.pipeline(self.model, self.hardware, full, self.gpus, self.seq)
        sends = m * float(hop) * step.transfers(stage, int(full["pp"]), int(full["vpp"]))
        return {**parts, **self._work(full, t, mine, alone), "reduction": reduction, "between_stages": waits + sends}

    def _work(
        self, full: Mapping[str, Ints], t: Table, profile: Floats, kinds: Mapping[str, tuple[str, ...]]
    ) -> dict[str, float]:
        shape, m = t.narrow(step.SHAPE), float(full["microbatches"])
        work = step.by_kind(self.model, self.hardware, shape, self.seq, self._trained, self._skew, kinds)
        return {
            kind: m * float(profile @ step.matrix(self.model, {kind: p}, (kind,), 1)[:, 0]) for kind, p in work.items()
        }

    def parts_report(self, row: Mapping[str, int]) -> list[step.TowerPart]:
        """Return encoder, projector and decoder on a rank of the first stage; empty without a vision tower. Raises
        ValueError like `memory_report`."""
        v = self.model.vision
        if v is None:
            return []
        full = self._keyed(row)
        layout, m = self._layout(full), float(full["microbatches"])
        t, work = (rows.Levels.of(full, names).table(names, 1) for names in (memory.COLUMNS, step.LAYER))
        profile = parameters.memory(self.model, layout, int(full["deep"]))[0]
        times = step.tower_seconds(self.model, self.hardware, work, self.seq, self._trained)
        prices = step.tower_prices(v, self.hardware, t, self.gpus, self._trained)
        apart = step.split_tower(
            self.model, v, int(full["tp"]), profile, prices, (m * float(times[0][0]), m * float(times[1][0]))
        )
        priced = step.microbatch(self.model, self.hardware, work, self.seq, self._trained, self._skew)
        each = float(parameters.time(self.model, layout)[0] @ step.matrix(self.model, priced, step.MICROBATCH, 1)[:, 0])
        return [*apart, step.decoder_part(self.memory_report(row)[0], m * each, apart)]

    def microbatches(self, cols: Columns) -> Ints:
        """Return the microbatches of a step: global batch / (data parallelism x micro batch), at least 1."""
        return self._microbatches(rows.complete(cols))

    def _microbatches(self, full: Mapping[str, Ints]) -> Ints:
        dp = np.maximum(self.gpus // (full["tp"] * full["cp"] * full["pp"]), 1)
        return np.maximum(self.global_batch // (dp * full["micro_batch"]), 1)

    def tokens_per_second_per_gpu(self, seconds: ArrayLike) -> Floats:
        """Return the tokens/s per GPU for steps of `seconds`."""
        return self.global_batch * self.seq / (np.asarray(seconds, float) * self.gpus)

    def model_tflops_per_gpu(self, seconds: ArrayLike, tp: int = 1) -> Floats:
        """Return the TFLOPS per GPU for steps of `seconds`, as Bridge logs them."""
        of_step = flops.of_step(self.model, self.seq, self.global_batch, tp, self.span)
        return of_step / (self.gpus * 1e12 * np.asarray(seconds, float))

    def _kept(self, *of: object) -> Known:
        return self._known.setdefault(of, Known())

    @cached_property
    def _known(self) -> dict[tuple[object, ...], Known]:
        return {}

    def _prices(self, t: Table, at: cases.Case) -> dict[str, memory.Prices]:
        at = evolve(
            at, unfused=not self.fused_activation, stash=self.stash, capacity=self.capacity, scores=self.scores,
            accumulates=self.accumulates,
        )  # fmt: skip
        return memory.prices(self.model, self.hardware, t, self.gpus, self.seq, self._trained, at)

    def _step_prices(
        self, t: Table, at: cases.Case, before: Mapping[str, memory.Prices] | None = None
    ) -> dict[str, memory.Prices]:
        return memory.at_step(self.model, self.hardware, t, self.gpus, self._trained, at, before)

    @cached_property
    def _trained(self) -> memory.Trained:
        return evolve(memory.trained(self.freeze, self.adapter, self.span, self.fused_rotary), fp8=self.fp8)

    @cached_property
    def _skew(self) -> Skew:
        k, free = self.hardware.constants, not self.model.router_balanced
        if self.routing == "balanced":
            return Skew(0.0, 0.0, self.capacity, self.wire, self.drops)
        return Skew(k.skew, k.skew_free * free, self.capacity, self.wire, self.drops)

    def _keyed(self, cols: Columns) -> dict[str, Ints]:
        """Return all columns, with a step's microbatches, how many of them fill the pipeline (`deep`), and whether a
        graph captures the iteration (`captured`)."""
        full = rows.complete(cols)
        m = self._microbatches(full)
        captured = full["cuda_graph"] >> compute.WHOLE & 1
        deep = np.minimum(m, DEEPEST * full["pp"])
        kept = np.asarray(rows.UNSAID if self.fp8_weights is None else self.fp8_weights, np.int64)
        return {**full, "fp8_weights": kept, "microbatches": m, "deep": deep, "captured": captured}

    def _layout(self, full: Mapping[str, Ints]) -> Layout:
        layout = self.layout_for(int(full["pp"]), int(full["vpp"]))
        if layout is None:
            raise ValueError(f"no pipeline layout for pp={int(full['pp'])} vpp={int(full['vpp'])}")
        return layout

    def _live(self, pipes: Table, i: int) -> Floats | None:
        """Return the stages that can be the most loaded; None if there is no layout."""
        layout = self.layout_for(int(pipes["pp"][i]), int(pipes["vpp"][i]))
        return None if layout is None else parameters.fullest(self.model, layout, int(pipes["deep"][i]))

    def _timed(self, shape: Table, i: int) -> Floats | None:
        layout = self.layout_for(int(shape["pp"][i]), int(shape["vpp"][i]))
        return None if layout is None else parameters.slowest(self.model, layout)

    def _once(self, t: Table) -> Floats:
        """Return (data parallelism, optimizer) seconds of the stage that spends most, for each row of a `step.ONCE`
        table."""
        shape = t.kinds(("pp", "vpp"))
        priced = step.once(self.hardware, t, self.gpus, memory.counts(self.model, t, self._trained))
        each, stages = np.arange(t.rows), lambda i: self._timed(shape, i)
        both = np.stack(np.broadcast_arrays(*(step.matrix(self.model, priced, (p,), t.rows) for p in step.STEP)))
        return rows.largest(shape.rows, stages, shape.inverse, both, each)

    def _microbatch(self, t: Table, pairs: bool) -> Floats:
        """Return a microbatch's seconds by feature of `parameters.of_time`, for every row of `t`.

        With `pairs`, the result is (2, features, rows): a microbatch that runs together with another, and one that runs
        alone.
        """
        priced = step.microbatch(self.model, self.hardware, t, self.seq, self._trained, self._skew)
        each = step.matrix(self.model, priced, step.MICROBATCH, t.rows)
        if not pairs:
            return each
        return np.stack([each, each + step.matrix(self.model, priced, (step.ALONE,), t.rows)])

    def _outside(self, full: Mapping[str, Ints], slowest: Floats, alone: Floats, wire: Floats) -> dict[str, Floats]:
        """Return the seconds of all microbatches, of the bubble, of the wait for the slowest expert group, and of the
        transfers between stages and replicas."""
        m, k = full["microbatches"] * 1.0, self.hardware.constants
        hop = communication.pipeline(self.model, self.hardware, full, self.gpus, self.seq)
        sharded = full["sharding"] == FSDP
        mean = slowest + alone * step.unpaired(full["pp"], m) / m
        waits, ranks = np.zeros_like(mean), full["etp"] * full["ep"]
        if self.routing != "balanced":
            tokens = full["micro_batch"] * self.seq * ranks / (full["tp"] * full["cp"])
            waits = step.stragglers(self.hardware, mean, tokens, self.gpus / (ranks * full["pp"]), m)
            waits *= (ranks > 1) & (self._skew.fullest(self.model, full, self.seq) < self.drops.factor)
        return {
            "microbatches": mean * m,
            "pipeline_communication": step.between_stages(k, hop, mean, full["pp"], full["vpp"], m),
            "stragglers": waits,
            "step_overhead": np.zeros_like(mean) + k.host_step,
            "bubble": step.bubble(slowest + alone, full["pp"], full["vpp"]),
            "data_communication": step.after_overlap(
                k, wire, mean, sharded, m, communication.overlapped(full, *self.overlap)
            ),
        }


_ALONE = deque[Cost](maxlen=8)
"""The costs on one GPU of the last runs."""


def _time_tables(full: dict[str, Ints], n: int) -> tuple[Table, Table, Table]:
    """Return tables of n rows: their pipelines, what a layer depends on, and what happens once a step depends on.
    Returning frees the levels."""
    levels = rows.Levels.of(full, (*step.LAYER, *step.ONCE))
    return levels.kinds(("pp", "vpp"), n), levels.table(step.LAYER, n), levels.table(step.ONCE, n)


FITS, TIGHT, NOT = "FITS", "TIGHT", "DOES NOT FIT"


@frozen
class Spread:
    """The change of the peak, in bytes, if only one uncertain term is low (negative change) or high."""

    name: str
    least: float
    most: float
    because: str


@frozen
class Bounds:
    """Bytes of torch's peak on the most loaded rank, and of the memory outside torch."""

    least: float
    best: float
    most: float
    spread: tuple[Spread, ...]
    outside: tuple[OutsidePart, ...]
    visible: float
    """Bytes of GPU memory that the driver shows."""
    held_back: float
    """What torch's allocator reserves above the allocated bytes, as a share of them."""

    @property
    def outside_bytes(self) -> tuple[float, float]:
        """Return the (low, high) bytes outside torch."""
        return sum(p.least for p in self.outside), sum(p.most for p in self.outside)

    @property
    def unused(self) -> float:
        """Return the bytes that torch's allocator holds unused in the high case."""
        return self.most * self.held_back

    @property
    def needed(self) -> tuple[float, float]:
        """Return the (low, high) bytes that the layout needs on a GPU."""
        least, most = self.outside_bytes
        return self.least + least, self.most + self.unused + most

    @property
    def verdict(self) -> str:
        """Return FITS if the high case fits, DOES NOT FIT if even the low case does not, else TIGHT."""
        least, most = self.needed
        return FITS if most <= self.visible else NOT if least > self.visible else TIGHT

    @property
    def because(self) -> str:
        """Format the sum behind the verdict."""
        (least, most), (low, high), visible = self.needed, self.outside_bytes, _gib(self.visible)
        if self.verdict == NOT:
            parts = f"{_gib(self.least)} in torch, {_gib(low)} outside torch"
            return f"best case {_gib(least)} GiB; the GPU has {visible}: {parts}"
        held = f"{_gib(self.unused)} held unused by its allocator"
        parts = f"{_gib(self.most)} in torch, {held}, {_gib(high)} outside torch"
        return f"worst case {_gib(most)} GiB; the GPU has {visible}: {parts}"


def bounds(cost: Cost, row: Mapping[str, int]) -> Bounds:
    """Compute the bounds of one row (axis to code); raises ValueError if its (pp, vpp) have no layout."""
    return _bounds(cost, row, cost.uncertain.unknowns)


def verdict(cost: Cost, row: Mapping[str, int]) -> str:
    """Return only the verdict of `bounds`, which is cheaper; raises ValueError like it."""
    return _bounds(cost, row, ()).verdict


def _bounds(cost: Cost, row: Mapping[str, int], known: Sequence[cases.Unknown]) -> Bounds:
    """Compute the bounds, with the spread of the uncertain terms in `known`."""
    way = cost.uncertain
    alone = [cases.changed(way.best, change) for u in known for change in (u.least, u.most)]
    least, peak, most, *each = cost.peaks(row, [way.least, way.best, way.most, *alone])
    moves = zip(known, each[::2], each[1::2], strict=True)
    spread = (Spread(u.name, low - peak, high - peak, u.because) for u, low, high in moves)
    parts = memory.outside_parts(cost.hardware, cost.model, row, cost.gpus, cost.seq, cost.capacity)
    spread = tuple(s for s in spread if s.least or s.most)
    unused = cost.hardware.constants.ends("torch_unused")["high"]
    return Bounds(least, peak, most, spread, tuple(parts), cost.hardware.shown, unused)


def fits(cost: Cost, row: Mapping[str, int]) -> bool:
    """Whether the verdict of `bounds` is FITS, from the high case alone."""
    return bool(cost.spare(row)[0] >= 0)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"
