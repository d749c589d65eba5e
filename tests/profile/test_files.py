"""Files that are no usable trace: a diagnostic with a way out and exit code 1 for each; and a large one."""

import gzip
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.cli.main import main
from moedsl.runs.profile import kineto, report
from moedsl.runs.profile.kineto import Reader
from moedsl.runs.profile.trace import Malformed, Truncated
from tests.helpers.nsight_export import Export, write
from tests.profile.test_budget import three_steps

EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1, "ts": 1000.0 * i, "dur": 1000.0}
    for i in range(3)
] + [
    {
        "ph": "X", "cat": "kernel", "name": "nvjet_tst", "pid": 0, "tid": 7, "ts": 1000.0 * i + 100, "dur": 500.0,
        "args": {"correlation": i, "stream": 7},
    }
    for i in range(3)
]  # fmt: skip
TRACE = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": EVENTS, "traceName": "x"}


def refused(capsys: pytest.CaptureFixture[str], *paths: Path) -> str:
    assert main(["profile", *map(str, paths)]) == 1
    said = capsys.readouterr().err
    assert "help: " in said
    return said


def file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_trace_without_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "profile.empty" in refused(capsys, file(tmp_path / "a.json", b""))
    assert "profile.empty" in refused(capsys, file(tmp_path / "b.json", b'{"traceEvents": []}'))
    assert "profile.empty" in refused(capsys, file(tmp_path / "c.json.gz", gzip.compress(b'{"traceEvents": []}')))
    assert "profile.empty" in refused(capsys, write(tmp_path / "d.sqlite", [Export()]))


def test_no_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = Export()
    e.kernel("nvjet_tst", 0, 10, 0)
    assert "profile.no_steps" in refused(capsys, write(tmp_path / "a.sqlite", [e]))
    only = {**TRACE, "traceEvents": [x for x in EVENTS if x["cat"] == "kernel"]}
    said = refused(capsys, file(tmp_path / "b.json", json.dumps(only).encode()))
    assert "profile.no_steps" in said and "rules steps of trace" in said


