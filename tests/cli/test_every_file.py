"""Every command that takes a file ends with a diagnostic, whatever that file is: endless, huge, unreadable."""

import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from moedsl.cli.arguments import COMMANDS, Command
from moedsl.cli.main import main
from tests.cli.test_foreign_input import denied
from tests.helpers import rotation
from tests.helpers.tables import table_of

pytestmark = pytest.mark.usefixtures("no_collector_callbacks")
RUN = "olmoe_7b; h100 x 2\n"
NONE = {
    "cancel", "completion", "hardware", "jobs", "logs", "lsp", "mcp", "models", "schema", "serve", "targets", "targets add",
}  # fmt: skip
"""The commands that read no file which they are given."""
READ: Mapping[str, tuple[str, ...]] = table_of("cli", "every file: read")
"""What follows each command; F.x is the file, a.log a log, out a compiled folder."""
CASES = [(n, w) for n, several in READ.items() for w in several if "yaml" not in w or find_spec("yaml")]
SIZE = (300 if rotation.ALL else 8) << 20
WHOLE = (".json", ".jsonl", ".txt", ".yaml")
"""The kinds of files that are read whole."""
ANSWERED = {
    "diagnose": "no known symptoms", "diff": "0 fields compared", "results": "no run has a measurement",
    "watch": "no iteration line yet",
}  # fmt: skip
"""What the commands say that look for something in any text."""


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SIZE)


def _line(path: Path) -> None:
    """One line of letters, which no reader takes for binary."""
    with path.open("wb") as file:
        for _ in range(SIZE >> 20 if path.suffix in WHOLE else 1):
            file.write(b"a" * (1 << 20))


def _binary(path: Path) -> None:
    path.write_bytes(random.Random(17).randbytes(1 << 14))


KINDS: Mapping[str, Callable[[Path], object]] = {
    "a line of NUL": _huge,
    "a line of letters": _line,
    "binary": _binary,
    "a pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": denied,
    "a directory": Path.mkdir,
    "gone": lambda path: path.symlink_to("gone"),
    "a loop": lambda path: path.symlink_to(path.name),
}


def _leaves(commands: Mapping[str, Command], before: str = "") -> Iterator[str]:
    for name, command in commands.items():
        if command.arguments and not (command.actions and not before and name in ("data", "weights")):
            yield before + name
        yield from _leaves(command.actions, f"{before}{name} ")


def test_every_command_is_here() -> None:
    assert {*_leaves(COMMANDS)} == {*READ, *NONE}


class Waits(BaseException):
    """The command waits for its input: no error of a file."""


def _waits(*_: object) -> None:
    raise Waits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other files."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "run.moe").write_text(RUN)
    (folder / "a.log").write_text("a line of a log\n")
    assert main(["compile", str(folder / "run.moe"), "-o", str(folder / "out")]) == 0
    return folder


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; what waits longer than a minute fails."""
    monkeypatch.chdir(folder)
    before = signal.signal(signal.SIGALRM, _waits)
    signal.alarm(60)
    yield folder
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    for file in folder.glob("F*"):
        _remove(file)


@pytest.mark.parametrize(("name", "words"), CASES, ids=lambda text: text.replace(" ", "_"))
def test_a_file_of_any_kind(
    name: str, words: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moedsl.bridge.recipe_import.is_installed", lambda: False)
    for kind in rotation.some(f"{name} {words}", [*KINDS], 1):
        given = {w for part in words.split() for w in part.split("=") if w.partition(".")[0] == "F"}
        for file in map(Path, given):
            KINDS[kind](files / file)
        capsys.readouterr()
        code = main([*name.split(), *words.split()])
        out, said = capsys.readouterr()
        assert "internal" not in said and "Traceback" not in said, (kind, said)
        answered = name in ANSWERED and ANSWERED[name] in out
        assert answered or (code == 1 and ("error" in said + out or "failed" in out)), (kind, code, out, said)
        for file in given:
            _remove(files / file)  # the next kind takes the name


@pytest.mark.parametrize(
    ("name", "words"), rotation.some("long names", CASES, 12), ids=lambda text: text.replace(" ", "_")
)
def test_a_name_that_no_file_can_have(
    name: str, words: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moedsl.bridge.recipe_import.is_installed", lambda: False)
    code = main([*name.split(), *re.sub(r"\bF\b", "f" * 300, words).split()])
    said = "".join(capsys.readouterr())
    assert code == 1 and "internal" not in said and "Traceback" not in said, said


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
