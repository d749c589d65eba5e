"""Write one file: never over a device, a pipe or a socket, which to read may never end."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from moedsl.support import files


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
