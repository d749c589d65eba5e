"""Read the JSON of PyTorch's profiler, as Kineto writes it for one process; one trace for each of its devices."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

import numpy as np
from attrs import define, field

from moedsl.profile import nested
from moedsl.profile.json_stream import Malformed, Reader
from moedsl.profile.nested import Paths
from moedsl.profile.trace import UNKNOWN, Ints, Numbered, Range, Spans, Trace, matched, rows

KERNELS = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "runtime", "driver"))
HOST = frozenset(("cpu_op", "user_annotation", "operator"))
"""The categories of events, in small letters; those of PyTorch before 1.12 have no prefix."""
SCHEMA = 1
"""The `schemaVersion` that PyTorch has written since 1.8."""
MODULE = "nn.Module: "
"""What begins the name of a module's forward pass, if the profiler records stacks."""
MOST = 64
"""Devices of one process."""
EVERY = 1 << 16
"""Events between two calls of `progress`."""

IsStep = Callable[[str], bool]


def read(name: str, stream: TextIO, is_step: IsStep, progress: Callable[[], object]) -> list[Trace]:
    """Read the traces of a file; raises Malformed."""
    found = _Events(is_step)
    for n, event in enumerate(Reader(stream).events(found.about)):
        found.add(event)
        if n % EVERY == 0:
            progress()
    return [*found.traces(name)]


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
    places: array[int] = field(factory=lambda: array("i"))
    """For each kernel the number of its device."""
    devices: Numbered = field(factory=Numbered)
    """The devices: Kineto's process of an operation, and the device that its arguments state."""
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
        start = _nanoseconds(event["ts"])
        end = start + _nanoseconds(event.get("dur", 0))
        spans.add(start, end, self.names(str(event.get("name", ""))), self.threads(place))

    def _kernel(self, event: Mapping[str, Any]) -> None:
        args = _args(event)
        self._span(event, self.kernels, ("device", event.get("pid"), event.get("tid")))
        self.correlations.append(int(args.get("correlation", UNKNOWN)))
        group = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
        self.groups.append(self.collectives((str(args.get("Collective name") or ""), group)))
        self.places.append(self.devices((event.get("pid"), _count(args.get("device")))))

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

    def traces(self, name: str) -> Iterator[Trace]:
        """Yield the trace of each device, or that of the host if no device was traced."""
        if not len(self.kernels):
            yield self._trace(name, None, self._of_host())
            return
        device = self._devices()
        every = sorted(np.unique(device).tolist(), key=self._place)
        if len(every) > MOST:
            raise Malformed(f"its operations are of {len(every):,} devices, and a machine has {MOST} at most")
        paths = Paths(self.names)
        launch = self.launched.columns()
        around = nested.enclosing(self.host, launch["start"], launch["place"], paths)
        for one in every:
            label = f"{name}, {self._label(one)}" if len(every) > 1 else name
            operations = self._of_device(device == one, launch["start"], around, paths)
            yield self._trace(label, self.devices.values[one][1], operations)

    def _devices(self) -> Ints:
        """Return the number of each kernel's device. An event that states none is of the only one of its process."""
        known = defaultdict[Any, list[int]](list)
        for n, (process, number) in enumerate(self.devices.values):
            known[process] += [n] * (number is not None)
        same = [
            known[p][0] if number is None and len(known[p]) == 1 else n
            for n, (p, number) in enumerate(self.devices.values)
        ]
        return np.array(same, np.int64)[np.asarray(self.places, np.int64)]

    def _place(self, device: int) -> tuple[Any, ...]:
        """Return what sorts devices by their numbers, of processes too."""
        process, number = self.devices.values[device]
        return len(str(process)), str(process), number or 0

    def _label(self, device: int) -> str:
        """Name a device: by its number, and by the process of its events if two have that number."""
        process, number = self.devices.values[device]
        twice = number is None or sum(d == number for _, d in self.devices.values) > 1
        return f"process {process}{f', device {number}' if number is not None else ''}" if twice else f"device {number}"

    def _trace(self, label: str, device: int | None, operations: Mapping[str, Any]) -> Trace:
        about, of = self.entries.get("distributedInfo"), self.entries.get("deviceProperties")
        rank, world = (_count(about.get(n)) if isinstance(about, dict) else None for n in ("rank", "world_size"))
        known = [p for p in of if isinstance(p, dict)] if isinstance(of, list) else []
        mine = [p for p in known if p.get("id") == device] or known
        return Trace(
            name=label, tool="PyTorch profiler", rank=rank, world=world,
            device=str(mine[0].get("name", "")) if mine else "",
            ranges=tuple(sorted(self.steps, key=lambda r: r.start)), on_cpu=not len(self.kernels), **operations,
        )  # fmt: skip

    def _of_device(self, mine: Any, starts: Ints, around: Ints, paths: Paths) -> dict[str, Any]:
        """Name each operation of a device, with the ranges `around` its launch, which was at one of `starts`."""
        k = {n: c[mine] for n, c in self.kernels.columns().items()}
        ids, at = np.asarray(self.correlations, np.int64)[mine], np.asarray(self.launches, np.int64)
        launched, path = matched(ids, at, (starts, around))
        keys = rows(k["name"], path, np.asarray(self.groups, np.int64)[mine])
        return self._sorted(k["start"], k["end"], keys, launched, np.ones(len(k["name"]), np.int64), paths)

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


def _nanoseconds(value: Any) -> int:
    """Convert microseconds. Older PyTorch counts them from 1970: as a float, their thousandfold has steps of 256."""
    whole = int(value)
    return whole * 1000 + round((float(value) - whole) * 1000)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}
