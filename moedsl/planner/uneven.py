"""Compare a run whose batch or number of GPUs divides badly with a near batch, and with fewer of its GPUs."""

from __future__ import annotations

from math import gcd

from moedsl.planner.advice import by_time
from moedsl.rules.evaluators import names
from moedsl.solver.counts import MOST, near_batches, odd_part, smaller_counts, speed
from moedsl.solver.solve import Chosen, plan_for
from moedsl.support.diagnostics import Diagnostic, Instead, note, warning
from moedsl.support.text import counted

WORTH = 1.05
"""The note on the batch becomes a warning if a near batch gives at least this many times the tokens a second."""
FEWER = 1.1
"""Fewer GPUs are named if each trains at least this many times the tokens a second."""


def uneven(c: Chosen) -> list[Diagnostic]:
    """Say which batch the solver took, or name faster near batches and smaller numbers of GPUs."""
    p = c.problem.program
    if p.batch_near is not None and p.batch_near != p.batch:
        return [note("plan.near_batch", p.spans["batch"], batch=p.batch, near=p.batch_near, gpus=c.problem.gpus)]
    varied = (p.spans.get("sweep"), p.isolate.span if p.isolate else None)
    batch = uneven_batch(c) if "batch" in p.spans and p.spans["batch"] not in varied else []
    fewer = fewer_gpus(c) if p.gpus is not None and p.spans["hardware"] not in varied else []
    return [*batch, *fewer]


def uneven_batch(chosen: Chosen) -> list[Diagnostic]:
    """Note that the batch limits data parallelism and a near batch allows more; warn if that batch is faster.

    The largest dp of a batch is the greatest common divisor of its microbatches and the GPUs. A number of GPUs with an
    odd factor may leave it unused, because a pipeline of many stages is then faster.
    """
    p, batch, gpus = chosen.problem.program, chosen.problem.global_batch, chosen.problem.gpus
    micro = pin.code if (pin := p.pins.get("micro_batch")) is not None else 1
    # The law that dp must divide the batch, if the run has it
    law = next((w for w in chosen.compiled.laws if {"global_batch", "dp"} <= names(w.rule.expr)), None)
    now, most = _replicas(chosen), gcd(batch // micro, gpus)
    if law is None or not (now == most or (odd_part(gpus) > 1 and by_time(chosen.compiled))):
        return []
    buys, faster = dict[str, str](), dict[int, float]()
    for n in [n for n in near_batches(gpus, batch, micro) if gcd(n // micro, gpus) > most][-MOST:]:
        other = plan_for(p, gpus, keep=1, global_batch=n, must_fit=chosen.must_fit)
        if other.solution.rows and (dp := _replicas(other)) > now:
            gain = speed(other) / speed(chosen)
            buys[f"batch {n}"] = f"dp {dp} and {gain:.2f}x the tokens a second"
            faster |= {n: gain} if gain >= WORTH else {}
    if not (faster or (buys and now == most)):
        return []
    parts = f"{batch // micro} microbatches of {micro}" if micro > 1 else f"{batch} sequences"
    said = f"the batch limits data parallelism to {most}, the greatest common divisor of {parts} and {gpus} GPUs"
    if faster:
        best = max(faster, key=lambda n: faster[n])
        said += f": `batch {best}` trains {faster[best]:.2f}x the tokens a second"
    found = (warning if faster else note)(
        "plan.uneven_batch",
        said,
        p.spans["batch"],
        help=tuple(Instead(f"write `batch {n}`", f"batch {n}") for n in faster),
        because=law.rule.because,
        cites=law.rule.cites,
        values={"global_batch": batch} | buys,
    )
    return [found]


def fewer_gpus(chosen: Chosen) -> list[Diagnostic]:
    """Warn if a smaller number of GPUs, with fewer odd factors, trains more on each GPU with the same batch."""
    p, gpus, h = chosen.problem.program, chosen.problem.gpus, chosen.problem.program.hardware
    if odd_part(gpus) == 1 or not by_time(chosen.compiled):
        return []
    batch, now, found = chosen.problem.global_batch, chosen.solution.rows[0].step_time, list[tuple[float, int, float]]()
    for n in smaller_counts(h, gpus):
        other = plan_for(p, n, keep=1, global_batch=batch, must_fit=chosen.must_fit)
        if other.solution.rows and (gain := speed(other) / speed(chosen)) >= FEWER:
            found.append((gain, n, other.solution.rows[0].step_time))
    if not found:
        return []
    gain, n, seconds = max(found)
    left, node = gpus - n, h.gpus_per_node
    idle = counted(left // node, "node") if left % node == 0 and gpus > node else counted(left, "GPU")
    return [
        warning(
            "plan.fewer_gpus",
            p.spans["hardware"],
            line=f"{h.name} x {n}",
            gain=f"{gain:.2f}x",
            step=f"{seconds:.2f} s a step instead of {now:.2f}",
            idle=idle,
            help=Instead(f"write `{h.name} x {n}`", f"{h.name} x {n}"),
            values={f"{h.name} x {n}": f"{g:.2f}x the tokens a second and GPU, {s:.2f} s a step" for g, n, s in found},
        )
    ]


def _replicas(c: Chosen) -> int:
    codes = c.solution.rows[0].codes
    return c.problem.gpus // (codes["tp"] * codes["cp"] * codes["pp"])
