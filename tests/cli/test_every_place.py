"""Every command that writes where it is told ends with a diagnostic or in that place: the target of a link does not change."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

from moedsl.bridge import recipe_import
from moedsl.bridge.recipe_import import Imported
from moedsl.cli.arguments import COMMANDS, Command
from moedsl.cli.commands import tune, verify
from moedsl.cli.main import main
from moedsl.rehearse.launch import Failure, Outcome
from tests.helpers import rotation
from tests.helpers.paths import ROOT

RUN = "olmoe_7b; h100 x 2\n"
CLUSTER = 'cluster c { executor slurm; hardware h100; account a; partition p; container "image" }\n'
CONFIG = ROOT / "stdlib" / "hf" / "allenai--OLMoE-1B-7B-0125" / "config.json"
MEASURED = {"run": "qwen3_30b_a3b; h100 x 16; fit first", "peak_gb": 60}
STEPS = "".join(
    f" [t] iteration {n:8d}/      40 | elapsed time per iteration (ms): {90000 + n % 3:.1f} | global batch size: 1024 |"
    " lm loss: 1.1E+01 | grad norm: 2.0 |\n" for n in range(1, 41)
)  # fmt: skip
WRITES: Mapping[str, tuple[str, ...]] = {
    "calibrate --output": ("a.jsonl -o P",),
    "compile --output": ("run.moe -o P", "cluster.moe -o P --emit launch"),
    "fmt files": ("P",),
    "import --output": ("recipe.py -o P",),
    "init file": ("P --model olmoe_7b --machines h100x2 --task pretrain",),
    "models add --output": (f"{CONFIG} --hf a/b --name mine -o P",),
    "next --output": ("a.log=plan/plan.json --stop 0 -o P",),
    "rehearse --output": ("run.moe --cpu -o P",),
    "rehearse --profile": ("run.moe --cpu --profile P",),
    "report --output": ("run.moe -o P",),
    "results --measured": ("a.log=plan/plan.json --measured P",),
    "tune --output": ("cluster.moe --budget 1 --no-preflight -o P",),
    "watch --page": ("--once a.log=plan/plan.json --page P",),
}
"""The arguments by which a command writes, and what it is given; P is the place."""
READS = {
    "check files", "clusters file", "compile file", "data stats file", "diagnose --run", "gap --run", "init --data",
    "lint files", "memory --run", "next --run", "plan file", "profile --run", "rehearse file", "report --memory",
    "report --profile", "report file", "run file", "tune file", "upgrade target", "verify files", "weights export file",
    "weights import file", "what-if file",
}  # fmt: skip
IN_THE_JOB = {"weights export --from", "weights export --to"}
"""The other arguments that name files or folders: read, or used by a job."""
THROUGH = {"fmt files"}
"""What is meant to write through a link: its target is the file to format."""
INSIDE = {"compile --output", "rehearse --output", "rehearse --profile"}
"""What writes into a folder that exists, where its files meet none."""
CASES = [(name, words) for name, several in WRITES.items() for words in several]


def _paths(commands: Mapping[str, Command], before: str = "") -> Iterator[str]:
    """Each argument that names a file or a folder."""
    for name, command in commands.items():
        for words, options in command.arguments:
            if options.get("metavar") in ("FILE", "DIR", "FOLDER"):
                yield f"{before}{name} {words[-1]}"
        yield from _paths(command.actions, f"{before}{name} ")


def test_every_argument_is_here() -> None:
    assert {*_paths(COMMANDS)} == {*WRITES, *READS, *IN_THE_JOB}


@pytest.mark.parametrize("place", ["", "-"])
def test_a_place_without_a_name(
    place: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be the working directory, or a file called `-`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipe_import, "imported", lambda *_: Imported(RUN))
    for name, (words, *_) in WRITES.items():
        if name in THROUGH:  # it reads there
            continue
        given = [*name.split()[: 2 if "add" in name else 1], *(place if w == "P" else w for w in words.split())]
        if (place, name) in (("-", "import --output"), ("-", "models add --output")):
            assert main(given) == 0 and capsys.readouterr().out.startswith((RUN, "#", "model")), name
        elif (place, name) == ("-", "calibrate --output"):
            assert main(["calibrate", str(inputs / "a.jsonl"), "-o", "-"]) == 0 and capsys.readouterr().out
        else:
            with pytest.raises(SystemExit, match="1"):
                main(given)
            assert "name a " in capsys.readouterr().err, name
    assert not _files(tmp_path)


@pytest.mark.parametrize("words", ["jobs", "models", "verify x", "rehearse -e olmoe_7b --cpu"])
def test_a_working_directory_that_was_deleted(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Torch's MKL would end the process there."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(words.split()) == 1
    said = capsys.readouterr()
    assert said == ("", "error: the working directory was deleted: `cd` to one that exists\n")


def _link(target: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "P").symlink_to(target)
        return folder / "P"

    return make


def _read_only(folder: Path) -> Path:
    """A folder that not even root may write to."""
    if not os.geteuid():
        return Path("/sys/kernel/P")
    (folder / "read only").mkdir(0o555)
    return folder / "read only" / "P"


KINDS: Mapping[str, Callable[[Path], Path]] = {
    "a link to a file": _link("mine.moe"),
    "a link to a folder": _link("mine"),
    "a link to nothing": _link("gone"),
    "a link to itself": _link("P"),
    "below a file": lambda folder: folder / "mine.moe" / "P",
    "below a link to a file": lambda folder: _link("mine.moe")(folder) / "P",
    "a folder that is only read": _read_only,
}


class Trains:
    """A host whose ranks fail, so that nothing is trained."""

    device = "cpu"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, *_: object) -> Outcome:
        return Outcome((), Failure("rank", 0, 1, ("Error",)), 0.0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "run.moe").write_text(RUN)
    (folder / "cluster.moe").write_text(RUN + CLUSTER)
    (folder / "a.jsonl").write_text(json.dumps(MEASURED) + "\n")
    (folder / "a.log").write_text(STEPS)
    assert main(["compile", str(folder / "run.moe"), "-o", str(folder / "plan")]) == 0
    return folder


@pytest.fixture(autouse=True)
def bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearsals begin, as they do where Bridge is installed."""
    monkeypatch.setattr(verify, "Ranks", Trains)
    monkeypatch.setattr(verify, "is_installed", lambda: True)
    monkeypatch.setattr(verify.environments, "is_installed", lambda _: True)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(("name", "words"), CASES, ids=lambda text: text.partition(" -o")[0].replace(" ", "_")[:30])
