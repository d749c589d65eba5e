"""The older releases of Bridge whose environments `tools/setup` fetches."""

import os

import pytest

from moedsl.bridge.verify import environments
from moedsl.facts.releases import RELEASES, Release
from tests.helpers import rotation

OLDER = RELEASES[:-1]
EXAMPLES, TABLE = "the examples", "the table"
ASKED = rotation.some("older releases", (EXAMPLES, TABLE), 1)
"""What a run asks of an older release, because each starts a Bridge of its own."""


def available(release: Release) -> None:
    """Skip a test where an environment could not be fetched; fail where everything is required."""
    if not environments.is_ready(release):
        text = f"Bridge {release.bridge} is not here: `moedsl targets add {release.minor}`"
        (pytest.fail if os.environ.get("MOEDSL_REQUIRE_ALL") == "1" else pytest.skip)(text)
