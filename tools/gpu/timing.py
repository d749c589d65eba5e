"""Time work on a device: warm up, empty the L2 cache, let the host run ahead, take the median.

Work on a GPU is timed between two CUDA events. Before the first one the GPU spins for longer than the host needs to
launch the work, so gaps between launches are not counted. A buffer larger than the L2 cache is written before, because
in training the inputs come from HBM.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import torch

Call = Callable[..., Any]
FORWARD, BACKWARD = "forward", "backward"


class Times(NamedTuple):
    """Seconds of repeated runs of one thing."""

    seconds: float
    """The median."""
    low: float
    """The 10th percentile."""
    high: float
    """The 90th percentile."""
    runs: int
    sustained: float | None = None
    """The mean of runs without a pause for half a second: under the power limit, and with warm caches."""
    launches: int | None = None
    """Kernels of one run; on a CPU, operators."""

    @classmethod
    def of(cls, each: Sequence[float]) -> Times:
        tenths = quantiles(each, n=10, method="inclusive")
        return cls(median(each), tenths[0], tenths[-1], len(each))

    def kept(self) -> dict[str, float]:
        """Return what is known, with four digits."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        return {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in known.items()}


class Bench:
    """A device, and how long each measurement may take."""

    def __init__(self, device: str, quick: bool = False) -> None:
        self.quick = quick
        self.cuda = device == "cuda"
        self.device = torch.device(device)
        self.least, self.most, self.limit = (2, 2, 0.0) if quick else (5, 200, 0.4)
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size if self.cuda else 0
        self.cold = torch.empty(size, dtype=torch.uint8, device=self.device)
        self.cycles = 1e8 / self._elapsed(lambda: _spin(1e8)) if self.cuda else 0.0
        self.said = set[str]()

    def say(self, text: str) -> None:
        """Say once what is not measured, and why."""
        if text not in self.said:
            print(text, file=sys.stderr)
        self.said.add(text)

    def random(self, *shape: int, learned: bool = False) -> torch.Tensor:
        """Make random numbers in BF16; with zeros the GPU would need less power and run faster."""
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16).requires_grad_(learned)

    def wait(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def both(
        self, forward: Callable[[], tuple[torch.Tensor, ...]], learned: Sequence[torch.Tensor]
    ) -> dict[str, Times]:
        """Time forward, and backward alone: each backward has a new forward, which is not timed."""
        gradients = [torch.randn_like(out) for out in forward()]

        def prepare() -> tuple[torch.Tensor, ...]:
            for tensor in learned:
                tensor.grad = None
            return forward()

        return {
            FORWARD: self.time(forward),
            BACKWARD: self.time(lambda outs: torch.autograd.backward(outs, gradients), prepare),
        }

    def time(self, call: Call, prepare: Call | None = None) -> Times:
        """Time a call; what `prepare` returns is its argument."""
        given = (lambda: (prepare(),)) if prepare else tuple[()]
        host = self._warm_up(call, given)
        each, end = list[float](), perf_counter() + self.limit
        while len(each) < self.least or (perf_counter() < end and len(each) < self.most):
            each.append(self._once(call, given(), host))
        times = Times.of(each)
        return times if prepare else times._replace(sustained=self._sustained(call, times.seconds))

    def _warm_up(self, call: Call, given: Callable[[], tuple[Any, ...]]) -> float:
        """Run until compilation is over, and return the host seconds of a call."""
        host = 0.0
        for _ in range(1 if self.quick else 3):
            ready = given()
            self.wait()
            start = perf_counter()
            call(*ready)
            host = perf_counter() - start
        self.wait()
        return host

    def _once(self, call: Call, given: tuple[Any, ...], host: float) -> float:
        self.cold.fill_(1)
        if not self.cuda:
            start = perf_counter()
            call(*given)
            return perf_counter() - start
        _spin(1.5 * host * self.cycles)
        return self._elapsed(lambda: call(*given))

    def _elapsed(self, call: Call) -> float:
        """Return the seconds of the GPU between two events around a call."""
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3

    def _sustained(self, call: Call, seconds: float) -> float:
        runs = 2 if self.quick else max(5, int(0.5 / seconds))
        self.wait()
        start = perf_counter()
        for _ in range(runs):
            call()
        self.wait()
        return (perf_counter() - start) / runs


def _spin(cycles: float) -> None:
    """Let the GPU do nothing for so many cycles."""
    torch.cuda._sleep(int(cycles))  # pyright: ignore[reportPrivateUsage]
