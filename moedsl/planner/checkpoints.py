"""Describe how a run saves checkpoints, and the time that saves and failures cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.cost.goodput import Goodput
from moedsl.solver.laws import Row
from moedsl.solver.solve import INTERVAL, Chosen, saving
from moedsl.support.json_form import JsonForm
from moedsl.support.text import counted, duration, size, wrapped


@frozen
class Shares(JsonForm):
    """How a month is spent, in shares that add up to 1."""

    trains: float
    """Training steps that are kept: the goodput."""
    saves: float
    """Waiting for checkpoints."""
    repeats: float
    """Repeating steps that a failure lost."""
    returns: float
    """Time from a failure until training continues."""
    validates: float = 0.0
    """Validation, which trains nothing."""


@frozen
class LocalCheckpoints(JsonForm):
    """Saves on the nodes' own disks, which a run loads after a failure if it keeps the same nodes."""

    folder: str
    interval_steps: int
    blocked_s: float
    """Time that training waits for one save."""
    node_gb: float
    """Size of one save on a node's disk, 10^9 bytes."""
    share: float
    """Share of failures after which the run keeps the same nodes."""


@frozen
class Checkpoints(JsonForm):
    """Checkpoints and failures."""

    saved: bool
    """Whether the recipe saves checkpoints: with mock data, only if the run names a folder."""
    size_gb: float
    """Size of one checkpoint, 10^9 bytes."""
    bytes_per_parameter: float
    """Bytes of a saved parameter: its weight, master copy and moments."""
    async_save: bool
    blocked_s: float
    """Time that training waits for one save."""
    write_s: float
    """Time from the start of a save until a run can load it."""
    load_s: float
    interval_steps: int
    interval_s: float
    best_interval_s: float
    """The interval that keeps most training, before limits."""
    because: str
    """The reason for the interval."""
    kept: int | None
    """Number of checkpoints kept on the file system; null if all are kept."""
    kept_gb: float | None
    """Size of the kept checkpoints and of the one being written; null if all are kept."""
    failure_every_s: float
    """Mean time between failures on these GPUs."""
    return_s: float
    """Time from a failure until training continues: detection, restart, load."""
    goodput: Shares
    local: LocalCheckpoints | None = None
    """Only where the cluster has `local_disk`, ranks restart within the job, and it adds goodput."""
    chain: bool = False
    """Whether the cluster runs it as a chain of jobs; the time to start and end each job is not included."""


_LIMITS = {
    "": "keeps most training: saving more often stops it longer, saving less often loses more to a failure",
    "loss": "a failure would take more than the run may lose, so it saves more often than failures alone ask for",
    "write": "the best interval is shorter than the time to write a checkpoint: a faster file system would help",
    "step": "the best interval is shorter than a step",
}


def build(chosen: Chosen, row: Row, env: Mapping[str, Any], derived: Mapping[str, Any]) -> Checkpoints:
    """Describe the checkpoints of a plan; `derived` has the Bridge fields that rules derive."""
    s = saving(chosen.problem, chosen.cost, env, row.step_time)
    p, g = chosen.problem.program, s.goodput
    kept = {**derived, **p.sets}.get("checkpoint.most_recent_k")
    kept = None if kept is None or kept < 0 else kept
    gb, because = s.size.total / 1e9, _LIMITS[s.limit]
    if INTERVAL in p.sets:
        sets = "sets it" if p.sets[INTERVAL] else "saves only at its end, here a month"
        because = f"the run {sets}; {s.best_steps} steps would be best"
    nodes = -(-chosen.problem.gpus // chosen.cost.hardware.gpus_per_node)
    return Checkpoints(
        saved=env["saves"],
        size_gb=gb,
        bytes_per_parameter=s.size.total / max(1, s.size.parameters),
        async_save=s.is_async,
        blocked_s=g.blocked,
        write_s=s.write,
        load_s=s.load,
        interval_steps=s.steps,
        interval_s=g.interval,
        best_interval_s=s.best,
        because=because,
        kept=kept,
        kept_gb=None if kept is None else (kept + 1) * gb,
        failure_every_s=g.mtbf,
        return_s=g.back,
        goodput=Shares(g.trains, g.saves, g.repeats, g.returns, g.validates),
        local=g.local and LocalCheckpoints(s.local_disk, s.local_steps, g.local.blocked, gb / nodes, g.local.share),
        chain=p.site.chain,
    )


def summary(c: Checkpoints, steps: int = 0) -> str:
    """Summarize goodput and saves in one line; a run of no more `steps` than one interval saves once, at its end."""
    every = f"every {counted(c.interval_steps, 'step', ',d')}"
    if not c.saved:
        return f"nothing is saved; {c.goodput.trains:.1%} with {size(c.size_gb)} {every}"
    every = "once, at the end" if 0 < steps <= c.interval_steps else every
    validates = f"validation takes {c.goodput.validates:.1%}, " if c.goodput.validates else ""
    fails = f"failures every {duration(c.failure_every_s)}"
    return f"{c.goodput.trains:.1%}: {validates}{size(c.size_gb)} saved {every}, {fails}"


def lost(g: Shares | Goodput) -> str:
    """Write the shares that do not train: validation, waits for saves, repeated steps, and returns from failures."""
    lost = f"{g.saves:.1%} waits for saves, {g.repeats:.1%} repeats lost steps, {g.returns:.1%} returns from failures"
    return f"{g.validates:.1%} validates, {lost}" if g.validates else lost


def month(g: Shares) -> str:
    """Write what a month is spent on."""
    return f"of a month, {g.trains:.1%} trains, {lost(g)}"


def text(c: Checkpoints, gpus: int) -> str:
    """Print the size, time and interval of the saves, what failures cost, and the share of a month that trains."""
    waits = f"training waits {duration(c.blocked_s)}, and it can be returned to after {duration(c.write_s)}"
    how = "in the background" if c.async_save else "while training waits"
    disk = "all stay" if c.kept is None else f"{c.kept} stay and one is written: {size(c.kept_gb or 0.0)}"
    lines = [
        f"one is {size(c.size_gb)}, {c.bytes_per_parameter:.1f} bytes a parameter, written {how}: {waits}",
        f"every {counted(c.interval_steps, 'step', ',d')}, {duration(c.interval_s)}: {c.because}; {disk}",
    ]
    loads = f", {duration(c.load_s)} of that to load"
    if n := c.local:  # most returns do not load from the shared file system
        every = f"every {counted(n.interval_steps, 'step', ',d')} {size(n.node_gb)} of each node in {n.folder}"
        lines.append(f"{every}: training waits {duration(n.blocked_s)}, and {n.share:.0%} of failures return there")
        loads = f" on average; a load from the shared file system takes {duration(c.load_s)}"
    lines += [
        f"a failure every {duration(c.failure_every_s)} on {gpus} GPUs, {duration(c.return_s)} to return{loads}",
        month(c.goodput),
        *([] if c.saved else ["the recipe saves none: mock data needs no checkpoints, and a run may set none"]),
    ]
    return "\n".join(["Checkpoints", *map(wrapped, lines)])
