"""What an earlier compile wrote and a later one does not is removed, or kept if someone edited it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.emit.artifact import files_of_runs
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import LOCK, left_over, write_all
from tests.helpers.programs import compiled

MODEL = "qwen3_30b_a3b; seq 4k; "
TWO = MODEL + "run x { h100 x 32 }; run y { h100 x 16 }"
OTHER = MODEL + "run x { h100 x 32 }; run z { h100 x 16 }"
ONE = MODEL + "h100 x 16"
CLUSTER = (
    '; cluster ours { executor slurm; hardware h100; account a; partition b; job_dir "/s/runs"; '
    'container "/s/nemo.sqsh"; mounts ["/s:/s"] }'
)


def write(folder: Path, text: str) -> list[Diagnostic]:
    """Compile a program into a folder as `moedsl compile` does; returns what it says of an earlier compile."""
    r = compiled(text)
    files = files_of_runs(r.plans, r.source, r.library)
    old = left_over(folder, files)
    assert write_all(folder, files, remove=old.ours) == []
    return old.diagnostics()


def ids(found: Sequence[Diagnostic]) -> list[str]:
    return [d.id for d in found]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_files_of_a_launch_do_not_outlive_their_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    launch = ["--emit", "launch", "--cluster", "ours"]
    assert main(["compile", "-e", MODEL + "h100 x 32" + CLUSTER, "-o", out, *launch]) == 0
    assert {"launch.py", "job.sh"} < {*names(tmp_path / "out")}
    job = tmp_path / "out" / "job.sh"
    job.write_text(job.read_text() + "# mine\n")
    capsys.readouterr()
    assert main(["compile", "-e", MODEL + "h100 x 16" + CLUSTER, "-o", out]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert names(tmp_path / "out") == sorted(["job.sh", LOCK, "overrides.txt", "plan.json", "recipe.py"])
    assert f"removed {out}/launch.py" in said and "--emit launch" in said
    assert f"kept {out}/job.sh" in said and job.read_text().endswith("# mine\n")


def test_runs_that_the_program_no_longer_has_are_removed(tmp_path: Path) -> None:
    assert write(tmp_path, TWO) == write(tmp_path, TWO) == []
    (note,) = write(tmp_path, OTHER)
    assert note.id == "emit.removed" and f"{tmp_path}/y/recipe.py" in note.message
    assert names(tmp_path) == ["x", "z"]
    assert ids(write(tmp_path, ONE)) == ["emit.removed"]
    assert names(tmp_path) == sorted([LOCK, "overrides.txt", "plan.json", "recipe.py"])
    assert ids(write(tmp_path, TWO)) == ["emit.removed"] and names(tmp_path) == ["x", "y"]


def test_a_folder_of_an_old_run_keeps_what_is_not_of_moedsl(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    (tmp_path / "y" / "log.txt").write_text("mine")
    recipe = tmp_path / "y" / "recipe.py"
    recipe.write_text(recipe.read_text() + "# mine\n")
    assert ids(write(tmp_path, OTHER)) == ["emit.removed", "emit.left_over"]
    assert names(tmp_path / "y") == ["log.txt", "recipe.py"]


def test_a_compile_of_another_program_below_stays(tmp_path: Path) -> None:
    write(tmp_path / "own", MODEL + "run own { h100 x 16 }")
    assert write(tmp_path, ONE) == []
    (warning, note) = write(tmp_path, TWO)[::-1]
    assert (note.id, warning.id) == ("emit.removed", "emit.left_over") and "also holds own," in warning.message
    assert LOCK in names(tmp_path / "own")


def test_a_write_that_is_refused_removes_nothing(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    (tmp_path / "z").write_text("not a folder")
    r = compiled(OTHER)
    files = files_of_runs(r.plans, r.source, r.library)
    assert ids(write_all(tmp_path, files, remove=left_over(tmp_path, files).ours)) == ["emit.exists"]
    assert all(p.read_bytes() == data for p, data in before.items())


def test_a_lock_that_names_other_folders_removes_nothing_there(tmp_path: Path) -> None:
    write(tmp_path / "other", ONE)
    write(tmp_path / "out", ONE)
    lock = tmp_path / "out" / LOCK
    lock.write_text(lock.read_text().replace('"recipe.py": ', '"../other/recipe.py": "", "recipe.py": '))
    r = compiled(ONE)
    assert left_over(tmp_path / "out", files_of_runs(r.plans, r.source, r.library)).ours == ()
