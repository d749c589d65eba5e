"""The limits that a caller sets: seconds of a thread, and memory of the process."""

import resource
import time

import numpy as np
import pytest
from attrs import frozen

from moedsl.support import limits

pytestmark = pytest.mark.usefixtures("no_collector_callbacks")


@frozen
class Run:
    name: str


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_thread_stops_after_its_seconds() -> None:
    burn(0.2)
    with limits.stopped_after(0.1):
        limits.go_on()
        with limits.of_part(Run("a")), pytest.raises(limits.TooLarge, match=r"0\.1 s of a core") as reached:
            burn(0.15)
            limits.go_on()
    assert reached.value.part == Run("a")


def test_the_limit_of_memory_is_of_what_is_held_more_and_ends() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = np.ones(16 << 20)  # 128 MiB that this process has already
    with limits.within_memory(64):
        few = np.ones(4 << 20)
    with pytest.raises(limits.TooLarge, match="64 MB") as reached, limits.within_memory(64), limits.of_part(Run("a")):
        np.ones(16 << 20)
    assert reached.value.part == Run("a")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert held.size + few.size + np.ones(16 << 20).size == 36 << 20


def test_memory_that_is_lacking_without_a_limit_is_an_error() -> None:
    with pytest.raises(MemoryError), limits.of_part(Run("a")):
        raise MemoryError


def test_a_search_asks_what_its_own_thread_says() -> None:
    asked: list[str] = []
    with limits.stopped_by(lambda: asked.append("outer")):
        with limits.stopped_by(lambda: asked.append("inner")):
            limits.go_on()
        limits.go_on()
    limits.go_on()
    assert asked == ["inner", "outer"]
