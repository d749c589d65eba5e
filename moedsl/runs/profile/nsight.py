"""Read the sqlite export of an Nsight Systems report; return one trace for each process and device."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field

from moedsl.runs.profile import trace
from moedsl.runs.profile.trace import (
    UNKNOWN,
    Ints,
    IsStep,
    Malformed,
    Numbered,
    Paths,
    Range,
    Spans,
    Trace,
    matched,
    rows,
)

KERNEL, COPY, SET, GRAPH = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
RUNTIME, NVTX, STRINGS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"
NEEDS = {
    KERNEL: ("start", "end"), COPY: ("start", "end", "copyKind"), SET: ("start", "end"), GRAPH: ("start", "end"),
    RUNTIME: ("start", "correlationId", "globalTid"), NVTX: ("start", "end", "eventType", "globalTid"),
    STRINGS: ("id", "value"),
}  # fmt: skip
"""The columns that are read from each table and must exist; others differ between versions."""
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""CUPTI's kinds of copies (CUpti_ActivityMemcpyKind)."""
STARTED = (60, 71)
"""Nsight's event types of start/end ranges, without and with a payload; other ranges nest on a thread."""
NAMES = ("demangledName", "shortName", "mangledName")
"""The columns that may have a kernel's name, the best first."""
NAMELESS = "'<unknown>'"
NUMBERS = ("start", "end", "correlationId", "globalTid", "globalPid", "deviceId")
"""The integer columns that are read."""
TEXTS = {(STRINGS, "value"), (NVTX, "text")}
"""The text columns that are read; the `value` of a memset is a number."""
ROWS = 1 << 16
WARNING, WARNINGS = 1, 3
"""Nsight's messages above severity WARNING are warnings and errors; at most WARNINGS of them are kept."""
PROCESS = 0xFFFFFF
LONGEST = 1 << 24
"""The longest value in bytes; a computed column could have values of any length."""
COUNTED, STEPS_A_BYTE, MOST_STEPS = 100_000, 50, 5_000_000
"""sqlite instructions between two counts, and the limit for all queries: per byte of the file, plus a constant. An
export needs fewer than 5 per byte; one whose strings share an id, so that each range joins all of them, needs any
number."""


def read(path: Path, is_step: IsStep, progress: Callable[[], object]) -> list[Trace]:
    """Read the traces of an export; raises Malformed, or sqlite3.Error for a damaged file."""
    left = MOST_STEPS + STEPS_A_BYTE * path.stat().st_size

    def count() -> bool:
        nonlocal left
        left -= COUNTED
        return left < 0

    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        base.set_progress_handler(count, COUNTED)
        try:
            return list(_Export(path.name, base, is_step, progress).traces())
        except sqlite3.OperationalError:
            if left < 0:
                raise Malformed("its tables have too many rows for each id") from None
            raise


