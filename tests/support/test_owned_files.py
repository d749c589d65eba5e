"""Output is written whole or not at all, and never over what moedsl did not write."""

import json
import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from moedsl.cli.main import main
from moedsl.emit.artifact import files_of_runs, lock_text
from moedsl.support import files
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import LOCK, hash_of, left_over, stamp, write_all, written_by_us
from tests.helpers.plans import PLANS
from tests.helpers.programs import compiled

FILES = {"recipe.py": "x = 1\n", "plan.json": '{\n  "a": 1\n}\n', "overrides.txt": "a=1\n"}


def contents(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted(folder.iterdir())}


def ids(problems: list[files.Diagnostic]) -> list[str]:
    return [p.id for p in problems]


def test_same_input_gives_same_bytes_and_writes_again(tmp_path: Path) -> None:
    assert write_all(tmp_path / "a" / "b", FILES) == []
    first = contents(tmp_path / "a" / "b")
    assert write_all(tmp_path / "a" / "b", FILES) == []
    assert contents(tmp_path / "a" / "b") == first and set(first) == set(FILES)
    assert json.loads(first["plan.json"])["a"] == 1


def test_the_user_may_read_what_is_written(tmp_path: Path) -> None:
    old = os.umask(0o022)
    write_all(tmp_path, FILES)
    os.umask(old)
    assert stat.S_IMODE((tmp_path / "recipe.py").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t + " ", "emit.edited"),
        (lambda t: t.replace("1", "2"), "emit.edited"),
        (lambda t: "mine", "emit.not_ours"),
    ],
)
def test_an_edited_file_stays(tmp_path: Path, name: str, change, expected: str) -> None:
    write_all(tmp_path, FILES)
    (tmp_path / name).write_text(change((tmp_path / name).read_text()))
    before = contents(tmp_path)
    problems = write_all(tmp_path, FILES)
    assert ids(problems) in ([expected], ["emit.not_ours"]) and problems[0].help
    assert contents(tmp_path) == before
    assert write_all(tmp_path, FILES, force=True) == []
    assert contents(tmp_path)[name] == stamp(name, FILES[name])


@pytest.mark.parametrize("name", ["a.py", "a.json", "a.txt"])
@pytest.mark.parametrize("text", ["{}", "{\n}\n", '{\n  "k": [1]\n}', "", "x\r\n\x00é"])
def test_a_stamped_text_is_ours_and_another_is_not(name: str, text: str) -> None:
    if name.endswith(".json") and not text.startswith("{"):
        return
    stamped = stamp(name, text)
    assert written_by_us(name, stamped) == "ours"
    assert written_by_us(name, stamped + "x") == "edited"
    assert written_by_us(name, text) == "foreign"
    assert not name.endswith(".json") or json.loads(stamped)["moedsl_sha256"]


def test_binary_file_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_bytes(b"\xff\xfe\x00")
    assert ids(write_all(tmp_path, FILES)) == ["emit.not_ours"]


def test_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert ids(write_all(tmp_path / "out", FILES)) == ["emit.exists"]
    assert ids(write_all(tmp_path / "out" / "deeper", FILES)) == ["emit.unwritable"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_stays_even_with_force(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "recipe.py")
    assert ids(write_all(tmp_path, FILES, force=True)) == ["emit.exists"]
    assert contents_names(tmp_path) == ["recipe.py"]


def contents_names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_symlink_is_replaced_only_with_force_and_its_target_never(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "recipe.py").symlink_to(tmp_path / "mine")
    assert ids(write_all(tmp_path / "out", FILES)) == ["emit.not_ours"]
    assert write_all(tmp_path / "out", FILES, force=True) == []
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "out" / "recipe.py").is_symlink()


def test_a_directory_that_may_not_be_written() -> None:
    assert ids(write_all("/proc/moedsl", FILES)) == ["emit.unwritable"]  # not even root may


@pytest.mark.parametrize("refusal", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("earlier", [True, False])
def test_nothing_changes_before_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[BaseException], after: int, earlier: bool
) -> None:
    out = tmp_path / "out"
    if earlier:
        write_all(out, {k: v.replace("1", "0") for k, v in FILES.items()})
    before = contents(out) if earlier else None
    real, done = os.fsync, []

    def fsync(handle: int) -> None:
        if len(done) == after:
            raise refusal("no")
        done.append(handle)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    if refusal is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            write_all(out, FILES)
    else:
        assert ids(write_all(out, FILES)) == ["emit.unwritable"]
    assert (contents(out) if out.exists() else None) == before


def test_lock_is_the_same_each_time_and_tells_inputs_apart() -> None:
    plan = PLANS["qwen3_30b_h100_bf16"]
    source = hash_of([("run.moe", "gb200"), ("other.moe", "h100")])
    assert source == hash_of([("other.moe", "h100"), ("run.moe", "gb200")]) != hash_of([("run.moe", "gb200")])
    text = lock_text(plan, {"stdlib": "b", "source": source}, {"b": "2", "a": "1"})
    assert text == lock_text(plan, {"source": source, "stdlib": "b"}, {"a": "1", "b": "2"})
    lock = json.loads(text)
    assert lock["fields"]["model.expert_model_parallel_size"] == 16 and lock["inputs"]["source"] == source
    assert write_all.__doc__ and json.loads(stamp("moedsl.lock.json", text))["decided"]["gpus"] == 16


# Write one file: never over a device, a pipe or a socket, which to read may never end.


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link to a pipe"])
def test_what_is_no_file_is_neither_read_nor_replaced(
    kind: str, force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = Path("out.html")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/full")
    else:
        os.mkfifo("pipe")
        path.symlink_to("pipe")
    before = stat.S_IFMT(path.stat().st_mode)
    (refused,) = files.refusals(path, "report", "moedsl report", force)
    assert refused.id == "emit.exists" and "a device, a pipe or a socket" in refused.message
    assert stat.S_IFMT(path.stat().st_mode) == before


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (refused,) = files.refusals(tmp_path / "loop", "report")
    assert refused.id == "emit.unwritable"


# What an earlier compile wrote and a later one does not is removed, or kept if someone edited it.

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


def process_ids(found: Sequence[Diagnostic]) -> list[str]:
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
    assert process_ids(write(tmp_path, ONE)) == ["emit.removed"]
    assert names(tmp_path) == sorted([LOCK, "overrides.txt", "plan.json", "recipe.py"])
    assert process_ids(write(tmp_path, TWO)) == ["emit.removed"] and names(tmp_path) == ["x", "y"]


def test_a_folder_of_an_old_run_keeps_what_is_not_of_moedsl(tmp_path: Path) -> None:
    write(tmp_path, TWO)
    (tmp_path / "y" / "log.txt").write_text("mine")
    recipe = tmp_path / "y" / "recipe.py"
    recipe.write_text(recipe.read_text() + "# mine\n")
    assert process_ids(write(tmp_path, OTHER)) == ["emit.removed", "emit.left_over"]
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
    assert process_ids(write_all(tmp_path, files, remove=left_over(tmp_path, files).ours)) == ["emit.exists"]
    assert all(p.read_bytes() == data for p, data in before.items())


def test_a_lock_that_names_other_folders_removes_nothing_there(tmp_path: Path) -> None:
    write(tmp_path / "other", ONE)
    write(tmp_path / "out", ONE)
    lock = tmp_path / "out" / LOCK
    lock.write_text(lock.read_text().replace('"recipe.py": ', '"../other/recipe.py": "", "recipe.py": '))
    r = compiled(ONE)
    assert left_over(tmp_path / "out", files_of_runs(r.plans, r.source, r.library)).ours == ()
