"""Tables, paragraphs and amounts as a terminal shows them."""

from __future__ import annotations

from moedsl.support import text


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