@define
class _Export:
    name: str
    base: sqlite3.Connection
    is_step: IsStep
    progress: Callable[[], object]
    tables: dict[str, set[str]] = field(init=False)
    names: Numbered = field(factory=Numbered)
    threads: Numbered = field(factory=Numbered)

    def __attrs_post_init__(self) -> None:
        kinds = dict(self.base.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"))
        tables = [n for n, kind in kinds.items() if kind == "table"]
        self.tables = {n: {row[1] for row in self.base.execute(f"PRAGMA table_info('{n}')")} for n in tables}
        for view in sorted(kinds.keys() & NEEDS.keys() - self.tables.keys()):  # a view may have endless rows
            raise Malformed(f"{view} is a view, and a table in every export of Nsight Systems")
        if not self.tables.keys() & NEEDS.keys():
            raise Malformed(f"it has no table {KERNEL}, nor another one of an export of Nsight Systems")
        for table in (t for t in NEEDS if t in self.tables):
            known = self.tables[table]
            if missing := [c for c in NEEDS[table] if c not in known]:
                query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'"
                stated = self._optional("META_DATA_EXPORT", ("name", "value"), query)
                version = "".join(f"; its schema has version {value}" for (value,) in stated)
                raise Malformed(f"its table {table} has no column {', '.join(missing)}{version}")
            # sqlite allows values of any type in any column
            kinds = {c: "text" for t, c in TEXTS if t == table} | dict.fromkeys(NUMBERS, "integer")
            wrong = {c: f"typeof({c}) NOT IN ('{kind}', 'null')" for c, kind in sorted(kinds.items()) if c in known}
            which = " ".join(f"WHEN {condition} THEN '{c}'" for c, condition in wrong.items())
            query = f"SELECT CASE {which} END FROM {table} WHERE {' OR '.join(wrong.values())} LIMIT 1"
            for (column,) in self.base.execute(query) if wrong else ():
                kind = "number" if kinds[column] == "integer" else "text"
                raise Malformed(f"a row of {table} has no {kind} in {column}")

    def _optional(self, table: str, columns: Sequence[str], query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Query a table that not every export has; empty if it or a column is missing."""
        return self.base.execute(query, values).fetchall() if {*columns} <= self.tables.get(table, set()) else []

    def traces(self) -> Iterator[Trace]:
        """Yield the trace of each process and device."""
        query = "SELECT DISTINCT {process}, {device} FROM {table}"
        each = [query.format(process=self._column(t, "globalPid"), device=self._column(t, "deviceId"), table=t)
                for t in (KERNEL, COPY, SET, GRAPH) if t in self.tables]  # fmt: skip
        places = sorted({place for text in each for place in self.base.execute(text)})
        ranges, steps = self._ranges()
        query = "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%PRODUCT_VERSION%' LIMIT 1"
        product = [f" {value}" for (value,) in self._optional("META_DATA_CAPTURE", ("name", "value"), query)]
        # Nsight's own warnings, such as dropped events
        query = "SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity > ? AND text IS NOT NULL LIMIT ?"
        said = self._optional("DIAGNOSTIC_EVENT", ("severity", "text"), query, (WARNING, WARNINGS))
        warnings = [" ".join(str(text).split()) for (text,) in said]
        if STRINGS not in self.tables:
            warnings = [f"the export has no table {STRINGS}, which has the names of kernels"]
        for process, device in places:
            texts, paths = Numbered(), Paths(self.names)
            spans, launched, path = self._operations(process, device, ranges, paths)
            c = spans.columns()
            text = np.fromiter((texts(key) for key in rows(c["name"], path)), np.int64, len(spans))
            order = np.argsort(c["start"], kind="stable")
            mine = [r for owner, r in steps if owner == process >> 24 & PROCESS] or [r for _, r in steps]
            label = f"{self.name}, process {process >> 24 & PROCESS}, device {device}"
            query = "SELECT name FROM TARGET_INFO_GPU WHERE id = ? LIMIT 1"
            gpu = [str(name) for (name,) in self._optional("TARGET_INFO_GPU", ("id", "name"), query, (device,))]
            yield Trace(
                name=self.name if len(places) == 1 else label, tool=f"Nsight Systems{''.join(product)}", rank=None,
                world=None, device="".join(gpu), start=c["start"][order], end=c["end"][order], text=text[order],
                launched=launched[order], first=np.ones(len(spans), np.int64),
                texts=[(self.names.values[name], paths.of(at)) for name, at in texts.values],
                groups=[""] * len(texts.values), ranges=tuple(sorted(mine, key=lambda r: r.start)),
                warnings=tuple(warnings),
            )  # fmt: skip

    def _column(self, table: str, name: str, otherwise: str = "0") -> str:
        """Return SQL for a column that not every version has."""
        return f"COALESCE({name}, {otherwise})" if name in self.tables[table] else otherwise

    def _rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        cursor = self.base.execute(query, values)
        while found := cursor.fetchmany(ROWS):
            self.progress()
            yield from found

    def _ranges(self) -> tuple[Spans, list[tuple[int, Range]]]:
        """Read the ranges that nest on threads, and the ranges that may be steps, each with its process.

        Times count from the start of the capture: a step with a negative start is not complete.
        """
        spans, steps = Spans(), list[tuple[int, Range]]()
        if NVTX not in self.tables:
            return spans, steps
        by_id = "textId" in self.tables[NVTX] and STRINGS in self.tables
        said = ["e.text"] * ("text" in self.tables[NVTX]) + ["s.value"] * by_id
        text = f"COALESCE({', '.join(said)}, NULL, '')"
        join = f"LEFT JOIN {STRINGS} s ON s.id = e.textId" if by_id else ""
        query = f"SELECT e.start, e.end, {text}, e.globalTid, e.eventType FROM {NVTX} e {join} WHERE e.end IS NOT NULL"
        for start, end, name, thread, kind in self._rows(query):
            short = name.partition(", ")[0] if ", op_id" in name or ", seq" in name else name
            if start >= 0 and self.is_step(short):
                steps.append(((thread or 0) >> 24 & PROCESS, Range(short, start, end)))
            if kind not in STARTED:
                spans.add(start, end, self.names(short), self.threads(thread))
        return spans, steps

    def _operations(self, process: int, device: int, ranges: Spans, paths: Paths) -> tuple[Spans, Ints, Ints]:
        """Read a device's operations: their spans and launch times, and the path of the ranges around each launch."""
        kinds = " ".join(f"WHEN {n} THEN 'Memcpy {way}'" for n, way in COPIES.items())
        # A kernel's name is in the first column that has one, as the id of a string or as a text
        each = list[str]()
        for column in (c for c in NAMES if c in self.tables.get(KERNEL, ())):
            each += [f"(SELECT value FROM {STRINGS} WHERE id = {column})"] if STRINGS in self.tables else []
            each.append(f"CASE typeof({column}) WHEN 'text' THEN {column} END")
        texts = {
            KERNEL: f"COALESCE({', '.join([*each, NAMELESS, NAMELESS])})",
            COPY: f"CASE copyKind {kinds} ELSE 'Memcpy' END",
            SET: "'Memset'",
            GRAPH: "'CUDA graph'",
        }
        spans, correlations = Spans(), array("q")
        for table, text in ((t, text) for t, text in texts.items() if t in self.tables):
            where = f"{self._column(table, 'globalPid')} = ? AND {self._column(table, 'deviceId')} = ?"
            correlation = self._column(table, "correlationId", str(UNKNOWN))
            query = f"SELECT start, end, {text}, {correlation} FROM {table} WHERE {where}"
            for start, end, name, correlation in self._rows(query, (process, device)):
                spans.add(start, end, self.names(name), 0)
                correlations.append(correlation)
        starts, threads, ids = array("q"), array("i"), array("q")
        wanted = {*correlations} - {UNKNOWN}
        if RUNTIME in self.tables and wanted:
            where = f"WHERE ? IN (0, globalTid >> 24 & {PROCESS})"
            query = f"SELECT correlationId, start, globalTid FROM {RUNTIME} {where}"
            for correlation, start, thread in self._rows(query, (process >> 24 & PROCESS,)):
                if correlation in wanted:
                    starts.append(start)
                    threads.append(self.threads(thread))
                    ids.append(correlation)
        launch = np.asarray(starts, np.int64)
        around = trace.enclosing(ranges, launch, np.asarray(threads, np.int64), paths)
        launched, path = matched(np.asarray(correlations, np.int64), np.asarray(ids, np.int64), (launch, around))
        return spans, launched, path
