"""Read the JSON that PyTorch's profiler (Kineto) writes for one process; return one trace for each of its devices.

`Reader` yields its events one by one, in memory that does not grow with the file.

ijson 3.6 with its C backend is no replacement: for 1.25 million events it needs 1.15 times the CPU time, and 3.5 times
with the object's other entries, each of which takes a pass of its own. It refuses control characters in names, and
200,000 brackets in a row use up the machine's memory.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

import numpy as np
from attrs import define, field

from moedsl.runs.profile import trace
from moedsl.runs.profile.trace import (
    UNKNOWN,
    IsStep,
    Malformed,
    Numbered,
    Paths,
    Range,
    Spans,
    Trace,
    Truncated,
    matched,
    rows,
)
from moedsl.support.text import counted

KERNELS = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "runtime", "driver"))
HOST = frozenset(("cpu_op", "user_annotation", "operator"))
"""The categories of events (KERNELS, LAUNCHES, HOST), in lower case; PyTorch before 1.12 writes no prefix."""
DEVICE_ONLY = ("stream", "device")
"""Arguments that only device operations have. They identify these where the autograd profiler writes no categories."""
LATEST = 10**20
"""Nanoseconds from 1970 to the year 5138. A later time means that the file counts nanoseconds, not microseconds."""
SCHEMA = 1
"""The `schemaVersion` that PyTorch has written since 1.8."""
MODULE = "nn.Module: "
"""The prefix of the name of a module's forward pass, if the profiler records stacks."""
MOST = 64
"""The most devices of one process."""
EVERY = 1 << 16
"""Events between two calls of `progress`."""
MOST_OPERATIONS, MOST_RANGES, MOST_EVENTS = 4_000_000, 12_000_000, 40_000_000
"""After so many operations of devices, ranges and launches of the host, or events of any kind, reading stops."""
MOST_STEPS = 10_000
MOST_NAMES, LONGEST_NAME = 1 << 18, 1 << 12
"""The most different names, and the most characters of each that are kept."""


def read(name: str, stream: TextIO, is_step: IsStep, progress: Callable[[], object]) -> list[Trace]:
    """Read the traces of a file; raises Malformed."""
    found = _Events(is_step)
    for n, event in enumerate(Reader(stream).events(found.about)):
        found.add(event)
        if n % EVERY == 0:
            progress()
            if found.is_cut(n):
                break
    found.join()
    return [*found.traces(name)]


