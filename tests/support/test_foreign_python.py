"""Python of somebody else: what its parser may need is bounded by the size of a file, and measured here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moedsl.support import foreign, limits
from tests.helpers import rotation

DEAREST = {
    "statements": "a;",
    "names": "a,",
    "f-strings": "f'{a}' ",
    "signs": "x=" + "-" * 90 + "1\n",
    "lists": "x=" + "[" * 90 + "1" + "]" * 90 + "\n",
}
"""What needs the most memory, or the most seconds, for its size."""

PARSE = """
import resource, sys
from moedsl.support import foreign
from moedsl.support.limits import within_memory
text = sys.stdin.read()
with within_memory(420):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert foreign.parse_python(text) is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 11
"""


@pytest.mark.parametrize("name", rotation.some("dearest", [*DEAREST], 1))
def test_the_largest_file_is_parsed_within_the_limits(name: str) -> None:
    piece = DEAREST[name]
    text = piece * (foreign.MOST_PYTHON // len(piece))
    ran = subprocess.run([sys.executable, "-c", PARSE], input=text, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("content", [b"x = (" * 300, b"x = \xff", b"x =", b"\0", b"x = " + b"-" * 100_000 + b"1"])
def test_what_is_not_python_is_no_crash(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    assert foreign.parse_python_file(tmp_path / "a.py") is None


def test_a_file_that_is_too_large_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("#" * (foreign.MOST_PYTHON + 1))
    with pytest.raises(limits.TooLarge, match="400 kB of Python"):
        foreign.parse_python_file(tmp_path / "a.py")
