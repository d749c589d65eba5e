"""The process that is forked for each task: every end of a fork, or of itself, is told at once. Without Bridge."""

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moedsl.bridge.verify import cases, client, environments, stand_ins
from moedsl.bridge.verify.cases import Change, Mismatch, Refusal, Report, render
from moedsl.bridge.verify.client import Server, verify
from moedsl.bridge.verify.configs import STAND_IN, Trace, defaults_of, watching, writer
from moedsl.bridge.verify.host import Host, HostEndedError
from moedsl.rehearse import launch
from moedsl.rehearse.launch import Failure, Ranks
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

TASKS = "tests.helpers.small_tasks"
FOREVER = "import signal; signal.pause()"
CHILD = "import os, signal\nif not os.fork(): signal.pause()\n"
"""It leaves a process that holds every pipe open."""


def small(**environment: str) -> Host:
    return Host(TASKS, {"PYTHONPATH": str(ROOT), **environment})


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with small() as process:
        yield process


def ends(host: Host, codes: Mapping[str, str], folder: Path) -> dict[str, int]:
    """How each task ends."""
    host.start([(i, {"code": code, "log": str(folder / f"{i}.log")}) for i, code in enumerate(codes.values())])
    found: dict[int, int] = {}
    while len(found) < len(codes):
        message = host.next()
        assert message is not None
        found |= dict(message.get("ended", ()))
    return {name: found[i] for i, name in enumerate(codes)}


def test_a_task_that_dies_is_told_and_the_others_go_on(host: Host, tmp_path: Path) -> None:
    codes = {
        "works": "pass",
        "exits": "import os; os._exit(3)",
        "aborts": "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
        "crashes": "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)",
        "raises": "raise ValueError('a reason')",
        "leaves a process": f"{CHILD}os._exit(4)",
        "closes its pipes and raises": "import os; os.closerange(3, 100); raise ValueError",
    }
    status = {"works": 0, "exits": 3, "aborts": -6, "crashes": -11, "raises": 1, "leaves a process": 4}
    assert ends(host, codes, tmp_path) == {**status, "closes its pipes and raises": 1}
    assert (tmp_path / "4.log").read_text().endswith("ValueError: a reason\n")


def test_a_deadline_is_the_parents_and_ends_one_task(host: Host, tmp_path: Path) -> None:
    host.start([(0, {"code": CHILD + FOREVER, "log": str(tmp_path / "log")})])
    assert host.next(deadline=0.0) is None
    host.end([0, 7])
    assert host.next() == {"ended": [[0, -9]]}


def test_a_task_tells_something_before_it_ends(host: Host, tmp_path: Path) -> None:
    host.start([(5, {"code": "tell('half'); 1 / 0", "log": str(tmp_path / "log")})])
    assert [host.next() for _ in range(3)] == [
        {"id": 5, "told": "half"},
        {"id": 5, "raised": True},
        {"ended": [[5, 1]]},
    ]


@pytest.mark.parametrize("load", ["import os; os._exit(7)", f"{CHILD}print('last words', flush=True); os._exit(7)"])
def test_a_host_that_dies_is_an_error(load: str) -> None:
    with small(LOAD=load) as host, pytest.raises(HostEndedError) as ended:
        host.next()
    assert ended.value.status == 7 and ended.value.log == ("last words\n" if "last" in load else "")


def test_a_host_that_cannot_import_says_why() -> None:
    with small(LOAD="import nothing_of_this_name") as host:
        first = host.first()
        assert first is not None and not first["ready"] and "nothing_of_this_name" in first["error"]