def test_a_place_of_any_kind(
    name: str, words: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(recipe_import, "imported", lambda *_: Imported(RUN))
    monkeypatch.setattr(tune.loop, "tune", lambda *_: pytest.fail("a job was submitted"))
    for kind, make in rotation.some(f"places of {words}", [*KINDS.items()], 2):
        folder = tmp_path / "here"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(inputs, folder)
        (folder / "mine.moe").write_text(RUN.replace(";", "  ;") if name in THROUGH else "my notes\n")
        (folder / "mine").mkdir()
        (folder / "mine" / "notes").write_text("mine")
        monkeypatch.chdir(folder)
        place = make(folder)
        before = _files(folder)
        code = main(
            [*name.split()[: 2 if "add" in name else 1], *(str(place) if w == "P" else w for w in words.split())]
        )
        said = "".join(capsys.readouterr())
        assert "internal" not in said and "Traceback" not in said, (kind, said)
        may = {"a link to a folder": INSIDE, "a link to a file": THROUGH}.get(kind, set())
        if name not in may:
            assert (code, _files(folder), "error[" in said) == (1, before, True), (kind, said)
        elif kind == "a link to a folder":
            assert before.items() <= _files(folder).items() and "error[" not in said, (kind, said)
        else:
            assert code == 0 and (folder / "mine.moe").read_text() == RUN, (kind, said)
        assert not (folder / "P").exists() or (folder / "P").is_symlink()


def test_a_rehearsal_keeps_the_logs_of_other_runs(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rehearse", str(inputs / "run.moe"), "--cpu", "-o", str(tmp_path)]
    (tmp_path / "rank_0.log").write_text("mine")
    assert main(words) == 1
    assert "rank_0.log is not of a rehearsal" in capsys.readouterr().err
    assert _files(tmp_path) == {"rank_0.log": b"mine"}
    (tmp_path / "rank_0.log").unlink()
    main(words)
    (tmp_path / "rank_0.log").write_text("a rehearsal's own")
    main(words)
    assert "error[" not in capsys.readouterr().err
