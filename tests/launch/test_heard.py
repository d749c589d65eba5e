"""A Ctrl-C while the scheduler is asked ends the wait, also where the library that asks keeps it to itself."""

from __future__ import annotations

import os
import signal

import invoke
import pytest

from moedsl.launch.follow import reraising_interrupt

INTERRUPTS = f"sleep 0.5; kill -INT {os.getpid()}; sleep 0.5; echo asked"


def test_invoke_alone_keeps_it_to_itself() -> None:
    """Why `reraising_interrupt` is there: without it the question goes on as if nothing had been typed."""
    assert "asked" in invoke.Context().run(INTERRUPTS, hide=True, warn=True, in_stream=False).stdout


@pytest.mark.parametrize("command", [INTERRUPTS, f"{INTERRUPTS}; exit 3"], ids=["ends well", "fails"])
@pytest.mark.parametrize("warn", [True, False])
def test_a_question_that_is_interrupted_is_an_interruption(command: str, warn: bool) -> None:
    with pytest.raises(KeyboardInterrupt), reraising_interrupt():
        invoke.Context().run(command, hide=True, warn=warn, in_stream=False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_not_interrupted_is_as_it_was() -> None:
    with reraising_interrupt():
        assert invoke.Context().run("echo asked", hide=True, in_stream=False).stdout == "asked\n"
    with pytest.raises(invoke.exceptions.UnexpectedExit), reraising_interrupt():
        invoke.Context().run("exit 3", hide=True, in_stream=False)


def test_an_interruption_that_nobody_keeps_passes() -> None:
    with pytest.raises(KeyboardInterrupt), reraising_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
