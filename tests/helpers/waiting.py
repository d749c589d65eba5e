"""A test of a nested run that another worker runs while one dies."""

import threading


def test_that_waits() -> None:
    threading.Event().wait(600)
