"""The limits of a command: seconds and memory; and what a thread asks instead."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from attrs import frozen

from moedsl.support import limits

pytestmark = pytest.mark.usefixtures("no_collector_callbacks")


@frozen
class Run:
    name: str


BELOW, ABOVE = 0.1, 30.0
"""Seconds below the limit, and so many that a kernel that counts by ticks reaches it too."""


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, no_collector_callbacks: None) -> Iterator[None]:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    with limits.turned_on():
        yield
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_all_runs_have_the_seconds_of_the_command_together(command: None) -> None:
    with limits.bounded(), limits.of_part(Run("a")):
        burn(BELOW)
    with pytest.raises(limits.TooLarge) as reached, limits.bounded():
        for i, name in enumerate("abc"):
            with limits.of_part(Run(name), i, 3, "solved"):
                burn(BELOW if name == "a" else ABOVE)
    assert reached.value.places == ((Run("b"), 1, 3, "solved"),)


def test_all_files_have_the_seconds_of_the_command_together(command: None) -> None:
    with pytest.raises(limits.TooLarge) as reached, limits.bounded():
        for i, file in enumerate(("a.moe", "b.moe")):
            with limits.of_part(limits.File(file), i, 2), limits.of_part(Run("main")):
                burn(ABOVE if i else BELOW)
    assert [(p.part.name, p.done) for p in reached.value.places] == [("b.moe", 1), ("main", 0)]


def test_a_part_that_was_not_left_is_not_named_in_the_next_work(command: None) -> None:
    """The signal may come while it is entered or left."""
    part = limits.of_part(Run("a"))
    with limits.bounded():
        part.__enter__()
    with pytest.raises(limits.TooLarge) as reached, limits.bounded():
        burn(ABOVE)
    part.__exit__(None, None, None)
    assert reached.value.places == ()


def test_a_signal_that_comes_at_the_end_leaves_nothing_behind(command: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds may be over while the timer is turned off."""
    before, timer = signal.getsignal(signal.SIGPROF), signal.setitimer

    def late(which: int, seconds: float, interval: float = 0.0) -> None:
        if not seconds:
            signal.raise_signal(signal.SIGPROF)
        timer(which, seconds, interval)

    monkeypatch.setattr(signal, "setitimer", late)
    with limits.bounded():
        pass
    assert signal.getsignal(signal.SIGPROF) == before
    with pytest.raises(limits.TooLarge), limits.bounded():
        burn(ABOVE)


def test_what_is_done_outside_of_a_run_counts(command: None) -> None:
    with pytest.raises(limits.TooLarge) as reached, limits.bounded():
        with limits.of_part(Run("a")):
            burn(BELOW)
        burn(ABOVE)
    assert reached.value.part is None


def test_a_thread_stops_after_its_seconds() -> None:
    burn(0.2)
    with limits.stopped_after(0.1):
        limits.go_on()
        with limits.of_part(Run("a")), pytest.raises(limits.TooLarge, match=r"0\.1 s of a core") as reached:
            burn(0.15)
            limits.go_on()
    assert reached.value.part == Run("a")


def test_the_limit_of_memory_is_of_what_is_held_more_and_ends(command: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMORY", 64 << 20)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = np.ones(16 << 20)  # 128 MiB that this process has already
    with limits.bounded():
        few = np.ones(4 << 20)
    with pytest.raises(limits.TooLarge, match="500 MB") as reached, limits.bounded(), limits.of_part(Run("a")):
        np.ones(16 << 20)
    assert reached.value.part == Run("a")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert held.size + few.size + np.ones(16 << 20).size == 36 << 20


def test_nothing_is_limited_outside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the API: a signal would meet the caller's code."""
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    with limits.bounded(), limits.of_part(Run("a")):
        burn(0.1)


def test_a_thread_has_no_signals(command: None) -> None:
    """`main` may be called in a thread of another program."""

    def work() -> None:
        with limits.bounded():
            burn(0.5)
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_a_search_asks_what_its_own_thread_says(command: None) -> None:
    asked: list[str] = []
    with limits.stopped_by(lambda: asked.append("outer")):
        with limits.stopped_by(lambda: asked.append("inner")):
            limits.go_on()
        limits.go_on()
    limits.go_on()
    assert asked == ["inner", "outer"]
