"""Tasks of a host that imports nothing: each is some lines of Python. `LOAD` of the environment runs when the host starts."""

import os
from collections.abc import Mapping
from typing import Any

from moedsl.bridge.verify.host import Tell


def load() -> dict[str, Any]:
    exec(os.environ.get("LOAD", ""))
    return {}


def work(task: Mapping[str, Any], tell: Tell) -> None:
    exec(task["code"], {"tell": tell})
