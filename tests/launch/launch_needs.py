"""A test that this machine cannot run."""

from __future__ import annotations

import os

import pytest


def unable(reason: str) -> None:
    """Skips with the reason, and fails where everything must run."""
    if os.environ.get("CI") or os.environ.get("MOEDSL_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)
