"""The processes of `moedsl verify` and `moedsl rehearse` as forks of one that has imported what they import.

`make test-all` starts each as the commands do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moedsl.bridge.verify import client
from moedsl.bridge.verify.client import Server
from moedsl.facts.releases import Release
from moedsl.rehearse import launch
from moedsl.rehearse.launch import Host
from tests.helpers import bridge_process, rotation

_SERVE = "from moedsl.bridge.verify import server; server.main()"
_HOST = "import os, sys; sys.argv[1] = str(os.getppid()); from moedsl.rehearse import host; host.main()"
"""It ends with the process that it is a fork of."""


def server(jobs: int, release: Release | None = None) -> Server:
    return (Server if rotation.ALL else _Server)(jobs, release)


def host() -> Host:
    return (Host if rotation.ALL else _Host)()


class _Server(Server):
    def _start(self, jobs: int, home: Path, release: Release | None) -> Any:
        theirs = bridge_process.home()
        stage = bridge_process.stage_of(release)
        words = ["-c", _SERVE, str(jobs), str(theirs / "hub")]
        return bridge_process.Process(words, self._log, client._environment(theirs, release), stage)


class _Host(Host):
    def _start(self) -> Any:
        words = ["-c", _HOST, "its parent"]
        environment = launch._environment(bridge_process.home())
        return bridge_process.Process(words, self._log, environment, "transformers", text=False)
