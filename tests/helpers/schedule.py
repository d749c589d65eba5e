"""Which worker of pytest-xdist takes which test file: the longest first, and the third and later ones for what waits.

A worker takes whole files, so that what a file computes once is computed once, and imports no file that another one
takes: what each worker collects is the names of the files. The files that ask the real Megatron Bridge are one piece of
work: there is one server, not one for each worker. Those of Slurm are two, with a Slurm each, of which one waits for jobs
that start again. Jobs, pods and editors are waited for, and most of that time no core works; those workers take them,
beside the others.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import syrupy
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.helpers import run_folder
from tests.helpers.paths import ROOT

SHARED = {
    "bridge": ("server: Server", "law_reports:"),
    "rehearsals": ("ranks: Ranks,", 'usefixtures("shared")'),
    "examples": ("programs.example(", "import example,"),
    "slurm chains": ("chained(task", 'run_text(8, "chain on")'),
    "slurm": ("slurm: Slurm", "login_node", "from tests.launch.slurm_launch import"),
}
"""A name of each process, or of the compiled examples, that several files share, and the words of a file that asks for it;
the first that fits is the file's."""
CORES = 2
"""So many workers take what computes."""
WAITING = ("slurm", "tests/launch/", "tests/editors/")
"""How the names of pieces begin that mostly wait."""
LONG = (
    "bridge",
    "slurm",
    "slurm chains",
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
"""Begun first, in this order; then by the length of their files."""


def run(test: pytest.Item, after: pytest.Item | None) -> None:
    """Run a test and tell the controller its result; a setup or teardown that passes says nothing, and each message costs
    both processes as much as a small test."""
    _note(os.environ["PYTEST_XDIST_WORKER"]).write_text(test.nodeid)
    for report in runtestprotocol(test, log=False, nextitem=after):
        if report.when == "call" or not report.passed:
            test.ihook.pytest_runtest_logreport(report=report)


def _note(worker: str) -> Path:
    """A file with the name of the test that a worker runs."""
    return run_folder.path() / f"now-{worker}"


def now(worker: str) -> str:
    """The name of the test that a worker runs, or ran when it died."""
    return _note(worker).read_text() if _note(worker).exists() else "no test"


class TestFile(pytest.File):
    """A file that is not imported where tests are collected."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Tests.from_parent(self, name="its tests")


class Tests(pytest.Item):
    """The tests of a file, collected by the worker that runs them."""

    def runtest(self) -> None:
        raise NotImplementedError("`run` takes its place")

    def run(self, nextitem: pytest.Item | None) -> None:
        """Import the file and run what pytest finds and selects in it, as the items of a session."""
        assert self.parent is not None
        session, files = self.session, self.session.items
        at = files.index(self)
        module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        tests = [*session.genitems(module)]
        hook = self.config.pluginmanager.subset_hook_caller("pytest_collection_modifyitems", [syrupy])
        hook(session=session, config=self.config, items=tests)
        if not tests:  # all were deselected; the file before left up what this one would have shared with it
            session._setupstate.teardown_exact(nextitem)  # pyright: ignore[reportPrivateUsage]
        for test, after in zip(tests, [*tests[1:], nextitem], strict=False):
            files[at] = test  # a report is of the item at the place that the controller has named
            self.ihook.pytest_runtest_protocol(item=test, nextitem=after)
            if session.shouldstop or session.shouldfail:
                break
        files[at] = self


def at_once(file: Path, config: pytest.Config) -> bool:
    """Whether every worker collects the tests of a file: single tests of it were asked for, or syrupy has to know of all
    that have a snapshot, to find those that have no test."""
    named = (ROOT / name for name, colons, _ in (a.partition("::") for a in config.args) if colons)
    return file in named or "SnapshotAssertion" in file.read_text(encoding="utf-8")


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

    def _reschedule(self, node: WorkerController) -> None:
        """A worker has to know one file more than it runs; another one may take the next."""
        if self._pending_of(self.assigned_work[node]) < 2 or not self.workqueue:
            super()._reschedule(node)


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def piece(file: str) -> str:
    """The name of the piece of work that a file belongs to."""
    return next((name for name, words in SHARED.items() if any(w in text_of(file) for w in words)), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts files in place, whole pieces of work together, whatever the order in which they were collected."""
    files = {item.nodeid.partition("::")[0] for item in items}
    size, place = dict.fromkeys(map(piece, files), 0), {name: at for at, name in enumerate(LONG)}
    for file in files:
        size[piece(file)] += len(text_of(file))
    order = {name: (place.get(name, len(LONG)), -size[name], name) for name in size}
    keys = {file: (order[piece(file)], file) for file in files}
    items.sort(key=lambda item: keys[item.nodeid.partition("::")[0]])
