"""Tables, paragraphs and amounts as a terminal shows them."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moedsl.support import resources, text


def test_table_aligns_each_column_on_its_side():
    rows = [("run", "s", "why"), ("a", "12.5", "short"), ("long", "3.0", "")]
    assert text.table(rows, "lrl") == ["  run      s  why", "  a     12.5  short", "  long   3.0"]
    assert text.table(rows) == ["   run     s    why", "     a  12.5  short", "  long   3.0"]


def test_left_cell_that_ends_its_row_widens_no_column():
    rows = [("a", "b", "c"), ("one", "a long text that ends its row")]
    assert text.table(rows, "l") == ["  a    b  c", "  one  a long text that ends its row"]


def test_table_without_rows_is_empty():
    assert text.table([], "l") == []


def test_paragraph_hangs_and_breaks_no_word():
    words = "a " + "path/" * 4 + "file and micro-batch"
    assert text.wrapped(words, "- ", "  ", width=16) == "- a\n  path/path/path/path/file\n  and\n  micro-batch"


def test_counts_say_the_plural():
    shown = [text.counted(n, noun) for n, noun in ((1, "line"), (0, "line"), (2, "batch"), (3, "process"))]
    assert shown == ["1 line", "0 lines", "2 batches", "3 processes"]
    assert text.counted(1204, "line", ",") == "1,204 lines"


def test_tokens_are_written_as_in_a_run_file():
    assert [text.tokens(n) for n in (131072, 4096, 1000, 0)] == ["128k", "4k", "1000", "0"]


def test_change_names_time_and_memory():
    assert text.change(0.0312, -4.04) == "+3.1% step time, -4.0 GiB"


# Who else could change what is in the user's cache folder.

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


# How Hypothesis runs in these tests.


@settings(max_examples=1)
@given(st.just(0.3))
def test_an_example_may_take_as_long_as_a_busy_machine_makes_it(seconds: float) -> None:
    """Hypothesis alone would fail a test whose example takes 0.2 s, or which draws its examples for a second."""
    time.sleep(seconds)