@define
class _Events:
    """The data collected from the events so far."""

    is_step: IsStep
    entries: dict[str, Any] = field(factory=dict)
    names: Numbered = field(factory=lambda: Numbered(most=MOST_NAMES))
    threads: Numbered = field(factory=lambda: Numbered(most=MOST_NAMES))
    kernels: Spans = field(factory=Spans)
    correlations: array[int] = field(factory=lambda: array("q"))
    groups: array[int] = field(factory=lambda: array("i"))
    """For each kernel, the index of its (collective, process group)."""
    places: array[int] = field(factory=lambda: array("i"))
    """For each kernel, the index of its device."""
    devices: Numbered = field(factory=Numbered)
    """Devices as (Kineto's process of an operation, device in its arguments)."""
    collectives: Numbered = field(factory=lambda: Numbered([("", "")], {("", ""): 0}, MOST_NAMES))
    launched: Spans = field(factory=Spans)
    launches: array[int] = field(factory=lambda: array("q"))
    """The correlation id of each span in `launched`."""
    host: Spans = field(factory=Spans)
    steps: array[int] = field(factory=lambda: array("q"))
    """The indices of spans in `host` that may be steps."""
    halves: list[tuple[int, int, Spans | None, int | None]] = field(factory=list)
    """Spans given as two events, `B` at the start and `E` at the end, each as (thread, time, columns, row). For `B`,
    the row is the span's index in the columns; for `E`, both are None."""
    warnings: tuple[str, ...] = ()
    stopped: bool = False
    """Whether the file has more events than were read."""

    def is_cut(self, events: int) -> bool:
        """Whether to stop reading after so many events; raises Malformed if no device's operation has come."""
        ranges = len(self.host) + len(self.launched) + len(self.halves)
        self.stopped = len(self.kernels) >= MOST_OPERATIONS or ranges >= MOST_RANGES or events >= MOST_EVENTS
        if self.stopped and not len(self.kernels):
            raise Malformed(f"its first {events:,} events are none of a device")
        return self.stopped

    def about(self, key: str, value: Any) -> None:
        if key == "schemaVersion" and value not in (SCHEMA, str(SCHEMA)):
            raise Malformed(f"its schemaVersion is {value}, and only {SCHEMA} is known")
        self.entries[key] = value

    def add(self, event: Any) -> None:
        phase = event.get("ph") if isinstance(event, dict) else None
        try:
            if phase == "X":
                self._add(event)
            elif phase in ("B", "E"):
                at, _ = _times(event)
                thread = self.threads((event.get("pid"), event.get("tid")))
                spans = self._add({**event, "dur": 0}) if phase == "B" else None
                self.halves.append((thread, at, spans, len(spans or ()) - 1 if phase == "B" else None))
        except Malformed:
            raise
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Malformed("an event has a time, a thread or a correlation that is none") from None

    def _add(self, event: Mapping[str, Any]) -> Spans | None:
        """Add an event to its columns, and return these; None if the report does not need it."""
        stated = event.get("args")
        args: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
        guessed = "cuda_runtime" if "correlation" in args else "cpu_op"
        guessed = "kernel" if any(name in args for name in DEVICE_ONLY) else guessed
        kind, name = str(event.get("cat") or guessed).lower(), str(event.get("name", ""))[:LONGEST_NAME]
        place: tuple[Any, ...] = (event.get("pid"), event.get("tid"))
        if kind in KERNELS:
            self.correlations.append(int(args.get("correlation", UNKNOWN)))
            group = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
            self.groups.append(self.collectives((str(args.get("Collective name") or ""), group)))
            self.places.append(self.devices((event.get("pid"), _count(args.get("device")))))
            spans, place = self.kernels, ("device", *place)
        elif kind in LAUNCHES:
            if args.get("correlation") is None:
                return None
            self.launches.append(int(args["correlation"]))
            spans = self.launched
        elif kind in HOST or (kind == "python_function" and name.startswith(MODULE)):
            if self.is_step(name):
                self.steps.append(len(self.host))
                if len(self.steps) > MOST_STEPS:
                    raise Malformed(f"it has more than {MOST_STEPS:,} steps")
            spans = self.host
        else:
            return None
        start, length = _times(event)
        spans.add(start, start + length, self.names(name), self.threads(place))
        return spans

    def join(self) -> None:
        """Set the ends of spans given as two events; on one thread, spans nest."""
        unpaired, begun = 0, defaultdict[int, list[tuple[Spans | None, int]]](list)
        for thread, at, spans, row in sorted(self.halves, key=lambda half: half[:2]):
            if row is not None:
                begun[thread].append((spans, row))
            elif begun[thread]:
                spans, row = begun[thread].pop()
                if spans is not None:
                    spans.end[row] = at
            else:
                unpaired += 1
        if unpaired := unpaired + sum(map(len, begun.values())):
            text = f"{counted(unpaired, 'event')} of phase B or E without the other: such a span counts no time"
            self.warnings = (text,)

    def traces(self, name: str) -> Iterator[Trace]:
        """Yield the trace of each device, or the trace of the host if no device was traced."""
        if not len(self.kernels):
            # The host's operations, each without the time of operations nested in it. Frames of Python are not
            # operations: a step, a module, the optimizer or the data loader
            paths = Paths(self.names)
            parts = trace.own_parts(self.host, paths)
            c = parts.columns()
            frames = (MODULE, "Optimizer.", "enumerate(DataLoader)")
            nodes = [paths.nodes.values[path] for path in parts.name]
            names = [self.names.values[own] for _, own in nodes]
            keep = np.array([not (self.is_step(n) or n.startswith(frames)) for n in names], bool)
            keys = [(own, around, 0) for (around, own), kept in zip(nodes, keep, strict=True) if kept]
            start, end, first = (np.asarray(column, np.int64)[keep] for column in (c["start"], c["end"], parts.first))
            launched = np.full(len(keys), UNKNOWN, np.int64)
            yield self._trace(name, None, self._sorted(start, end, keys, launched, first, paths))
            return
        # Find the index of each kernel's device. An event without one is on the only device of its process
        of_process = defaultdict[Any, list[int]](list)
        for n, (process, number) in enumerate(self.devices.values):
            of_process[process] += [n] * (number is not None)
        same = [
            of_process[p][0] if number is None and len(of_process[p]) == 1 else n
            for n, (p, number) in enumerate(self.devices.values)
        ]
        device = np.array(same, np.int64)[np.asarray(self.places, np.int64)]
        # Sort the devices by the numbers of process and device
        order = [(len(str(process)), str(process), number or 0) for process, number in self.devices.values]
        every = sorted(np.unique(device).tolist(), key=order.__getitem__)
        if len(every) > MOST:
            raise Malformed(f"its operations are of {len(every):,} devices, and a machine has {MOST} at most")
        paths = Paths(self.names)
        launch = self.launched.columns()
        around = trace.enclosing(self.host, launch["start"], launch["place"], paths)
        for one in every:
            process, number = self.devices.values[one]
            label = f"device {number}"
            if number is None or sum(d == number for _, d in self.devices.values) > 1:  # two processes have that number
                label = f"process {process}{f', device {number}' if number is not None else ''}"
            # Name each operation, with the ranges around its launch
            mine = device == one
            k = {n: c[mine] for n, c in self.kernels.columns().items()}
            ids, at = np.asarray(self.correlations, np.int64)[mine], np.asarray(self.launches, np.int64)
            launched, path = matched(ids, at, (launch["start"], around))
            keys = rows(k["name"], path, np.asarray(self.groups, np.int64)[mine])
            first = np.ones(len(k["name"]), np.int64)
            operations = self._sorted(k["start"], k["end"], keys, launched, first, paths)
            yield self._trace(f"{name}, {label}" if len(every) > 1 else name, number, operations)

    def _trace(self, label: str, device: int | None, operations: Mapping[str, Any]) -> Trace:
        about, of = self.entries.get("distributedInfo"), self.entries.get("deviceProperties")
        rank, world = (_count(about.get(n)) if isinstance(about, dict) else None for n in ("rank", "world_size"))
        known = [p for p in of if isinstance(p, dict)] if isinstance(of, list) else []
        mine = [p for p in known if p.get("id") == device] or known
        h = self.host
        ranges = sorted((h.start[i], h.end[i], self.names.values[h.name[i]]) for i in self.steps)
        if self.stopped:  # not all operations of the last step are read
            last = int(operations["start"][-1])
            ranges = [r for r in ranges if r[1] <= last][:-1]
        return Trace(
            name=label, tool="PyTorch profiler", rank=rank, world=world,
            device=str(mine[0].get("name", "")) if mine else "",
            ranges=tuple(Range(text, start, end) for start, end, text in ranges), on_cpu=not len(self.kernels),
            warnings=self.warnings, is_cut=self.stopped, **operations,
        )  # fmt: skip

    def _sorted(
        self, start: Any, end: Any, keys: Iterable[tuple[int, ...]], launched: Any, first: Any, paths: Paths
    ) -> dict[str, Any]:
        """Sort the operations by start, and number their distinct keys of name, path and collective."""
        texts = Numbered()
        text = np.fromiter((texts(key) for key in keys), np.int64, len(start))
        order = np.argsort(start, kind="stable")
        columns = {"start": start, "end": end, "text": text, "launched": launched, "first": first}
        pairs, groups = list[tuple[str, tuple[str, ...]]](), list[str]()
        for name, path, number in texts.values:
            collective, group = self.collectives.values[number]
            pairs.append((self.names.values[name], (*paths.of(path), *filter(None, (collective, group)))))
            groups.append(group)
        return {n: c[order] for n, c in columns.items()} | {"texts": pairs, "groups": groups}


