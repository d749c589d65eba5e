"""Every command that reads what somebody else wrote ends with a diagnostic, whatever it is."""

import contextlib
import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.runs.tune import loop
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

pytestmark = pytest.mark.usefixtures("no_collector_callbacks")
ITERATION = (
    " [2026-11-23 10:00:00] iteration {i:8d}/ 9999999 | consumed samples: 1 | elapsed time per iteration (ms): 9.0 | "
    "learning rate: 1.0E-04 | global batch size: 64 | lm loss: 1.0E+00 |\n"
)
RECIPE = "def x_h100_16gpus_config():\n    cfg = f()\n{lines}    return cfg\n"
MEASURED = {"run": "qwen3_30b_a3b; h100 x 16; fit first", "tokens_per_s_per_gpu": 9000}
Make = Callable[[int], str]


def _log(size: int) -> str:
    return "".join(ITERATION.format(i=i) for i in range(1, size * 8))


def _recipe(size: int) -> str:
    several = "[f'{a}', f'{a}', f'{a}']"  # the dearest to parse
    return RECIPE.format(lines="".join(f"    cfg.model.a{i} = {several}\n" for i in range(size // 2)))


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without Bridge."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("moedsl.bridge.recipe_import.is_installed", lambda: False)
    return tmp_path


@pytest.mark.parametrize("words", ["lint --read-only", "diff --read-only a.py", "verify --read-only"])
def test_python_that_is_too_large(words: str, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parser is one call that no signal interrupts."""
    (alone / "a.py").write_text("a;" * foreign.MOST_PYTHON)
    assert main([*words.split(), "a.py"]) == 1
    said = capsys.readouterr().err
    assert "error[read.too_large]" in said and "a.py has more than 400 kB of Python; reading it was stopped" in said


DEEP = "[" * 200_000
ENTRY = '{"run": "qwen3_30b_a3b; h100 x 16; fit first", %s}'
HOSTILE: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "plan.json nested too deep": ("plan.json", DEEP, ("diff plan.json plan.json", "diff . .", "results a.log=.")),
    "lock nested too deep": (
        "moedsl.lock.json",
        DEEP,
        ("verify --read-only .", "lint --read-only . --gpu h100 --world 8"),
    ),
    "YAML nested too deep": ("run_config.yaml", "model: " + DEEP, ("import run_config.yaml --gpu h100 --world 8",)),
    "YAML in itself": ("a.yaml", "model:\n  _target_: x.Y\n  a: &a [*a]\n", ("import a.yaml --gpu h100 --world 8",)),
    "YAML of too long a number": ("a.yaml", f"model: {'9' * 5000}", ("import a.yaml --gpu h100 --world 8",)),
    "YAML of no date": ("a.yaml", "model: 2001-13-45", ("import a.yaml --gpu h100 --world 8",)),
    "measured, nested too deep": ("m.jsonl", DEEP, ("calibrate m.jsonl",)),
    "measured, no text": ("m.jsonl", '{"run": 5}', ("calibrate m.jsonl",)),
    "measured, no path": ("m.jsonl", '{"file": ["m.jsonl"]}', ("calibrate m.jsonl",)),
    "measured, a device": ("m.jsonl", '{"file": "/dev/zero"}', ("calibrate m.jsonl",)),
    "measured, a word": ("m.jsonl", ENTRY % '"tokens_per_s_per_gpu": "fast"', ("calibrate m.jsonl",)),
    "measured, a list": ("m.jsonl", ENTRY % '"step_time_s": [1]', ("calibrate m.jsonl",)),
    "measured, infinite": ("m.jsonl", ENTRY % '"tokens_per_s_per_gpu": 1e400', ("calibrate m.jsonl",)),
    "measured, negative": ("m.jsonl", ENTRY % '"step_time_s": -1', ("calibrate m.jsonl",)),
}


@pytest.mark.parametrize("made", rotation.some("made to break", [*HOSTILE], 3))
def test_a_file_made_to_break_a_reader(made: str, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, text, commands = HOSTILE[made]
    for other, content in (("plan.json", "{}"), ("recipe.py", _recipe(1)), ("a.log", _log(1))):
        (alone / other).write_text(content)
    (alone / name).write_text(text)
    for command in commands:
        capsys.readouterr()
        assert main(command.split()) == 1, command
        said = "".join(capsys.readouterr())
        assert said and "internal" not in said, command


NEWEST: Mapping[str, Sequence[str]] = table_of("cli", "foreign input: newest")
"""The input of the newest commands: missing, a pipe that nobody writes, half a character, a device, too large."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run file and its plan."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "run.moe").write_text("olmoe_7b; h100 x 2\n")
    with contextlib.chdir(folder):
        assert main(["compile", "run.moe"]) == 0
    return folder


@pytest.fixture
def newest(alone: Path, written: Path) -> Iterator[None]:
    """The files that they are given; what waits longer than half a minute fails."""
    for folder in ("piped", "broken"):
        (alone / folder).mkdir()
    for link, to in (("zero.json", "/dev/zero"), ("zero.txt", "/dev/zero"), ("loop", "loop")):
        (alone / link).symlink_to(to)
    for pipe in ("pipe", "pipe.json", "pipe.txt", "piped/plan.json", "piped/journal.json"):
        os.mkfifo(alone / pipe)
    for half in ("half", "broken/journal.json"):
        (alone / half).write_bytes(b'{"a": "\xc3')
    denied(alone / "denied")
    (alone / "piped" / "a.log").write_text(_log(1))
    shutil.copytree(written, alone, dirs_exist_ok=True)
    with (alone / "one_line.jsonl").open("wb") as file:
        file.truncate((1 << 26) + 1)
    before = signal.signal(signal.SIGALRM, _waits)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def denied(path: Path) -> None:
    """Make a file that nobody may read, not even root: one of the kernel's that are only written."""
    if os.geteuid():
        path.touch(0)
    else:
        path.symlink_to(next(Path("/sys/bus").glob("*/drivers_probe")))


def _waits(*_: object) -> None:
    raise TimeoutError("the command waits for its input")


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(("command", "given"), [(c, g) for c, each in NEWEST.items() for g in each])
def test_the_input_of_the_newest_commands(command: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), *given.split()]) == 1
    said = capsys.readouterr().err
    assert "error[" in said and "internal" not in said and "Traceback" not in said


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("folder", ["piped", "broken", "half"])
def test_a_folder_that_holds_no_tuning(folder: str) -> None:
    assert isinstance(loop.opened(Path(folder), "an experiment", "16 h100"), Diagnostic)


@pytest.mark.parametrize("command", ["diagnose", "results --seq 4k --gpus 16 --global-batch 64", "lint --read-only"])
def test_a_disk_that_fails_while_it_is_read(command: str, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a file system of a network does; the memory of a process at address 0 cannot be read."""
    for name in ("a.log", "a.py"):
        (alone / name).symlink_to("/proc/self/mem")
    assert main([*command.split(), "a.py" if "lint" in command else "a.log"]) == 1
    said = "".join(capsys.readouterr())
    assert "Input/output error" in said and "internal" not in said


@pytest.mark.parametrize("problem", [FileNotFoundError, PermissionError])
def test_a_log_that_goes_while_it_is_read(
    problem: type[OSError], alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a log does that is rotated: a file that was found is gone when it is opened."""
    (alone / "a.log").write_text(_log(1))
    reads = iter([True])

    def once(path: Path, *words: str) -> Any:
        if next(reads, False):
            return open(path, *words)
        (alone / "a.log").unlink(missing_ok=True)
        raise problem(errno.ENOENT if problem is FileNotFoundError else errno.EACCES, "gone", str(path))

    monkeypatch.setattr(Path, "open", once)
    assert main(["results", "--seq", "4k", "--gpus", "16", "--global-batch", "64", "a.log"]) == 1
    said = "".join(capsys.readouterr())
    assert "error: the system failed: gone: a.log" in said and "internal" not in said


@pytest.mark.parametrize("size", [0, 2000])
def test_a_disk_that_is_full(size: int, alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is half-written, and what was there stays, whether no file may grow or a disk ends in one."""
    (alone / "run.moe").write_text("olmoe_7b;h100 x 2\n" + "# a comment\n" * 400)
    (alone / "config.json").write_text((ROOT / "stdlib/hf/Qwen--Qwen3-30B-A3B/config.json").read_text())
    kept = {path: path.read_bytes() for path in alone.rglob("*")}
    commands = ("compile run.moe -o out", "report run.moe -o report.html", "fmt run.moe",
                "models add config.json --hf a/b --name mine -o mine.moe")  # fmt: skip
    for command in commands:
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1][1]))
            code = main(command.split())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
            signal.signal(signal.SIGXFSZ, before[0])
        said = capsys.readouterr().err
        if code == 0:  # it fits
            assert command.startswith("models") and size, said
            (alone / "mine.moe").unlink()
        assert code == 0 or ("error" in said and "File too large" in said and "internal" not in said), said
        assert {path: path.read_bytes() for path in alone.rglob("*") if path.is_file()} == kept, command


LONG_NAME = "a" * 5000
"""Longer than a path may be. The text of overrides may be as long."""


@pytest.mark.parametrize(
    "words",
    [
        ("plan", f"{LONG_NAME}.moe"), ("fmt", f"{LONG_NAME}.moe"), ("lint", f"{LONG_NAME}.py"), ("verify", LONG_NAME),
        ("results", LONG_NAME), ("results", f"{LONG_NAME}={LONG_NAME}"), ("models", "add", LONG_NAME),
        ("import", f"{LONG_NAME}.yaml", "--gpu", "h100", "--world", "8"), ("diff", LONG_NAME, f"{LONG_NAME}.json"),
        ("explain", LONG_NAME), ("calibrate", LONG_NAME), ("clusters", f"{LONG_NAME}.moe"), ("diagnose", LONG_NAME),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_name_that_is_too_long(words: Sequence[str], alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words]) == 1
    assert "internal" not in capsys.readouterr().err


def test_next_writes_through_no_link(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link to what does not exist yet would become a file elsewhere."""
    (alone / "link.moe").symlink_to("elsewhere.moe")
    assert main(["next", "a.log", "-o", "link.moe"]) == 1
    assert "overwrites nothing" in capsys.readouterr().err
    assert not (alone / "elsewhere.moe").exists()
