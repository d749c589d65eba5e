"""The hosts of `moedsl verify` and `moedsl rehearse` as forks of one process that has imported what they import.

`make test-all` starts each as the commands do.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

from moedsl.bridge.verify import environments
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.host import Process, Start, popen
from moedsl.facts.releases import Release
from moedsl.rehearse.launch import Ranks
from tests.helpers import bridge_process, rotation
from tests.helpers.bridge_process import Stage


def server(jobs: int, release: Release | None = None) -> Server:
    return Server(jobs, release, _start(bridge_process.stage_of(release)))


def ranks() -> Ranks:
    return Ranks(_start("transformers"))


def _start(stage: Stage) -> Start:
    return popen if rotation.ALL else partial(_forked, stage)


def _forked(stage: Stage, words: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> Process:
    """As `popen`, with the process's own folder of Hugging Face files: it was read while transformers was imported."""
    theirs = {**environment, **environments.hub_environment(bridge_process.home())}
    return bridge_process.Process(words[1:], log, theirs, stage, text=False)
