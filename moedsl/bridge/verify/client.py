"""Ask the real Megatron Bridge about recipes: send cases to a host process and read its reports. Imports no heavy
modules.

The host (moedsl.bridge.verify.host) runs `load` and `work` of this module: Bridge is loaded once, and each case is
answered in a fork.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, evolve, field

from moedsl.bridge.verify import cases, environments, resolve, stand_ins
from moedsl.bridge.verify.cases import Case, Report, failed
from moedsl.bridge.verify.host import Host, HostEndedError, Start, Tell, popen
from moedsl.bridge.verify.resolve import Resolved
from moedsl.facts.releases import BY_VERSION, Release
from moedsl.support import resources

INSTALL = "pip install 'moedsl[bridge]' under Python 3.12, or run moedsl inside a NeMo container"
Progress = Callable[[Report], object]
T = TypeVar("T")


def is_installed() -> bool:
    """Whether this interpreter has Megatron Bridge; does not import it."""
    try:
        return importlib.util.find_spec("megatron.bridge") is not None
    except ModuleNotFoundError:
        return False


class Server(AbstractContextManager["Server"]):
    """A host process that answers cases; `with Server() as server: server.judge(cases)`.

    It has the installed Bridge, or the one in the environment made for `release`. The first answer waits for Bridge's
    import. At most `jobs` cases run at once, each in its own process.
    """

    def __init__(self, jobs: int = 2, release: Release | None = None, start: Start = popen) -> None:
        first = environments.folders(release) if release else []
        path = os.pathsep.join([*first, resources.child_environment()["PYTHONPATH"]])
        self._host = Host("moedsl.bridge.verify.client", {"PYTHONPATH": path}, start)
        self._jobs = jobs
        self._numbers = itertools.count()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the host and remove its temporary files."""
        self._host.close()

    @cached_property
    def first(self) -> Mapping[str, Any]:
        """The first message of the host; `ready` is False if Bridge could not be imported."""
        try:
            return self._host.first() or {}
        except HostEndedError as ended:
            return {"ready": False, "error": _last_words(ended)}

    def judge(self, wanted: Sequence[Case], progress: Progress | None = None) -> list[Report]:
        """Verify the cases, and return their reports in order; `progress` is called with each finished report."""

        def read(answer: Mapping[str, Any]) -> Report:
            report = Report.from_json(answer)
            if self.first["ready"]:
                stood_in = (*self.first["stood_in"], *report.stood_in)
                report = evolve(report, versions=self.first["versions"], stood_in=stood_in)
            if progress:
                progress(report)
            return report

        return self._ask(wanted, read)

    def resolve(self, wanted: Sequence[Case]) -> list[Resolved]:
        """Return the fields of each recipe as built and after Bridge's update, in order."""
        return self._ask([evolve(c, question="resolve") for c in wanted], Resolved.from_json)

    def _ask(self, wanted: Sequence[Case], read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        """Ask about cases, and convert each answer by `read`. A case whose process dies or is late gets a failed
        Report; the others go on."""
        if not self.first["ready"]:
            return [read(failed(c.file, "verify.import", self.first["error"], INSTALL).to_json()) for c in wanted]
        waiting, running, answers = deque(range(len(wanted))), dict[int, _Running](), dict[int, T]()
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    at, number = waiting.popleft(), next(self._numbers)
                    running[number] = _Running(at, wanted[at], self._host.folder / f"case{number}")
                    self._host.start([(number, running[number].task())])
                message = self._host.next(min(r.deadline for r in running.values()))
                if message is None:
                    late = [number for number, r in running.items() if r.deadline <= time.monotonic()]
                    for number in late:
                        running[number].deadline, running[number].is_late = float("inf"), True
                    self._host.end(late)
                for number, status in (message or {}).get("ended", ()):
                    if one := running.pop(number, None):  # None: a case of an earlier call that `progress` interrupted
                        answers[one.at] = read(one.answer(status))
        except HostEndedError as ended:
            for at in set(range(len(wanted))) - answers.keys():
                answers[at] = read(failed(wanted[at].file, "verify.crash", _last_words(ended)).to_json())
        finally:
            self._host.end(running)
        return [answers[at] for at in range(len(wanted))]


@define
class _Running:
    """A case that runs in a fork; `at` is its index among the requested cases."""

    at: int
    case: Case
    folder: Path
    """The folder with the fork's log and answer."""
    deadline: float = field(init=False)
    is_late: bool = False

    def task(self) -> Mapping[str, Any]:
        """Make the folder, start the clock and describe the task to `work`."""
        self.folder.mkdir()
        self.deadline = time.monotonic() + self.case.seconds
        return {"case": self.case.to_json(), "log": str(self.folder / "log"), "answer": str(self.folder / "answer")}

    def answer(self, status: int) -> Mapping[str, Any]:
        """Read the answer of a fork that ended with this exit status, negative for a signal, and remove its folder."""
        log, answer = self.folder / "log", self.folder / "answer"
        if self.is_late and status == -signal.SIGKILL:
            found = failed(self.case.file, "verify.timeout", "no answer in time; the process was ended").to_json()
        elif status or not answer.exists():
            name = f"{signal.Signals(-status).name} ended the process" if status < 0 else ""
            how = name or f"the process ended with exit code {status}"
            output = log.read_bytes()[-3000:].decode(errors="replace").strip() if log.exists() else ""
            text = f"{how} before it answered, perhaps by the recipe itself: {output}"
            found = failed(self.case.file, "verify.crash", text).to_json()
        else:
            found = json.loads(answer.read_text(encoding="utf-8"))
        shutil.rmtree(self.folder, ignore_errors=True)
        return found


def _last_words(ended: HostEndedError) -> str:
    return f"the verifying process ended: {ended.log[-3000:].strip()}"


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
    # group cases by release; without a plan, the installed Bridge checks the recipe
    by_release: dict[str, list[Case]] = {}
    for c in wanted:
        by_release.setdefault(c.plan.target.bridge if c.plan else "", []).append(c)
    answers: dict[int, Report] = {}
    for bridge, own in by_release.items():
        release = BY_VERSION.get(bridge)
        if release is not None and not environments.is_ready(release):
            text = f"the recipe is for Megatron Bridge {release.bridge}, which is not here"
            help = f"`moedsl targets add {release.minor}` fetches it once, in addition to the installed one"
            if release.documents:
                text = f"no wheel of Megatron Bridge {release.bridge} is installed: nothing was asked; "
                text += "its fields are those of its documents"
                help = (
                    f"{help}, as soon as a package index has it; `verify --read-only` compares the recipe with its plan"
                )
            answers |= {id(c): failed(c.file, "verify.no_target", text, help) for c in own}
        else:
            with Server(min(jobs, len(own)), release) as server:
                answers |= zip(map(id, own), server.judge(own, progress), strict=True)
    return [c if isinstance(c, Report) else answers[id(c)] for c in read]


PACKAGES = ("megatron-bridge", "megatron-core", "torch", "transformers", "transformer-engine")
USED = (
    "megatron.bridge",
    "megatron.bridge.models.model_provider",
    "megatron.bridge.training.config",
    "megatron.bridge.recipes",
    "megatron.bridge.training.initialize",
    "moedsl.bridge.verify.resolve",
    "moedsl.bridge.verify.worker",
)
"""The modules that questions import, loaded before any fork."""


def load() -> dict[str, Any]:
    """Import Bridge and what its questions use; returns {"seconds", "versions", "stood_in"}."""
    start = time.monotonic()
    engine = stand_ins.install_engine()
    stand_ins.install_mamba()
    stand_ins.install_sparse_attention()
    for name in USED:
        import_module(name)
    import torch

    torch.set_num_threads(1)
    environments.stay_offline(Path(os.environ["HF_HUB_CACHE"]))
    stood_in: list[str] = []
    if engine != "real":
        stood_in.append(f"transformer_engine_torch ({engine}: classes register parameters, none computes)")
    if not torch.cuda.is_available():
        stood_in.append("the GPU (torch.cuda answers as the target), NCCL (torch's fake process group)")
    versions = dict.fromkeys(PACKAGES, "absent")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {"seconds": round(time.monotonic() - start, 2), "versions": versions, "stood_in": stood_in}


def work(task: Mapping[str, Any], tell: Tell) -> None:
    """Answer one case: write its report as JSON to the file `task["answer"]`."""
    from moedsl.bridge.verify import worker

    case = Case.from_json(task["case"])
    found = resolve.resolve(case) if case.question == "resolve" else worker.judge(case, os.environ["HF_HUB_CACHE"])
    Path(task["answer"]).write_text(json.dumps(found.to_json(), default=str), encoding="utf-8")
