"""Traces of PyTorch's profiler with entries that no profiler writes are refused, or read without them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from moedsl.cli.main import main

KERNEL = '{"ph":"X","cat":"kernel","name":%s,"pid":0,"tid":7,"ts":%s,"dur":%s,"args":%s}'
STEP = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":0,"tid":1,"ts":%d,"dur":100}'
GOOD = [*(KERNEL % ('"gemm"', i * 10, 5, "{}") for i in range(40)), *(STEP % (i, i * 100) for i in range(4))]


def _trace(*events: str, about: str = "") -> str:
    return f'{{"schemaVersion":1,{about}"traceEvents":[{",".join([*GOOD, *events])}]}}'


WRONG = {
    "a list nested too deep": "[" * 200_000,
    "an event nested too deep": '{"traceEvents":[' + "[" * 200_000,
    "an object nested too deep": '{"a":' * 100_000,
    "a time that is NaN": _trace(KERNEL % ('"x"', "NaN", 1, "{}")),
    "a time that is too large": _trace(KERNEL % ('"x"', "1e400", 1, "{}")),
    "a time of 5,000 digits": _trace(KERNEL % ('"x"', "9" * 5000, 1, "{}")),
    "a time of 30 digits": _trace(KERNEL % ('"x"', "9" * 30, 1, "{}")),
    "a time that is a word": _trace(KERNEL % ('"x"', '"a"', 1, "{}")),
    "a time that is null": _trace(KERNEL % ('"x"', "null", 1, "{}")),
    "no time": _trace('{"ph":"X","cat":"kernel","name":"x"}'),
    "a duration without end": _trace(KERNEL % ('"x"', 1, "Infinity", "{}")),
    "a correlation that is NaN": _trace(KERNEL % ('"x"', 1, 1, '{"correlation": NaN}')),
    "more devices than a machine has": _trace(
        *(KERNEL.replace('"pid":0', f'"pid":{i}') % ('"x"', 1, 1, "{}") for i in range(1, 100))
    ),
    "a thread that is an object": _trace('{"ph":"X","cat":"kernel","name":"x","ts":1,"dur":1,"tid":{}}'),
}
ODD = {
    "a rank that is a number alone": _trace(about='"distributedInfo":5,"deviceProperties":{"a":1},'),
    "a rank that is a text": _trace(about='"distributedInfo":{"rank":"\\u001b[31m"},"deviceProperties":[5],'),
    "a name that is a list": _trace(KERNEL % ('["x"]', 1, 1, "[1]")),
    "a name with an escape": _trace(KERNEL % (json.dumps("\x1b]52;c;QUJD\x07\u202ekernel"), 1, 390, "{}")),
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


@pytest.mark.parametrize("command", ["profile", "memory"])
def test_a_named_pipe(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main([command, str(tmp_path / "pipe")]) == 1
    assert "error[read.special]" in capsys.readouterr().err
