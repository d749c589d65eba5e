"""The process that is forked for each task: every end of a fork, or of itself, is told at once. Without Bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.host import Host, HostEndedError
from moedsl.rehearse import launch
from moedsl.rehearse.launch import Failure, Ranks
from tests.helpers.paths import ROOT

TASKS = "tests.helpers.small_tasks"
FOREVER = "import signal; signal.pause()"
CHILD = "import os, signal\nif not os.fork(): signal.pause()\n"
"""It leaves a process that holds every pipe open."""


def small(**environment: str) -> Host:
    return Host(TASKS, {"PYTHONPATH": str(ROOT), **environment})


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with small() as process:
        yield process


def ends(host: Host, codes: Mapping[str, str], folder: Path) -> dict[str, int]:
    """How each task ends."""
    host.start([(i, {"code": code, "log": str(folder / f"{i}.log")}) for i, code in enumerate(codes.values())])
    found: dict[int, int] = {}
    while len(found) < len(codes):
        message = host.next()
        assert message is not None
        found |= dict(message.get("ended", ()))
    return {name: found[i] for i, name in enumerate(codes)}


def test_a_task_that_dies_is_told_and_the_others_go_on(host: Host, tmp_path: Path) -> None:
    codes = {
        "works": "pass",
        "exits": "import os; os._exit(3)",
        "aborts": "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
        "crashes": "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)",
        "raises": "raise ValueError('a reason')",
        "leaves a process": f"{CHILD}os._exit(4)",
        "closes its pipes and raises": "import os; os.closerange(3, 100); raise ValueError",
    }
    status = {"works": 0, "exits": 3, "aborts": -6, "crashes": -11, "raises": 1, "leaves a process": 4}
    assert ends(host, codes, tmp_path) == {**status, "closes its pipes and raises": 1}
    assert (tmp_path / "4.log").read_text().endswith("ValueError: a reason\n")


def test_a_deadline_is_the_parents_and_ends_one_task(host: Host, tmp_path: Path) -> None:
    host.start([(0, {"code": CHILD + FOREVER, "log": str(tmp_path / "log")})])
    assert host.next(deadline=0.0) is None
    host.end([0, 7])
    assert host.next() == {"ended": [[0, -9]]}


def test_a_task_tells_something_before_it_ends(host: Host, tmp_path: Path) -> None:
    host.start([(5, {"code": "tell('half'); 1 / 0", "log": str(tmp_path / "log")})])
    assert [host.next() for _ in range(3)] == [
        {"id": 5, "told": "half"},
        {"id": 5, "raised": True},
        {"ended": [[5, 1]]},
    ]


@pytest.mark.parametrize("load", ["import os; os._exit(7)", f"{CHILD}print('last words', flush=True); os._exit(7)"])
def test_a_host_that_dies_is_an_error(load: str) -> None:
    with small(LOAD=load) as host, pytest.raises(HostEndedError) as ended:
        host.next()
    assert ended.value.status == 7 and ended.value.log == ("last words\n" if "last" in load else "")


def test_a_host_that_cannot_import_says_why() -> None:
    with small(LOAD="import nothing_of_this_name") as host:
        first = host.first()
        assert first is not None and not first["ready"] and "nothing_of_this_name" in first["error"]


@pytest.mark.parametrize("module", ["tests.helpers.small_tasks", "tests.helpers.paths"])
def test_a_server_whose_host_dies_has_failed_reports(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD", "import os; os._exit(7)")
    with Server() as server:
        server._host.close()
        server._host = Host(module, {"PYTHONPATH": str(ROOT)})
        case: Any = SimpleNamespace(file="recipe.py")
        (report,) = server.judge([case])
    assert (report.verdict, report.id) == ("failed", "verify.import")


@pytest.mark.parametrize(("raised", "status"), [([1, 0], 1), ([0], -9)], ids=["raises", "killed"])
def test_of_ranks_that_have_ended_the_first_that_failed_is_named(
    raised: list[int], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rank 0 fails because rank 1 is gone; on a busy machine both have ended when the host looks."""
    monkeypatch.setattr(launch, "tail", lambda *_: ())
    messages = [*({"id": rank, "raised": True} for rank in raised), {"ended": [[0, 1], [1, status]]}]
    host: Any = SimpleNamespace(
        folder=tmp_path, start=lambda _: None, end=lambda _: None, next=lambda _: messages.pop(0)
    )
    prepared: Any = SimpleNamespace(folder=tmp_path, rehearsal=SimpleNamespace(ranks=2), iterations=1)
    assert Ranks()._train(host, prepared, 0.0, print) == Failure("rank", 1, status, ())
