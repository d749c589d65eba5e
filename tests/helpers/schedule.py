"""Which worker of pytest-xdist takes which test file: the longest first, and the third and later ones for what waits.

A worker takes whole files, so that what a file computes once is computed once. The files that ask the real Megatron
Bridge are one piece of work, as are those of Slurm: there is one server, and one Slurm, not one for each worker. Jobs,
pods and editors are waited for, and most of that time no core works; those workers take them, beside the others.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.helpers.paths import ROOT

SHARED = {
    "bridge": ("server: Server", "law_reports:"),
    "rehearsals": ("host: Host,", 'usefixtures("shared")'),
    "examples": ("programs.example(", "import example,"),
    "slurm": ("slurm: Slurm", "login_node", "from tests.launch.slurm_launch import"),
}
"""A name of each process, or of the compiled examples, that several files share, and the words of a file that asks for it."""
CORES = 2
"""So many workers take what computes."""
WAITING = ("slurm", "tests/launch/", "tests/editors/")
"""How the names of pieces begin that mostly wait."""
LONG = (
    "bridge",
    "slurm",
    "examples",
    "tests/examples/test_examples_releases.py",
    "tests/cli/test_large.py",
    "tests/soak/test_soak.py",
    "tests/launch/test_kubeflow_life.py",
    "rehearsals",
    "tests/cost/test_memory_saved.py",
    "tests/solver/test_search.py",
    "tests/explainer/test_infeasible.py",
    "tests/explainer/test_explanations.py",
    "tests/queries/test_queries.py",
    "tests/calibrate/test_calibrate.py",
    "tests/diagnose/test_diagnose.py",
)
"""Begun first, in this order; then by the number of tests."""


class ByFile(LoadScopeScheduling):
    """A file is one piece of work, and so is each group of files that share a process."""

    def _split_scope(self, nodeid: str) -> str:
        return piece(nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Puts what this worker is for to the front; where none is left, it takes what is."""
        waits = node not in self.nodes[:CORES]
        wanted = next((name for name in self.workqueue if name.startswith(WAITING) == waits), None)
        if wanted is not None:
            self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)


@cache
def piece(file: str) -> str:
    """The name of the piece of work that a file belongs to."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return next((name for name, words in SHARED.items() if any(w in text for w in words)), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests in place, whole pieces of work together, whatever the order in which they were collected."""
    files = [item.nodeid.partition("::")[0] for item in items]
    size, place = Counter(map(piece, files)), {name: at for at, name in enumerate(LONG)}
    order = {name: (place.get(name, len(LONG)), -size[name], name) for name in size}
    keys = {file: (order[piece(file)], file) for file in files}
    items.sort(key=lambda item: keys[item.nodeid.partition("::")[0]])


def folders(worker: str) -> list[str]:
    """The folders of the tests, in an order of this worker's own: each compiles others first, and finds the rest."""
    found = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").iterdir() if any(p.glob("test_*.py")))
    first = int(worker.removeprefix("gw")) * len(found) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    return found[first:] + found[:first]
