"""Read a trace of PyTorch's profiler: Chrome's JSON as Kineto writes it, plain or compressed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

import numpy as np
from attrs import define, field

from moedsl.profile import nested
from moedsl.profile.json_stream import Malformed, Reader
from moedsl.profile.nested import Paths
from moedsl.profile.trace import UNKNOWN, Numbered, Range, Spans, Trace, matched, rows

KERNELS = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "runtime", "driver"))
HOST = frozenset(("cpu_op", "user_annotation", "operator"))
"""The categories of events, in small letters; those of PyTorch before 1.12 have no prefix."""
SCHEMA = 1
"""The `schemaVersion` that PyTorch has written since 1.8."""
MODULE = "nn.Module: "
"""What begins the name of a module's forward pass, if the profiler records stacks."""
EVERY = 1 << 16
"""Events between two calls of `progress`."""

IsStep = Callable[[str], bool]


def read(name: str, stream: TextIO, is_step: IsStep, progress: Callable[[], object]) -> Trace:
    """Read one rank's trace; raises Malformed."""
    found = _Events(is_step)
    for n, event in enumerate(Reader(stream).events(found.about)):
        found.add(event)
        if n % EVERY == 0:
            progress()
    return found.trace(name)


@define
class _Events:
    """What is kept of the events so far."""

    is_step: IsStep
    entries: dict[str, Any] = field(factory=dict)
    names: Numbered = field(factory=Numbered)
    threads: Numbered = field(factory=Numbered)
    kernels: Spans = field(factory=Spans)
    correlations: array[int] = field(factory=lambda: array("q"))
    groups: array[int] = field(factory=lambda: array("i"))
    """For each kernel the number of (collective, process group)."""
    collectives: Numbered = field(factory=lambda: Numbered([("", "")], {("", ""): 0}))
    launched: Spans = field(factory=Spans)
    launches: array[int] = field(factory=lambda: array("q"))
    """The correlation of each span in `launched`."""
    host: Spans = field(factory=Spans)
    steps: list[Range] = field(factory=list)

    def about(self, key: str, value: Any) -> None:
        if key == "schemaVersion" and value != SCHEMA:
            raise Malformed(f"its schemaVersion is {value}, and only {SCHEMA} is known")
        self.entries[key] = value

    def add(self, event: Any) -> None:
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        try:
            self._add(event)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Malformed("an event has a time, a thread or a correlation that is none") from None

    def _add(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("cat", "")).lower()
        if kind in KERNELS:
            self._kernel(event)
        elif kind in LAUNCHES:
            self._launch(event)
        elif kind in HOST or (kind == "python_function" and str(event.get("name")).startswith(MODULE)):
            self._host(event)

    def _span(self, event: Mapping[str, Any], spans: Spans, place: Any) -> None:
        start = round(float(event["ts"]) * 1000)
        end = start + round(float(event.get("dur", 0)) * 1000)
        spans.add(start, end, self.names(str(event.get("name", ""))), self.threads(place))

    def _kernel(self, event: Mapping[str, Any]) -> None:
        args = _args(event)
        self._span(event, self.kernels, ("device", event.get("pid"), event.get("tid")))
        self.correlations.append(int(args.get("correlation", UNKNOWN)))
        group = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
        self.groups.append(self.collectives((str(args.get("Collective name") or ""), group)))

    def _launch(self, event: Mapping[str, Any]) -> None:
        correlation = _args(event).get("correlation")
        if correlation is not None:
            self.launches.append(int(correlation))
            self._span(event, self.launched, (event.get("pid"), event.get("tid")))

    def _host(self, event: Mapping[str, Any]) -> None:
        self._span(event, self.host, (event.get("pid"), event.get("tid")))
        text = str(event.get("name", ""))
        if self.is_step(text):
            self.steps.append(Range(text, self.host.start[-1], self.host.end[-1]))

    def trace(self, name: str) -> Trace:
        about, devices = self.entries.get("distributedInfo"), self.entries.get("deviceProperties")
        rank, world = (_count(about.get(n)) if isinstance(about, dict) else None for n in ("rank", "world_size"))
        first = devices[0] if isinstance(devices, list) and devices else None
        device = str(first.get("name", "")) if isinstance(first, dict) else ""
        ops = self._of_device() if len(self.kernels) else self._of_host()
        return Trace(
            name=name, tool="PyTorch profiler", rank=rank, world=world,
            device=device, ranges=tuple(sorted(self.steps, key=lambda r: r.start)),
            on_cpu=not len(self.kernels), **ops,
        )  # fmt: skip

    def _of_device(self) -> dict[str, Any]:
        """Name each operation of the device, with the host's ranges around its launch."""
        paths, k, launch = Paths(self.names), self.kernels.columns(), self.launched.columns()
        at = np.asarray(self.launches, np.int64)
        around = nested.enclosing(self.host, launch["start"], launch["place"], paths)
        launched, path = matched(np.asarray(self.correlations, np.int64), at, (launch["start"], around))
        keys = rows(k["name"], path, np.asarray(self.groups, np.int64))
        return self._sorted(k["start"], k["end"], keys, launched, np.ones(len(self.kernels), np.int64), paths)

    def _of_host(self) -> dict[str, Any]:
        """Take the host's operations for the device's: of nested ones, each has the time outside those in it."""
        paths = Paths(self.names)
        parts = nested.own_parts(self.host, paths)
        c = parts.columns()
        keep = np.array([not self._is_frame(path, paths) for path in parts.name], bool)
        keys = ((paths.nodes.values[path][1], paths.nodes.values[path][0], 0) for (path,) in rows(c["name"][keep]))
        launched = np.full(int(keep.sum()), UNKNOWN, np.int64)
        first = np.asarray(parts.first, np.int64)[keep]
        return self._sorted(c["start"][keep], c["end"][keep], keys, launched, first, paths)

    def _is_frame(self, path: int, paths: Paths) -> bool:
        """Whether a part is Python between operations: of a step, a module, the optimizer or the data loader."""
        text: str = self.names.values[paths.nodes.values[path][1]]
        return self.is_step(text) or text.startswith((MODULE, "Optimizer.", "enumerate(DataLoader)"))

    def _sorted(
        self, start: Any, end: Any, keys: Iterable[tuple[int, ...]], launched: Any, first: Any, paths: Paths
    ) -> dict[str, Any]:
        """Sort the operations by start, and number their names with path and collective."""
        texts = Numbered()
        text = np.fromiter((texts(key) for key in keys), np.int64, len(start))
        order = np.argsort(start, kind="stable")
        columns = {"start": start, "end": end, "text": text, "launched": launched, "first": first}
        made = [self._text(key, paths) for key in texts.values]
        return {n: c[order] for n, c in columns.items()} | {
            "texts": [pair for pair, _ in made], "groups": [group for _, group in made]
        }  # fmt: skip

    def _text(self, key: tuple[int, ...], paths: Paths) -> tuple[tuple[str, tuple[str, ...]], str]:
        name, path, number = key
        collective, group = self.collectives.values[number]
        return (self.names.values[name], (*paths.of(path), *filter(None, (collective, group)))), group


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}
