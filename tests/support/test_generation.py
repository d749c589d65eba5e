"""A writer that is killed between two files leaves a mixture, and who reads that folder next says so."""

import json
import os
import shutil
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.support.files import LOCK, mixed

RUN = "qwen3_30b_a3b; h100 x 16; fit first; seq {}"
FILES = (LOCK, "plan.json", "overrides.txt", "recipe.py")
"""In the order in which they are renamed into the folder."""


@pytest.fixture(scope="module")
def compiles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = tmp_path_factory.mktemp("compiles")
    for seq in ("4k", "8k"):
        assert main(["compile", "-e", RUN.format(seq), "-o", str(made / seq)]) == 0
    return made / "4k", made / "8k"


def between(compiles: tuple[Path, Path], new: int, at: Path) -> Path:
    """The folder when so many files are of the newer compile."""
    for i, name in enumerate(FILES):
        shutil.copy(compiles[i < new] / name, at / name)
    return at


@pytest.mark.parametrize("new", range(len(FILES) + 1))
def test_each_moment_between_two_compiles(compiles: tuple[Path, Path], new: int, tmp_path: Path) -> None:
    said = mixed(between(compiles, new, tmp_path))
    assert bool(said) == (0 < new < len(FILES))
    assert all(name in said for name in FILES[new:] if said)


def test_the_files_are_written_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[Path] = []
    replace, out = os.replace, tmp_path / "out"
    monkeypatch.setattr(os, "replace", lambda a, b: (renamed.append(Path(b)), replace(a, b)))
    assert main(["compile", "-e", RUN.format("4k"), "-o", str(out)]) == 0
    assert tuple(path.name for path in renamed if path.parent == out) == FILES  # the cache on disk has others


@pytest.mark.parametrize(
    "words", [["verify", "--read-only"], ["verify"], ["lint"], ["lint", "--read-only"], ["import"]]
)
def test_readers_refuse_a_mixture(
    words: list[str], compiles: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, str(between(compiles, 2, tmp_path))]) == 1
    said = "".join(capsys.readouterr())
    assert f"overrides.txt, recipe.py and {LOCK} are of different compiles" in said and "compile into" in said


@pytest.mark.parametrize("file", ["", "plan.json"])
def test_diff_refuses_a_mixture(
    file: str, compiles: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(between(compiles, 1, tmp_path) / file), str(compiles[0])]) == 1
    assert "are of different compiles" in capsys.readouterr().err


def test_an_edited_file_is_the_users(compiles: tuple[Path, Path], tmp_path: Path) -> None:
    between(compiles, 3, tmp_path)
    with (tmp_path / "recipe.py").open("a") as recipe:
        recipe.write("# mine\n")
    assert not mixed(tmp_path)


@pytest.mark.parametrize(
    "lock", ["", "[]", "{}", '{"files": []}', '{"files": {"../x": "", "/dev/zero": ""}}', "\ud800"]
)
def test_a_lock_of_another_kind_says_nothing(compiles: tuple[Path, Path], lock: str, tmp_path: Path) -> None:
    (between(compiles, 1, tmp_path) / LOCK).write_bytes(lock.encode("utf-8", "surrogatepass"))
    assert not mixed(tmp_path)


def test_the_lock_has_every_file(compiles: tuple[Path, Path]) -> None:
    assert sorted(json.loads((compiles[0] / LOCK).read_text())["files"]) == sorted(FILES[1:])


def test_no_writer_that_is_killed_leaves_files_without_the_lock(
    compiles: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them, in an empty folder, each killed after some files."""
    replace = os.replace

    def compile_and_die(seq: str, out: Path, after: int) -> None:
        names = iter(FILES[:after])
        dies = lambda b: Path(b).parent == out and not next(names, None)  # noqa: E731, the cache is written to as well
        monkeypatch.setattr(os, "replace", lambda a, b: os._exit(9) if dies(b) else replace(a, b))
        pid = os.fork()
        if pid == 0:
            main(["compile", "-e", RUN.format(seq), "-o", str(out)])
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

    for first in (1, 2, 3):
        for second in range(1, first):
            out = tmp_path / f"{first}{second}"
            compile_and_die("4k", out, first)
            compile_and_die("8k", out, second)
            assert mixed(out), (first, second)
