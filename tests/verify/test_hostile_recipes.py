"""A recipe that never ends, or leaves processes behind, costs its own time and nobody else's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from attrs import evolve

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from tests.helpers import bridge_process

pytestmark = pytest.mark.bridge
SLEEPER = """import os, time
from pathlib import Path
if os.fork() == 0:
    {first}
    Path({mark!r} + ".new").write_text(str(os.getpid()))
    os.rename({mark!r} + ".new", {mark!r})
    time.sleep(600)
while not Path({mark!r}).exists():
    time.sleep(0.01)
"""
ENDS = {
    "sleeps": ("time.sleep(600)", "verify.timeout"),
    "sleeps without a pipe": ("os.closerange(3, 100)\ntime.sleep(600)", "verify.timeout"),
    "ends": ("os._exit(3)", "verify.crash"),
    "raises": ("raise ValueError", "verify.recipe"),
}


@pytest.mark.parametrize("first", ["pass", "os.setsid()"], ids=["a child", "a daemon"])
@pytest.mark.parametrize(("last", "id"), ENDS.values(), ids=ENDS)
def test_a_recipe_that_leaves_a_process(first: str, last: str, id: str, server: Server, tmp_path: Path) -> None:
    file, mark = tmp_path / "recipe.py", tmp_path / "pid"
    file.write_text(SLEEPER.format(first=first, mark=str(mark)) + f"{last}\ndef x_config(): pass\n")
    case = cases.read(str(file), "h100", 8)
    assert isinstance(case, Case)
    start = time.monotonic()
    (answer,) = server.resolve([evolve(case, seconds=2)])
    assert answer.id == id and time.monotonic() - start < 60
    left = int(mark.read_text())
    if first == "pass":
        _wait_for_the_end(left)
    else:
        os.kill(left, 9)  # who leaves the group on purpose stays


def _wait_for_the_end(pid: int) -> None:
    end = time.monotonic() + 60
    while bridge_process.lives(pid):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.01)
