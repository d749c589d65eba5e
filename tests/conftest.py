"""What several test files share."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import core, settings

from moedsl import compiler
from moedsl.bridge.verify.cases import Report
from moedsl.bridge.verify.client import Server
from moedsl.rehearse.launch import Outcome, Ranks
from moedsl.rehearse.prepare import Prepared
from tests.helpers import compile_cache, rotation, run_folder, warm

compiler.advance = compile_cache.advance
settings.register_profile("drawn", max_examples=rotation.examples(100), deadline=None, print_blob=True)
settings.load_profile("drawn")

for heard, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(heard) is signal.SIG_IGN:  # a shell's job in the background, or nohup: tests send them
        signal.signal(heard, handler)

OLD = sys.version_info < (3, 12)
"""The environment of Python 3.11 is the core's alone; each of its tests also runs under 3.12."""
collect_ignore = (
    [
        "automation",
        "bench",
        "calibrate/test_measure_gpu.py",
        "cli/test_ends.py",
        "cli/test_imports.py",
        "docs/test_site.py",
        "editors",
        "launch",
        "lsp",
        "rehearse/test_rehearsal.py",
        "report/test_browser.py",
        "schema/test_axes.py",
        "serve",
        "soak",
        "solver/test_cpsat.py",
    ]
    if OLD
    else []
)


def pytest_configure(config: pytest.Config) -> None:
    if run_folder.VARIABLE not in os.environ:  # else this is a worker of a run that has one
        lock = run_folder.make()
        config.add_cleanup(lambda: run_folder.remove(lock))
        os.environ["XDG_STATE_HOME"] = str(run_folder.path() / "state")  # no test adds to the user's list of homes
    if core.global_force_seed is None:  # else --hypothesis-seed says it
        core.global_force_seed = rotation.hypothesis_seed()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    from tests.helpers import schedule

    if schedule.at_once(module_path, parent.config):
        return None
    return schedule.TestFile.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    from tests.helpers import schedule

    files = [item for item in items if isinstance(item, schedule.Tests)]
    items[:] = [item for item in items if item not in files]  # what selects tests looks at them when they are collected
    if OLD:  # `make test`; a run of one process takes every case that it is asked for
        taken = rotation.a_few_of_each([item.nodeid for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in taken])
        items[:] = [item for item in items if item.nodeid in taken]
    yield
    if files:
        items += files
        schedule.longest_first(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    from tests.helpers import schedule

    if isinstance(item, schedule.Tests):
        item.run(nextitem)
    else:
        schedule.run(item, nextitem)
    return True


@pytest.hookimpl(tryfirst=True)  # the loop of a worker of pytest-xdist takes the place of those after it
def pytest_runtestloop() -> None:
    gc.freeze()  # what all tests import: no collection has to walk it again
    gc.set_threshold(20_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    if config.getvalue("dist") != "loadfile":
        return None  # another way was asked for
    from tests.helpers import schedule

    config.option.loadscopereorder = False
    return schedule.ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker that dies ends the run; pytest-xdist would give what was left to nobody, and wait."""
    if error:
        from tests.helpers import schedule

        worker = node.gateway.id
        pytest.exit(f"worker {worker} died in {schedule.now(worker)}", returncode=3)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    took = (
        "all cases" if rotation.ALL else f"a part, MOEDSL_SEED={rotation.seed()} draws it again, make test-all runs all"
    )
    terminalreporter.write_line(f"wide tests: {took}")
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"soak: {text}")


@pytest.fixture
def compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that replaces something that compiles: it gets no result of another test and leaves none."""
    monkeypatch.setattr(compile_cache, "on", False)


@pytest.fixture
def no_collector_callbacks() -> Iterator[None]:
    """The collector calls nobody during a test: an exception in such a callback, as Hypothesis has one, is lost."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The real Megatron Bridge, imported once for all tests; without it every test that asks fails."""
    with warm.server(jobs=2) as process:
        assert process.first["ready"], process.first["error"]
        yield process


@pytest.fixture(scope="session")
def law_reports(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Bridge's word on the cases of the laws, asked once for all files."""
    from tests.helpers.law_recipes import asked
    from tests.helpers.rule_cases import ASKED, EVERY

    folder = tmp_path_factory.mktemp("rules")
    wanted = [asked(folder / str(i), EVERY[name]) for i, name in enumerate(ASKED)]
    return dict(zip(ASKED, server.judge(wanted), strict=True))


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Bridge imported once for all rehearsals."""
    with warm.ranks() as process:
        yield process


class Shared(Ranks):
    """The ranks of the tests where the command would start its own."""

    current: Ranks

    def __init__(self) -> None:
        pass

    def run(self, prepared: Prepared, timeout: float, progress: Callable[[str], object] = print) -> Outcome:
        return self.current.run(prepared, timeout, progress)

    def close(self) -> None:
        pass


@pytest.fixture
def shared(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    from moedsl.cli.commands import verify

    Shared.current = ranks
    monkeypatch.setattr(verify, "Ranks", Shared)
