"""Traces of PyTorch's profiler with entries that no profiler writes are refused, or read without them."""

import gzip
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.runs.profile import kineto
from moedsl.runs.profile.nsight import COPY, KERNEL, NAMES, NEEDS, NUMBERS, NVTX, RUNTIME, STRINGS, TEXTS
from moedsl.runs.profile.report import traces
from moedsl.support.diagnostics import Diagnostic
from tests.helpers.nsight_export import Export, write

KERNEL_EVENT = '{"ph":"X","cat":"kernel","name":%s,"pid":0,"tid":7,"ts":%s,"dur":%s,"args":%s}'
STEP = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":0,"tid":1,"ts":%d,"dur":100}'
GOOD = [*(KERNEL_EVENT % ('"gemm"', i * 10, 5, "{}") for i in range(40)), *(STEP % (i, i * 100) for i in range(4))]


def _trace(*events: str, about: str = "") -> str:
    return f'{{"schemaVersion":1,{about}"traceEvents":[{",".join([*GOOD, *events])}]}}'


WRONG = {
    "a list nested too deep": "[" * 200_000,
    "an event nested too deep": '{"traceEvents":[' + "[" * 200_000,
    "an object nested too deep": '{"a":' * 100_000,
    "a time that is NaN": _trace(KERNEL_EVENT % ('"x"', "NaN", 1, "{}")),
    "a time that is too large": _trace(KERNEL_EVENT % ('"x"', "1e400", 1, "{}")),
    "a time of 5,000 digits": _trace(KERNEL_EVENT % ('"x"', "9" * 5000, 1, "{}")),
    "a time of 30 digits": _trace(KERNEL_EVENT % ('"x"', "9" * 30, 1, "{}")),
    "a time that is a word": _trace(KERNEL_EVENT % ('"x"', '"a"', 1, "{}")),
    "a time that is null": _trace(KERNEL_EVENT % ('"x"', "null", 1, "{}")),
    "no time": _trace('{"ph":"X","cat":"kernel","name":"x"}'),
    "a duration without end": _trace(KERNEL_EVENT % ('"x"', 1, "Infinity", "{}")),
    "a correlation that is NaN": _trace(KERNEL_EVENT % ('"x"', 1, 1, '{"correlation": NaN}')),
    "more devices than a machine has": _trace(
        *(KERNEL_EVENT.replace('"pid":0', f'"pid":{i}') % ('"x"', 1, 1, "{}") for i in range(1, 100))
    ),
    "a thread that is an object": _trace('{"ph":"X","cat":"kernel","name":"x","ts":1,"dur":1,"tid":{}}'),
}
ODD = {
    "a rank that is a number alone": _trace(about='"distributedInfo":5,"deviceProperties":{"a":1},'),
    "a rank that is a text": _trace(about='"distributedInfo":{"rank":"\\u001b[31m"},"deviceProperties":[5],'),
    "a name that is a list": _trace(KERNEL_EVENT % ('["x"]', 1, 1, "[1]")),
    "a name with an escape": _trace(KERNEL_EVENT % (json.dumps("\x1b]52;c;QUJD\x07\u202ekernel"), 1, 390, "{}")),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_trace_that_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    assert main(["profile", str(file)]) == 1
    said = capsys.readouterr()
    assert not said.out and "error[profile.schema]" in said.err and "internal" not in said.err


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_trace_that_is_read(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    assert main(["profile", str(file)]) == 0
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said and "\u202e" not in said


def test_reading_stops_at_a_number_of_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a bomb: 7 MB of gzip with 21 million kernels. The step whose operations are not all read is left out."""
    monkeypatch.setattr(kineto, "EVERY", 1)
    monkeypatch.setattr(kineto, "MOST_OPERATIONS", 25)
    kernels = [KERNEL_EVENT % ('"gemm"', i * 10, 5, "{}") for i in range(40)]
    with gzip.open(tmp_path / "trace.json.gz", "wt") as file:
        file.write(f'{{"schemaVersion":1,"traceEvents":[{",".join([*GOOD[40:], *kernels])}]}}')
    assert main(["profile", "--json", str(tmp_path / "trace.json.gz")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["steps"]["n"] == 1 and any("25 operations with 1 step were read" in r for r in made["remarks"])
    monkeypatch.setattr(kineto, "MOST_EVENTS", 3)
    assert main(["profile", str(tmp_path / "trace.json.gz")]) == 1
    assert "its first 3 events are none of a device" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["profile", "memory"])
def test_a_named_pipe(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main([command, str(tmp_path / "pipe")]) == 1
    assert "error[read.special]" in capsys.readouterr().err


# ----------------------------------------------------------------
# Exports with values that Nsight never writes are refused, or read: sqlite keeps any value in any column.

ODD_CELLS: tuple[Any, ...] = (
    "a", "", b"\x00\xff", None, 1.5, float("inf"), 2**63 - 1, -(2**63), -1, "9" * 400, "\x1b[31m",
)  # fmt: skip


def export(path: Path) -> Path:
    e = Export()
    for i in range(20):
        e.kernel("gemm", i * 10 + 1, i * 10 + 6, i * 10)
        e.kernel("Memcpy HtoD", i * 10 + 6, i * 10 + 7, i * 10 + 1)
    for step in range(5):
        e.range(f"ProfilerStep#{step}", step * 40, step * 40 + 40)
    return write(path, [e])


def damaged(path: Path, table: str, column: str, value: Any) -> bool:
    """Change one value of an export; whether its schema lets it."""
    with closing(sqlite3.connect(path)) as base, base:
        at = f"(SELECT min(rowid) + 2 FROM {table})"
        try:
            base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {at}", (value,))
        except sqlite3.IntegrityError:  # NULL where there is none
            return False
    return True


@pytest.mark.parametrize("table", [KERNEL, COPY, RUNTIME, NVTX, STRINGS])
def test_a_value_of_any_type_in_any_column(table: str, tmp_path: Path) -> None:
    whole = export(tmp_path / "whole.sqlite").read_bytes()
    with closing(sqlite3.connect(tmp_path / "whole.sqlite")) as base:
        columns = {row[1] for row in base.execute(f"PRAGMA table_info('{table}')")}
    read = columns & {*NUMBERS, *(c for t, c in TEXTS if t == table), *NEEDS[table], *NAMES, "textId"}
    path = tmp_path / "damaged.sqlite"
    for column in sorted(read):
        for value in ODD_CELLS:
            path.write_bytes(whole)
            if not damaged(path, table, column, value):
                continue
            found = traces(path, lambda name: name.startswith("ProfilerStep"), lambda _: None)
            if isinstance(found, Diagnostic):
                assert found.id == "profile.schema", found
            else:
                assert column not in NUMBERS or not isinstance(value, str), (column, value)


def test_a_text_in_a_column_of_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = export(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as base:
        base.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 3")
    base.close()
    assert main(["profile", str(path)]) == 1
    assert "a row of CUPTI_ACTIVITY_KIND_KERNEL has no number in start" in capsys.readouterr().err


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'a' AS value FROM n"


def test_a_view_without_an_end_is_no_table(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"DROP TABLE {STRINGS}")
        base.execute(f"CREATE VIEW {STRINGS} AS {ENDLESS}")
    found = traces(path, lambda _: False, lambda _: None)
    assert isinstance(found, Diagnostic) and f"{STRINGS} is a view" in found.message


def test_strings_that_share_an_id(tmp_path: Path) -> None:
    """Each range then has the texts of all: twice as large a file takes four times as long."""
    e = Export()
    for i in range(2000):
        e.range(f"range {i}", i, i + 1)
    path = write(tmp_path / "a.sqlite", [e])
    with closing(sqlite3.connect(path)) as base, base:
        base.executescript(f"CREATE TABLE alike AS SELECT 1 AS id, value FROM {STRINGS};DROP TABLE {STRINGS};")
        base.execute(f"ALTER TABLE alike RENAME TO {STRINGS}")
        base.execute(f"UPDATE {NVTX} SET text = NULL, textId = 1")
    found = traces(path, lambda _: False, lambda _: None)
    assert isinstance(found, Diagnostic) and "too many rows for each id" in found.message


def test_a_column_that_computes_long_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    export(path)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"ALTER TABLE {STRINGS} RENAME TO old")
        long = "hex(zeroblob(1 << 25))"
        base.execute(f"CREATE TABLE {STRINGS} (id INTEGER, value TEXT AS ({long}) VIRTUAL)")
        base.execute(f"INSERT INTO {STRINGS} SELECT id FROM old")
    assert isinstance(traces(path, lambda _: False, lambda _: None), Diagnostic)
