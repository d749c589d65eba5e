"""The errors of a computation on one and on two ranks, each a fork that has imported what the caller has."""

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path

Errors = Callable[[Path, int, int], dict[str, float]]
"""The errors of one rank, by the file where the ranks meet, its number and the number of ranks."""


def worst(folder: Path, errors: Errors) -> dict[str, float]:
    """The largest error of each kind over all ranks, by kind and number of ranks."""
    out: dict[str, float] = {}
    for world in (1, 2):
        ranks = [_started(errors, folder / str(world), rank, world) for rank in range(world)]
        assert not any(os.waitpid(pid, 0)[1] for pid in ranks)
        found = [json.loads((folder / f"{world}.{rank}").read_text()) for rank in range(world)]
        out |= {f"{kind} of {world}": max(one[kind] for one in found) for kind in found[0]}
    return out


def _started(errors: Errors, meet: Path, rank: int, world: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        meet.with_suffix(f".{rank}").write_text(json.dumps(errors(meet, rank, world)))
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)