@pytest.mark.parametrize("module", ["tests.helpers.small_tasks", "tests.helpers.paths"])
def test_a_server_whose_host_dies_has_failed_reports(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD", "import os; os._exit(7)")
    with Server() as server:
        server._host.close()
        server._host = Host(module, {"PYTHONPATH": str(ROOT)})
        case: Any = SimpleNamespace(file="recipe.py")
        (report,) = server.judge([case])
    assert (report.verdict, report.id) == ("failed", "verify.import")


@pytest.mark.parametrize(("raised", "status"), [([1, 0], 1), ([0], -9)], ids=["raises", "killed"])
def test_of_ranks_that_have_ended_the_first_that_failed_is_named(
    raised: list[int], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rank 0 fails because rank 1 is gone; on a busy machine both have ended when the host looks."""
    monkeypatch.setattr(launch, "tail", lambda *_: ())
    messages = [*({"id": rank, "raised": True} for rank in raised), {"ended": [[0, 1], [1, status]]}]
    host: Any = SimpleNamespace(
        folder=tmp_path, start=lambda _: None, end=lambda _: None, next=lambda _: messages.pop(0)
    )
    prepared: Any = SimpleNamespace(folder=tmp_path, rehearsal=SimpleNamespace(ranks=2), iterations=1)
    assert Ranks()._train(host, prepared, 0.0, print) == Failure("rank", 1, status, ())


# What is asked for but is no recipe: a report with a way out, in whichever Python, Bridge or not.


@pytest.mark.parametrize(("text", "message"), table_of("verify", "host: no recipe"))
def test_a_file_that_is_no_recipe(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(text)
    (report,) = verify([tmp_path])
    assert (report.verdict, report.id) == ("failed", "verify.input")
    assert message in report.message


@pytest.mark.parametrize("name", ["", ":a_16gpu_h100_bf16_config"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.py")
    for target in (f"{tmp_path / 'recipe.py'}{name}", "/dev/zero"):
        read = cases.read(target, "h100", 16)
        assert isinstance(read, Report) and read.message == "not a regular file"


def test_missing_files_and_broken_plans(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("def x_16gpu_h100_bf16_config():\n    pass\n")
    (tmp_path / "plan.json").write_text("{")
    reports = verify([tmp_path, tmp_path / "nothing", tmp_path.parent])
    assert [r.id for r in reports] == ["verify.input"] * 3
    assert "is not a plan" in reports[0].message


@pytest.mark.parametrize("name", ["qwen_pretrain_256gpu_gb200_bf16_config", "ours_256gpu_gb200", "256gpu_gb200_run"])
def test_gpu_and_world_are_read_from_the_functions_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(f"def recipe_{name}():\n    pass\n")
    case = cases.read(str(tmp_path))
    assert isinstance(case, cases.Case)
    assert (case.world, case.device.name, case.plan) == (256, "NVIDIA GB200", None)
    assert cases.Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_without_bridge_the_answer_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_installed", lambda: False)
    (tmp_path / "recipe.py").write_text("def qwen_pretrain_256gpu_gb200_bf16_config():\n    pass\n")
    (report,) = verify([tmp_path])
    assert report.id == "verify.no_bridge" and "moedsl[bridge]" in report.help
    assert "moedsl[bridge]" in render(report)


def test_a_report_survives_json() -> None:
    refusals, mismatches = (Refusal("a.py:1", "ValueError", "no", "update"),), (Mismatch("model.x", 1, 2),)
    report = Report("f", "refused", refusals, mismatches, stages=({"stage": 0},), warnings=("w",))
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_the_package_imports_nothing_heavy() -> None:
    code = "import sys, moedsl.bridge.verify; print([m for m in ('torch', 'transformers', 'megatron') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_hub_cache_prefers_what_the_user_has(tmp_path: Path) -> None:
    mine = tmp_path / "cache" / "models--org--mine" / "snapshots" / "abc"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text('{"of": "mine"}')
    for name in ("org--mine", "org--theirs"):
        (tmp_path / "shipped" / name).mkdir(parents=True)
        (tmp_path / "shipped" / name / "config.json").write_text('{"of": "stdlib"}')
    assert environments.build_hub(tmp_path / "home", tmp_path / "shipped", tmp_path / "cache") == ["org/theirs"]
    folder = tmp_path / "home" / "hub"
    assert "mine" in (folder / "models--org--mine" / "snapshots" / "abc" / "config.json").read_text()
    revision = (folder / "models--org--theirs" / "refs" / "main").read_text()
    assert (folder / "models--org--theirs" / "snapshots" / revision / "config.json").exists()


# `verify` says of a value that Bridge replaced whose it was and which line put another in its place.

CHANGES = (
    Change("model.b", 1, 2, "default", "megatron/bridge/x.py:3"),
    Change("model.a", "x", "y", "plan", "megatron/core/z.py:4"),
    Change("model.c", True, False),
)


@dataclasses.dataclass
class Part:
    size: int = 1
    kind: str = "a"


@dataclasses.dataclass
class Whole:
    part: Part = dataclasses.field(default_factory=Part)
    other: Part = dataclasses.field(default_factory=Part)
    name: str = "whole"


def test_the_plans_own_stand_first_and_each_line_says_whose_it_was() -> None:
    lines = render(Report("recipe.py", "accepted", changed=CHANGES)).splitlines()
    assert lines[1] == "  replaced by Bridge's runtime_config_update, which pretrain() calls first:"
    assert lines[2] == "    model.a: x (as the plan wrote it) -> y (megatron/core/z.py:4)"
    assert lines[3] == "    model.c: True (as the recipe has it) -> False"
    assert lines[4] == "    model.b: 1 (a default) -> 2 (megatron/bridge/x.py:3)"


def test_nothing_replaced_says_nothing() -> None:
    assert "replaced" not in render(Report("recipe.py", "accepted"))


def test_the_json_keeps_who_it_was() -> None:
    report = Report("recipe.py", "accepted", changed=CHANGES)
    assert Report.from_json(report.to_json()) == report


def test_the_last_line_that_assigns_is_kept() -> None:
    whole, trace = Whole(), Trace()
    with watching(trace, whole):
        whole.part.size = 2
        whole.part.size = 3
        whole.other = Part(5)  # a section made anew stands for its fields
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()

    def line(field: str) -> str:
        return lines[int(writer(trace.places(whole), field).rpartition(":")[2]) - 1].strip()

    assert line("part.size") == "whole.part.size = 3"
    assert line("other.size").startswith("whole.other = Part(5)")
    assert writer(trace.places(whole), "part.kind") == writer(trace.places(whole), "name") == ""


def test_what_stands_in_for_a_package_is_named_as_such() -> None:
    whole, trace = Whole(), Trace()
    with watching(trace, whole):
        exec(compile("whole.part.size = 2", str(Path(defaults_of.__code__.co_filename).with_name("te.py")), "exec"))
    assert writer(trace.places(whole), "part.size") == STAND_IN


def test_defaults_are_those_of_the_classes() -> None:
    assert defaults_of(Whole(Part(7))) == {"part.size": 1, "part.kind": "a", "other.size": 1, "other.kind": "a",
                                           "name": "whole"}  # fmt: skip


# Where Transformer Engine's compiled extension is found.

FILE = "transformer_engine_torch.cpython-312-x86_64-linux-gnu.so"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Transformer Engine without an extension, first in the path."""
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return package


@pytest.mark.parametrize("folder", ["..", ".", "wheel_lib"])
def test_each_kind_of_installation(engine: Path, folder: str) -> None:
    """An editable install, NVIDIA's containers, and PyPI, whose file find_spec() does not see."""
    file = engine / folder / FILE
    file.parent.mkdir(exist_ok=True)
    file.touch()
    found = stand_ins.compiled()
    assert found is not None and found.samefile(file)


@pytest.mark.usefixtures("engine")
def test_the_python_part_alone_rehearses_on_the_cpu() -> None:
    assert stand_ins.compiled() is None
    assert launch.available() == 0
