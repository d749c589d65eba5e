"""Start the warm process from the parent, send it cases and return reports. Imports only light modules."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from attrs import evolve

from moedsl.bridge.verify import case as cases
from moedsl.bridge.verify import environments, hub
from moedsl.bridge.verify import resolve as resolved
from moedsl.bridge.verify.case import Case
from moedsl.bridge.verify.report import Report, failed, from_json
from moedsl.bridge.verify.resolve import Resolved
from moedsl.facts.releases import BY_VERSION, Release
from moedsl.support import child_python
from moedsl.support.resources import stdlib_dir

INSTALL = "pip install 'moedsl[bridge]' under Python 3.12, or run moedsl inside a NeMo container"
Progress = Callable[[Report], object]
T = TypeVar("T")


def is_installed() -> bool:
    """Whether this interpreter has Megatron Bridge; imports nothing of it."""
    try:
        return importlib.util.find_spec("megatron.bridge") is not None
    except ModuleNotFoundError:
        return False


class Server:
    """One warm process; `with Server() as server: server.judge(cases)`. The start takes as long as importing Bridge.

    It has the installed Bridge, or that of a release whose environment is made.
    """

    def __init__(self, jobs: int = 2, release: Release | None = None) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="moedsl-hf-")
        home = Path(self._home.name)
        hub.build(home, stdlib_dir() / "hf", hub.user_cache())
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed in close()
        self._process = self._start(jobs, home, release)
        self._first: dict[str, Any] | None = None

    def _start(self, jobs: int, home: Path, release: Release | None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "moedsl.bridge.verify.server", str(jobs), str(home / "hub")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(home, release),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def first(self) -> dict[str, Any]:
        """The first message of the process; `ready` is False if Bridge could not be imported."""
        if self._first is None:
            self._first = self._read() or {"ready": False, "error": self._last_words()}
        return self._first

    def judge(self, wanted: Sequence[Case], progress: Progress | None = None) -> list[Report]:
        """Judge each case in order; `progress` is called for each finished one."""

        def read(answer: Mapping[str, Any]) -> Report:
            report = self._complete(from_json(answer))
            if progress:
                progress(report)
            return report

        return self._ask(wanted, read)

    def resolve(self, wanted: Sequence[Case]) -> list[Resolved]:
        """Resolve each recipe as built and after Bridge's update, in order."""
        return self._ask([evolve(c, question="resolve") for c in wanted], resolved.from_json)

    def _ask(self, wanted: Sequence[Case], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        """Ask cases; a failed Report, as JSON, replaces a missing answer."""
        if not self.first["ready"]:
            return [read(failed(c.file, "verify.import", self.first["error"], INSTALL).to_json()) for c in wanted]
        answers: dict[int, T] = {}
        sender = threading.Thread(target=self._send, args=(wanted,), daemon=True)  # a full pipe stops who only writes
        sender.start()
        while len(answers) < len(wanted) and (answer := self._read()) is not None:
            answers[answer["id"]] = read(answer["report"])
        sender.join()
        for i in range(len(wanted)):
            if i not in answers:
                answers[i] = read(failed(wanted[i].file, "verify.crash", self._last_words()).to_json())
        return [answers[i] for i in range(len(wanted))]

    def close(self) -> None:
        """End the process and remove its temporary files."""
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):  # it may have ended already
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._home.cleanup()

    def _send(self, wanted: Sequence[Case]) -> None:
        """Send every case; a process that ended takes none."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            for i, case in enumerate(wanted):
                print(json.dumps({"id": i, "case": case.to_json()}), file=self._process.stdin)
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def _complete(self, report: Report) -> Report:
        if not self.first["ready"]:
            return report
        common = {"versions": self.first["versions"], "stood_in": (*self.first["stood_in"], *report.stood_in)}
        return evolve(report, **common)

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 3000))
        return f"the verifying process ended: {self._log.read().decode(errors='replace').strip()}"


def _environment(home: Path, release: Release | None) -> dict[str, str]:
    quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    own = child_python.environment() | hub.environment(home) | quiet
    first = environments.folders(release) if release else []
    return own | {"PYTHONPATH": os.pathsep.join([*first, own["PYTHONPATH"]])}


def verify(
    paths: Sequence[Path | str],
    jobs: int = 2,
    progress: Progress | None = None,
    gpu: str | None = None,
    world: int | None = None,
) -> list[Report]:
    """Ask the real Megatron Bridge about recipes, `jobs` at a time; returns one report for each path, in order.

    A path is a folder of `moedsl compile`, a recipe.py (with `:function` if it has several), or NVIDIA's own
    `module:function`. `gpu` and `world` describe recipes without a plan. Mistakes do not raise: they are failed
    reports.
    """
    read = [cases.read(str(path), gpu, world) for path in paths]
    wanted = [c for c in read if isinstance(c, Case)]
    if wanted and not is_installed():
        message = f"Megatron Bridge is not installed for {sys.executable} (Python {sys.version.split()[0]})"
        return [c if isinstance(c, Report) else failed(c.file, "verify.no_bridge", message, INSTALL) for c in read]
    answers: dict[int, Report] = {}
    for bridge in dict.fromkeys(map(_target, wanted)):
        own = [c for c in wanted if _target(c) == bridge]
        answers |= zip(map(id, own), _judged(own, BY_VERSION.get(bridge), jobs, progress), strict=True)
    return [c if isinstance(c, Report) else answers[id(c)] for c in read]


def _target(case: Case) -> str:
    """The release that a plan is for; empty for a recipe without a plan, which the installed one judges."""
    return case.plan.target.bridge if case.plan else ""


def _judged(wanted: list[Case], release: Release | None, jobs: int, progress: Progress | None) -> list[Report]:
    """Ask one release of Bridge, if it is here."""
    if release is not None and not environments.is_ready(release):
        text = f"the recipe is for Megatron Bridge {release.bridge}, which is not here"
        help = f"`moedsl targets add {release.minor}` fetches it once, in addition to the installed one"
        return [failed(c.file, "verify.no_target", text, help) for c in wanted]
    with Server(min(jobs, len(wanted)), release) as server:
        return server.judge(wanted, progress)
