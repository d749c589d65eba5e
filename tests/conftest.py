"""What several test files share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from moedsl.verify.client import Server
from tests.helpers import rotation

settings.register_profile("fixed", derandomize=True)
if os.environ.get("CI") or os.environ.get("MOEDSL_REQUIRE_ALL"):
    settings.load_profile("fixed")  # a person's run looks for new cases, that of .ci/run judges the same ones each time

for heard, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(heard) is signal.SIG_IGN:  # a shell's job in the background, or nohup: tests send them
        signal.signal(heard, handler)

collect_ignore = (
    ["bench", "editors", "launch", "lsp", "rehearse/test_rehearsal.py", "schema/test_axes.py", "solver/test_cpsat.py"]
    if sys.version_info < (3, 12)
    else []
)
"""The environment of Python 3.11 is the core's alone."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    took = (
        "all cases" if rotation.ALL else f"a part, MOEDSL_SEED={rotation.seed()} draws it again, make test-all runs all"
    )
    terminalreporter.write_line(f"wide tests: {took}")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real Megatron Bridge, imported once for all tests; without it every test that asks fails."""
    with Server(jobs=2) as process:
        assert process.first["ready"], process.first["error"]
        yield process
