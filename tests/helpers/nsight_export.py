"""Write sqlite files to the schema of Nsight Systems' export, from a few lines that say what the device did."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field

PID = 0x1234
KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}
TABLES = Path(__file__).with_name("nsight_export.sql").read_text(encoding="utf-8")

Row = tuple[Any, ...]


@define
class Export:
    """One process on one device; times are in microseconds."""

    kernels: list[Row] = field(factory=list)
    ranges: list[Row] = field(factory=list)
    pid: int = PID
    device: int = 0
    correlated: int = 0
    """The last correlation of the process before these."""

    def kernel(
        self, name: str, start: float, end: float, launched: float | None = None, stream: int = 7, graph: int = 0
    ) -> None:
        """Add a kernel, or what `Memcpy KIND`, `Memset` and `CUDA graph` name; without a launch it has no row of the
        runtime. The nodes of a launch of a `graph` share its correlation."""
        self.kernels.append((name, start, end, launched, stream, graph))

    def range(self, text: str, start: float, end: float) -> None:
        self.ranges.append((text, start, end))


def write(path: Path, exports: Iterable[Export], drop: Sequence[str] = ()) -> Path:
    """Write the processes into one file; `drop` names tables or TABLE.COLUMN that this version does not have."""
    base = sqlite3.connect(path)
    base.executescript(TABLES)
    base.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.0')")
    base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100 80GB HBM3', '')")
    ids: dict[str, int] = {}
    for e in exports:
        _write(base, e, ids)
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in ids.items()])
    for name in drop:
        table, _, column = name.partition(".")
        base.execute(f"ALTER TABLE {table} DROP COLUMN {column}" if column else f"DROP TABLE {table}")
    base.commit()
    base.close()
    return path


def _write(base: sqlite3.Connection, e: Export, ids: dict[str, int]) -> None:
    def number(text: str) -> int:
        return ids.setdefault(text, len(ids) + 1)

    process, thread = e.pid << 24, (e.pid << 24) + 1
    graphs: dict[int, int] = {}
    for n, (name, start, end, launched, stream, graph) in enumerate(e.kernels, e.correlated + 1):
        correlation = graphs.setdefault(graph, n) if graph else n
        a, b = round(start * 1000), round(end * 1000)
        if name.startswith("Memcpy "):
            row = (a, b, e.device, 1, stream, correlation, process, 1 << 20, KINDS[name.split()[1]], None, 1, 2)
            table = "MEMCPY"
        elif name == "Memset":
            row, table = (a, b, e.device, 1, stream, correlation, process, 0, 1 << 20, None, 2), "MEMSET"
        elif name == "CUDA graph":
            row, table = (a, b, e.device, 5, 6, 1, stream, correlation, process), "GRAPH_TRACE"
        else:
            said = number(name)
            row = (a, b, e.device, 1, None, stream, correlation, process, said, said, said, 0, 0, 32, 1, 1, 1, 128, 1, 1,
                   graph or None)  # fmt: skip
            table = "KERNEL"
        base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES ({', '.join('?' * len(row))})", row)
        if launched is not None and correlation == n:
            at = round(launched * 1000)
            call = (at, at + 2000, 0, thread, correlation, number("cudaLaunchKernel_v7000"), 0, None)
            base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({', '.join('?' * len(call))})", call)
    for text, start, end in e.ranges:
        # Texts of NVTX stand in the row or in StringIds, depending on whether they were registered.
        said, by_id = (text, None) if len(text) % 2 else (None, number(text))
        row = (round(start * 1000), round(end * 1000), 59, None, None, None, said, thread, None, by_id, 0, *[None] * 4)
        base.execute(f"INSERT INTO NVTX_EVENTS VALUES ({', '.join('?' * len(row))})", row)
