"""Count what a rank holds while the optimizer steps: no activation is alive, but gradients may exist twice.

From a BF16 buffer Megatron-Core makes an FP32 copy of the shard that this rank steps (core
optimizer/distrib_optimizer.py:2782). The copy stays until the next step clears it. Only a precision-aware optimizer
without an FP8 recipe steps from the buffer itself. Bridge's optimizers have such a recipe even in BF16 (see
`formats.master`), except those that offload. Megatron FSDP has buffers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from moedsl.cost import formats, memory
from moedsl.cost.cases import Case
from moedsl.cost.memory import Counts, Prices, Trained
from moedsl.cost.rows import Floats, Table
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Hardware, Model

COLUMNS = ("tp", "etp", "ep", "precision", "fp8_weights", "sharding", "moments", "grad_reduce", "offload")
"""The axes that this depends on, in addition to those of the profile."""
FP32 = 4.0


def copied(t: Table) -> Floats:
    """Return the bytes of the second gradient of a parameter that this rank steps."""
    narrow = (formats.gradient(t) < FP32) & (formats.fsdp(t) == 0)
    return FP32 * (narrow & (t["offload"] != BY_NAME["offload"].words.index("optimizer")))


def copies(n: Counts, t: Table, gpus: int) -> Prices:
    """Return the copies by feature of `profiles.of_memory`."""
    each, dense, expert = copied(t), t["tp"] / gpus, t["etp"] * t["ep"] / gpus
    return {f"{name}_shard": each * (of.dense * dense + of.expert * expert) for name, of in n.learning.items()}


def prices(
    m: Model, hw: Hardware, t: Table, gpus: int, learns: Trained, case: Case, before: Mapping[str, Prices] | None = None
) -> dict[str, Prices]:
    """Return the bytes of each kind by feature, for every row of `t`; the copies count as buffers. `before` are the
    `memory.prices` of the rows, if they are known: all that is held besides is the same."""
    n = memory.counts(m, t, learns)
    transposes = hw.transposes if case.transposes is None else case.transposes
    held = {kind: before[kind] for kind in memory.HELD} if before else memory.held(n, t, gpus, transposes)
    return {**held, "buffers": memory.added(copies(n, t, gpus), memory.always(m, hw, t, learns, case))}