def test_a_cut_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(TRACE).encode()
    packed = gzip.compress(text)
    assert "profile.truncated" in refused(capsys, file(tmp_path / "a.json", text[:-40]))
    assert "profile.truncated" in refused(capsys, file(tmp_path / "b.json.gz", packed[: len(packed) // 2]))
    assert "profile.truncated" in refused(capsys, file(tmp_path / "c.json.gz", packed[:-4]))
    whole = write(tmp_path / "d.sqlite", [three_steps()]).read_bytes()
    assert "profile.truncated" in refused(capsys, file(tmp_path / "e.sqlite", whole[: len(whole) // 2]))


def test_another_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = write(tmp_path / "a.sqlite", [three_steps()], drop=("CUPTI_ACTIVITY_KIND_KERNEL.end",))
    said = refused(capsys, gone)
    assert "profile.schema" in said and "no column end" in said and "3.20.0" in said
    newer = file(tmp_path / "b.json", json.dumps({**TRACE, "schemaVersion": 7}).encode())
    assert "schemaVersion is 7" in refused(capsys, newer)
    for i, content in enumerate(
        (b"\x7fELF\0\0\0", b"hello", b'{"traceEvents": 4}', b'{"traceEvents": [{]}', b"[1, 2}")
    ):
        assert "profile.schema" in refused(capsys, file(tmp_path / f"{i}.json", content))


def test_older_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns and tables that only some versions have are not needed."""
    less = ("CUPTI_ACTIVITY_KIND_MEMCPY", "META_DATA_EXPORT", "TARGET_INFO_GPU", "NVTX_EVENTS.endGlobalTid")
    assert main(["profile", str(write(tmp_path / "a.sqlite", [three_steps()], drop=less))]) == 0
    capsys.readouterr()
    alone = ("CUPTI_ACTIVITY_KIND_KERNEL.globalPid", "CUPTI_ACTIVITY_KIND_MEMCPY.globalPid")
    assert main(["profile", str(write(tmp_path / "c.sqlite", [three_steps()], drop=alone)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle"]["by_cause"]["launch"] > 0
    bare = write(tmp_path / "b.sqlite", [three_steps()], drop=("CUPTI_ACTIVITY_KIND_RUNTIME",))
    assert main(["profile", str(bare)]) == 0
    assert "cause unknown" in capsys.readouterr().out


def test_what_limits_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings of Nsight Systems, whose informations stay out, and operations without a launch."""
    path = write(tmp_path / "a.sqlite", [three_steps()])
    assert main(["profile", str(path)]) == 0
    assert "remark" not in capsys.readouterr().out
    with sqlite3.connect(path) as base:
        rows = [(0, 0, 0, 1, "Started", 0), (0, 0, 0, 2, "Dropped\n1200 CUDA events\x1b[31m", 0)]
        base.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", rows)
        base.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId % 2 = 0")
    assert main(["profile", str(path)]) == 0
    said = capsys.readouterr().out
    assert "remark: Dropped 1200 CUDA events" in said and "Started" not in said and "\x1b" not in said
    assert "the launch of 50% of the operations" in said


def test_a_report_without_nsys(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(capsys, file(tmp_path / "a.nsys-rep", b"\x01binary"))
    assert "profile.no_nsys" in said and "nsys export --type sqlite" in said


def test_a_report_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """`nsys` is called as its manual says: `nsys export --type sqlite -o OUT REPORT`."""
    made = write(tmp_path / "made.sqlite", [three_steps()])
    nsys = file(
        tmp_path / "nsys", f'#!/bin/sh\n[ "$1 $2 $3 $4" = "export --type sqlite -o" ] && /bin/cp {made} "$5"\n'.encode()
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["profile", str(file(tmp_path / "a.nsys-rep", b"\x01binary"))]) == 0


def test_other_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "read.missing" in refused(capsys, tmp_path / "none.sqlite")
    assert "read.directory" in refused(capsys, tmp_path)


def test_plain_and_compressed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(TRACE, indent=1).encode()
    for path in (file(tmp_path / "a.json", text), file(tmp_path / "b.json.gz", gzip.compress(text))):
        assert main(["profile", str(path), "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["rank"], data["world"], data["steps"]["n"]) == (3, 8, 3)
        assert data["classes"][0]["busy_s"] == pytest.approx(500e-6)


def test_progress_of_a_compressed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts the bytes of the file, which are few."""
    monkeypatch.setattr(report, "LEAST", 1)
    path, said = file(tmp_path / "b.json.gz", gzip.compress(json.dumps(TRACE).encode())), list[str]()
    report.traces(path, lambda _: False, said.append)
    assert len(said) == 1 and said[0].startswith("reading b.json.gz: 100% of ")


def events(text: str) -> tuple[list[Any], dict[str, Any]]:
    about: dict[str, Any] = {}
    return list(Reader(io.StringIO(text)).events(about.__setitem__)), about


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(VALUES, max_size=6),
    st.dictionaries(st.text(), VALUES, max_size=3),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_events_as_json_reads_them(found: list[Any], about: dict[str, Any], chunk: int, indent: int | None) -> None:
    about.pop("traceEvents", None)
    text = json.dumps({**about, "traceEvents": found, "end": 12345}, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto, "CHUNK", chunk)
        assert events(text) == (found, {**about, "end": 12345})
        assert events(json.dumps(found)) == (found, {})
        for cut in range(1, len(text), 7):
            with pytest.raises(Malformed):
                events(text[:cut])


def test_a_large_trace_is_read_in_parts() -> None:
    """The reader holds two chunks at most, however long the text is."""
    event = json.dumps(EVENTS[3]) + ",\n"

    class Long(io.TextIOBase):
        reads = 0

        def read(self, size: int | None = -1) -> str:
            self.reads += 1
            if self.reads == 1:
                return '{"traceEvents": ['
            assert size is not None
            if self.reads < 12:
                return event * (size // len(event))
            return "{" if self.reads == 12 else ""

    reader, n = Reader(Long()), 0
    with pytest.raises(Truncated):
        for _ in reader.events(lambda key, value: None):
            n += 1
            assert len(reader.text) <= 2 * kineto.CHUNK
    assert n == 10 * (kineto.CHUNK // len(event))
