"""The program that imports and exports weights, without Bridge: what is there already, and what is left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from moedsl.launch.in_job import convert, head_check


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "preflight", head_check)


def importing(folder: Path) -> dict[str, Any]:
    return {"action": "import", "model": "org/name", "folder": str(folder), "options": {}}


def test_weights_that_are_there_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("0")
    convert.main(importing(tmp_path))
    assert "is there already" in capsys.readouterr().out


def test_a_folder_that_is_no_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no whole checkpoint"):
        convert.main(importing(tmp_path))


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit, match="name another folder"):
        convert.main({**importing(tmp_path), "action": "export"})


def test_a_result_appears_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "weights"

    def write(wanted: dict[str, Any], part: str) -> None:
        assert not folder.exists()
        Path(part, ".metadata").touch()

    monkeypatch.setattr(convert, "import_", write)
    convert.main(importing(folder))
    assert head_check.is_checkpoint(str(folder))
    assert [*folder.parent.iterdir()] == [folder]


def test_another_process_may_be_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "weights"

    def write(wanted: dict[str, Any], part: str) -> None:
        folder.mkdir()
        (folder / "config.json").touch()

    monkeypatch.setattr(convert, "import_", write)
    convert.main(importing(folder))
    assert [*tmp_path.iterdir()] == [folder]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(wanted: dict[str, Any], part: str) -> None:
        Path(part, "half").touch()
        raise OSError("no space left")

    monkeypatch.setattr(convert, "import_", fail)
    with pytest.raises(OSError, match="no space"):
        convert.main(importing(tmp_path / "weights"))
    assert [*tmp_path.iterdir()] == []


def test_the_newest_iteration_of_a_checkpoint(tmp_path: Path) -> None:
    assert convert.iteration(str(tmp_path)) == str(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("40\n")
    assert convert.iteration(str(tmp_path)) == str(tmp_path / "iter_0000040")
