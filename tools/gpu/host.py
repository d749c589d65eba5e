"""Eager launches: seconds of the host for a layer, forward and backward, and how long the GPU waits for it.

With few tokens the GPU is done before the host has launched the next kernel, so the time of many layers in a row is
the host's. With many tokens the GPU is idle only where the host waits for the counts of routed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from gpu import permutation
from gpu.case import MEGATRON, TORCH, Case
from gpu.engine import engine, recipes
from gpu.passes import plain
from gpu.timing import Bench, Times

HIDDEN, WIDTH, TOPK = 1024, 512, 8
"""A small layer: its launches are those of a large one."""
LOCAL, ROUTED = (8, 16, 32, 64), 128
"""Local experts of a layer, and experts of a router."""
FEW, MANY = 128, 65536
"""Tokens with which the host is slower than the GPU, and with which it is faster."""
Step = Callable[[], Any]


class Traced(NamedTuple):
    """Kernels of a profile, on a CPU operators."""

    number: int
    busy: float
    """Seconds in which at least one ran."""
    span: float
    """Seconds from the first to the last."""


def cases(bench: Bench) -> Iterator[Case]:
    """List the kinds of layer, and MoE layers by local experts, in every precision."""
    te = engine(bench)
    if te is None:
        for local in (2, 4) if bench.quick else LOCAL:
            yield _case("moe", local, "bf16", TORCH, partial(_plain, bench, local))
        return
    try:
        layers = import_module("gpu.megatron")
    except ImportError as error:
        bench.say(f"host: Megatron-Core cannot be imported ({error}); its launches are not measured")
        return
    kinds = [("attention", 0), ("delta_net", 0), ("dense", 0), ("router", ROUTED), *(("moe", local) for local in LOCAL)]
    for precision in recipes(te):
        for what, local in kinds:
            yield _case(what, local, precision, MEGATRON, partial(layers.step, what, local, precision))


def _case(what: str, local: int, precision: str, by: str, make: Callable[[int], Step]) -> Case:
    def run(bench: Bench) -> dict[str, Times]:
        few, many = (8, 16) if bench.quick else (FEW, MANY)
        found = {"host": _host(bench, make(few))}
        if what == "moe":
            found["idle"] = _idle(bench, make(many))
        return found

    return Case(what, {"local_experts": local, "topk": min(TOPK, local)} if local else {}, precision, by, run)


def _host(bench: Bench, step: Step) -> Times:
    """Time many steps in a row, and count the kernels of one."""
    number = 2 if bench.quick else 20
    each = list[float]()
    for _ in range(3 if bench.quick else 12):
        bench.wait()
        start = perf_counter()
        for _ in range(number):
            step()
        bench.wait()
        each.append((perf_counter() - start) / number)
    return Times.of(each[1:])._replace(launches=traced(bench, step).number)


def _idle(bench: Bench, step: Step) -> Times:
    """Return the seconds of a step in which no kernel runs."""
    step()
    return Times.of([t.span - t.busy for t in (traced(bench, step) for _ in range(2 if bench.quick else 5))])


def traced(bench: Bench, step: Step) -> Traced:
    """Profile three steps in a row and return the figures of one: the gap before the first has no meaning."""
    steps = 3
    bench.wait()
    watched = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if bench.cuda else [])]
    with profile(activities=watched) as p:
        for _ in range(steps):
            step()
        bench.wait()
    kind = "CUDA" if bench.cuda else "CPU"
    ran = sorted((e.time_range.start, e.time_range.end) for e in p.events() or () if e.device_type.name == kind)
    return Traced(len(ran) // steps, busy(ran) / steps / 1e6, (max(end for _, end in ran) - ran[0][0]) / steps / 1e6)


def busy(ran: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals that are sorted by their start."""
    total, reached = 0.0, float("-inf")
    for start, end in ran:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _plain(bench: Bench, local: int, tokens: int) -> Step:
    """Make a step of a MoE layer of PyTorch's operators, with the products of each expert launched by themselves."""
    hidden, width = (64, 32) if bench.quick else (HIDDEN, WIDTH)
    topk = min(TOPK, local)
    x, router = bench.random(tokens, hidden, learned=True), bench.random(local, hidden, learned=True)
    up = [bench.random(2 * width, hidden, learned=True) for _ in range(local)]
    down = [bench.random(hidden, width, learned=True) for _ in range(local)]
    gradient = bench.random(tokens, hidden)

    def step() -> None:
        scores = torch.nn.functional.linear(x, router).float().softmax(dim=-1)
        best = scores.topk(topk)
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best.indices, True)
        counts = chosen.sum(0).tolist()
        weights = scores.T[chosen.T][:, None]
        ran = permutation.sent(x, chosen, topk).split(counts)
        acted = plain(torch.cat([r @ w.T for r, w in zip(ran, up, strict=True)]), None, weights).split(counts)
        out = torch.cat([a @ w.T for a, w in zip(acted, down, strict=True)])
        permutation.back(out, chosen, topk).backward(gradient)

    return step
