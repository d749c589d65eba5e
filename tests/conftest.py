"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moedsl.bridge.client import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real Megatron Bridge, imported once for all tests; without it every test that asks fails."""
    with Server(jobs=2) as process:
        assert process.first["ready"], process.first["error"]
        yield process
