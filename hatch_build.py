"""Compile the grammar and the standard library while the wheel is built, so that no start has to."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface[Any]):
    """Run moedsl once on its own files: it keeps what it compiles in moedsl/_data/compiled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = "from moedsl.lang import parser; from moedsl.rules import stdlib; stdlib.load(); parser.lark_parser()"
        subprocess.run([sys.executable, "-c", program], cwd=self.root, check=True)
        build_data["artifacts"] += ["/moedsl/_data/compiled/*"]
