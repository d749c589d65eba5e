"""What a job is, decided: nodes, ranks, environment and the scheduler's arguments, each with its rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from moedsl.checker.clusters.setting import Setting


@frozen
class Launch:
    """One job on one cluster. Nothing in it depends on the machine that submits it."""

    name: str
    """Of the job and of its experiment: letters, digits, ``_``, ``.`` and ``-``."""
    cluster: str
    executor: str
    nodes: int
    gpus_per_node: int
    """GPUs that the job takes on each node."""
    tasks_per_node: int
    """Processes that the scheduler starts on each node."""
    ranks_per_node: int
    ranks_per_numa_node: int
    """Consecutive local ranks that share a NUMA node; 0 binds nothing."""
    segment: int
    """Nodes of a segment that lies in one NVLink domain; 0 asks for none."""
    environment: tuple[Setting, ...]
    srun: tuple[Setting, ...]
    sbatch: tuple[Setting, ...]
    settings: tuple[Setting, ...]
    """Everything else that was derived, `nodes` and the like, with its rule."""
    secrets: tuple[str, ...]

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.nodes * self.ranks_per_node

    @property
    def variables(self) -> dict[str, str]:
        """The environment of every rank."""
        return {s.name: s.text for s in self.environment}


def to_json(launch: Launch) -> dict[str, Any]:
    """The contract's form (docs/internals.md, launch)."""
    out = attrs.asdict(launch, recurse=False, filter=lambda a, _: a.name not in _SETTINGS)
    return out | {n: [_setting(s) for s in getattr(launch, n)] for n in _SETTINGS} | {"secrets": list(launch.secrets)}


_SETTINGS = ("environment", "srun", "sbatch", "settings")


def _setting(s: Setting) -> Mapping[str, Any]:
    out = attrs.asdict(s, recurse=False)
    return {k: v for k, v in out.items() if k != "cites"} | {"cite": list(s.cites)}