def _times(event: Mapping[str, Any]) -> tuple[int, int]:
    """Return the start and the duration in nanoseconds."""
    start, length = _nanoseconds(event["ts"]), _nanoseconds(event.get("dur") or 0)
    return (start, length) if start < LATEST else (start // 1000, length // 1000)


def _nanoseconds(value: Any) -> int:
    """Convert microseconds to nanoseconds.

    The fraction is converted separately: older PyTorch counts from 1970, where a float of nanoseconds has steps of 256.
    """
    if isinstance(value, str):
        value = int(value) if value.isdecimal() else float(value)
    if isinstance(value, int):
        return value * 1000
    whole = int(value)
    return whole * 1000 + round((value - whole) * 1000)


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    return value if isinstance(value, int) else None


CHUNK = 4 << 20
"""Characters to read at once."""
LONGEST = 64 << 20
"""The most characters of one value."""
EXPONENT = len("e+1")
"""The characters after a number that must be read to know that it has ended."""
EVENTS = "traceEvents"
_FILLED = re.compile(r"[^ \t\r\n]").search


@define
class Reader:
    """Reads a trace: an object whose `traceEvents` is a list, or the list itself."""

    stream: TextIO
    text: str = ""
    at: int = 0
    ended: bool = False

    def events(self, about: Callable[[str, Any], object]) -> Iterator[Any]:
        """Yield each event; `about` gets every other entry of the object."""
        if self._peek() == "[":
            yield from self._items()
            return
        self._expect("{", "a trace is a JSON object or a list of events")
        while self._peek() != "}":
            key = self._value()
            self._expect(":", f"no `:` after {str(key)[:40]!r}")
            if key == EVENTS:
                yield from self._items()
            else:
                self._peek()
                about(str(key), self._value())
            self._comma("}")

    def _items(self) -> Iterator[Any]:
        self._expect("[", f"{EVENTS} is no list")
        while self._peek() != "]":
            yield self._value()
            self._comma("]")
        self.at += 1

    def _comma(self, close: str) -> None:
        if self._peek() == ",":
            self.at += 1
        elif self.text[self.at] != close:
            raise Malformed(f"neither `,` nor `{close}` after a value, but {self.text[self.at : self.at + 20]!r}")

    def _expect(self, sign: str, otherwise: str) -> None:
        if self._peek() != sign:
            raise Malformed(otherwise)
        self.at += 1

    def _peek(self) -> str:
        """Return the next character that is not blank."""
        while True:
            found = _FILLED(self.text, self.at)
            if found:
                self.at = found.start()
                return found[0]
            self.at = len(self.text)
            if not self._more():
                raise Truncated("the text ends before its last bracket")

    def _value(self) -> Any:
        """Read the value that begins at the next character, which is not blank."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as e:
                if len(self.text) - self.at <= LONGEST and self._more():
                    continue
                if e.msg.startswith("Unterminated") or e.pos >= len(e.doc.rstrip()):
                    raise Truncated("the text ends inside a value") from None
                raise Malformed(f"not JSON: {e.msg}") from None
            except RecursionError:
                raise Malformed("a value is nested too deep") from None
            except ValueError:
                raise Malformed("a number has too many digits") from None
            if isinstance(value, int | float) and end + EXPONENT > len(self.text) and self._more():
                continue
            self.at = end
            return value

    def _more(self) -> bool:
        """Read the next characters and drop the parsed ones; return whether there were any."""
        found = "" if self.ended else self.stream.read(CHUNK)
        self.ended = not found
        if found:
            self.text, self.at = self.text[self.at :] + found, 0
        return not self.ended


_DECODER = json.JSONDecoder(strict=False)
