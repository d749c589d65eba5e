"""Who else could change what is in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moedsl.support import resources

ME = os.getuid()


@pytest.mark.parametrize(
    ("mode", "user", "group", "kept"),
    [
        (0o40755, ME, 50, True),
        (0o40775, ME, ME, True),
        (0o40775, ME, ME + 1, False),
        (0o40777, ME, ME, False),
        (0o41777, 0, 0, True),
        (0o120777, ME, ME + 1, True),
        (0o40755, ME + 1, ME, False),
    ],
    ids=["own", "own group", "another group", "everybody", "sticky", "link", "another user"],
)
def test_who_can_replace_a_directory_below(mode: int, user: int, group: int, kept: bool) -> None:
    assert resources._keeps(os.stat_result((mode, 1, 1, 1, user, group, 0, 0, 0, 0))) == kept


@pytest.mark.parametrize(("own", "above", "private"), [
    (0o755, 0o755, True), (0o777, 0o755, False), (0o755, 0o777, False),
])  # fmt: skip
def test_a_directory_is_private(tmp_path: Path, own: int, above: int, private: bool) -> None:
    folder = tmp_path / "above" / "own"
    folder.mkdir(parents=True)
    folder.chmod(own)
    folder.parent.chmod(above)
    assert resources.is_private(folder) == private


def test_a_link_in_a_shared_directory_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / "link").symlink_to(tmp_path / "own")
    assert resources.is_private(tmp_path / "own")
    assert not resources.is_private(tmp_path / "shared" / "link")
