"""Read a snapshot of PyTorch's allocator, and find what was live at the peak.

A snapshot is a pickle of plain values, and is read without executing anything. The history is replayed backwards from
the blocks of the snapshot: those at the end are known, and each event says what it changed. So the bytes at every
moment of the history are known, those from before its first event too.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

from attrs import frozen

LARGEST = 2 << 30
"""Bytes of a pickle. A snapshot of the 100,000 events that Bridge records has far fewer."""


class NotPlain(ValueError):
    """Says what a pickle holds besides plain values, or that it is damaged."""


class _Plain(pickle.Unpickler):
    """Lists, dictionaries, numbers and texts need no global, so none is looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"it names {module}.{name}, and reading it would run code")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("it refers to another file")


def load(stream: BinaryIO) -> Any:
    """Read one value, of at most `LARGEST` bytes; raises NotPlain."""
    whole = stream if stream.seekable() else io.BytesIO(stream.read(LARGEST + 1))
    if whole.seek(0, os.SEEK_END) > LARGEST:
        raise NotPlain(f"it has more than {LARGEST >> 30} GiB")
    whole.seek(0)
    try:
        return _Plain(whole).load()
    except NotPlain:
        raise
    except MemoryError:  # a length that no memory has
        raise NotPlain("it is damaged, or too large for the memory of this machine") from None
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as e:
        raise NotPlain(f"it is damaged or no pickle: {e}") from None


ALLOCATED, AWAITING = "active_allocated", "active_awaiting_free"
DRAWN = 500
ALLOC, FREE = "alloc", "free_requested"
Frames = tuple[tuple[str, int, str], ...]
"""File, line and function of each Python frame, the innermost first."""


class NoSnapshot(ValueError):
    """Says what is missing in a value that a snapshot would have."""


@frozen
class Live:
    """One allocation that was live at the peak; without frames it is from before the history, or from C++."""

    size: int
    frames: Frames


@frozen
class Memory:
    """The memory of one device, in bytes."""

    device: int
    peak: int
    live: tuple[Live, ...]
    at_start: int
    """Allocated before the first event of the history."""
    at_end: int
    reserved: int
    inactive: int
    """Reserved, but neither allocated nor awaiting a free."""
    events: int
    ended_by: str
    """oom, or an empty text."""
    over_time: tuple[int, ...]
    """The most bytes in each of at most `DRAWN` equal parts of the history."""


def devices(snapshot: Any) -> list[Memory]:
    """Read each device that has segments or a history; raises NoSnapshot."""
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise NoSnapshot("it has no list `segments`, which every snapshot of PyTorch's allocator has")
    traces = snapshot.get("device_traces") or []
    try:
        used = {int(s.get("device", 0)) for s in snapshot["segments"]} | {i for i, t in enumerate(traces) if t}
        return [
            _device(
                d, [s for s in snapshot["segments"] if s.get("device", 0) == d], traces[d] if d < len(traces) else []
            )
            for d in sorted(used)
        ]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise NoSnapshot(f"an entry of it is not as PyTorch writes it: {type(e).__name__} {e}") from None


def _device(device: int, segments: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Memory:
    now = {address: block for s in segments for address, block in _blocks(s) if block["state"] == ALLOCATED}
    at_end = total = sum(_size(b) for b in now.values())
    peak, at = total, len(events)
    parts = [0] * min(DRAWN, max(len(events), 1))
    parts[-1] = total
    for i in range(len(events) - 1, -1, -1):
        # Return the bytes that an event adds
        event = events[i]
        sign = {ALLOC: 1, FREE: -1}.get(event["action"], 0)
        total -= sign * _size(event) if sign else 0
        part = i * len(parts) // len(events)
        parts[part] = max(parts[part], total)
        if total > peak:
            peak, at = total, i
    reserved = sum(_size(s, "total_size") for s in segments)
    held = sum(_size(b) for s in segments for _, b in _blocks(s) if b["state"] in (ALLOCATED, AWAITING))
    return Memory(
        device, peak, _live(now, events, at), total, at_end, reserved, reserved - held, len(events),
        "oom" if events and any(e["action"] == "oom" for e in events[-3:]) else "", tuple(parts),
    )  # fmt: skip


def _blocks(segment: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the blocks with their addresses; older snapshots state only the segment's."""
    out: list[tuple[int, Mapping[str, Any]]] = []
    at = segment["address"]
    for block in segment["blocks"]:
        out.append((block.get("address", at), block))
        at += block["size"]
    return out


def _size(of: Mapping[str, Any], name: str = "size") -> int:
    """Return a size, which PyTorch writes as a whole number of 64 bits."""
    size = of[name]
    if not isinstance(size, int) or not 0 <= size < 1 << 63:
        raise ValueError(f"`{name}` is not a number of bytes")
    return size


def _live(now: Mapping[int, Mapping[str, Any]], events: Sequence[Mapping[str, Any]], at: int) -> tuple[Live, ...]:
    """Return what was live before event `at`: undo the events after it, and look up the frames of each allocation."""
    live: dict[int, tuple[int, Any]] = {a: (b["size"], _frames_of_block(b)) for a, b in now.items()}
    for event in reversed(events[at:]):
        if event["action"] == ALLOC:
            live.pop(event["addr"], None)
        elif event["action"] == FREE:
            live[event["addr"]] = (event["size"], ())
    made = {e["addr"]: e for e in events[:at] if e["action"] == ALLOC}  # the last one at each address
    return tuple(
        Live(size, _frames(made[a].get("frames")) if a in made else _frames(frames))
        for a, (size, frames) in live.items()
    )


def _frames_of_block(block: Mapping[str, Any]) -> Any:
    """Return the frames of a block; before PyTorch 2.1 they are in its history."""
    history = block.get("history") or [{}]
    return block.get("frames") or history[0].get("frames") or ()


def _frames(frames: Any) -> Frames:
    return tuple((str(f["filename"]), int(f["line"]), str(f["name"])) for f in frames or ())
