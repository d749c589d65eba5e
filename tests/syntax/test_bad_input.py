"""Whatever is not a run file is an error value within a second, and nothing raises."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moedsl.lang.formatter import format_source
from moedsl.lang.parser import MAX_ERRORS, parse
from moedsl.lang.printer import print_module
from moedsl.lang.reader import LIMIT, from_bytes, from_text, read
from moedsl.support.resources import stdlib_files
from moedsl.support.source import Source
from tests.helpers import damage, rotation, strategies
from tests.helpers.tables import table_of

slow = settings(max_examples=rotation.examples(150), deadline=None, suppress_health_check=list(HealthCheck))

BYTES = {
    "empty": (b"", "parse.empty"),
    "blank": (b" \n\t\r\n", "parse.empty"),
    "comments": (b"# nothing\n\n# here", "parse.empty"),
    "utf16": ("seq 4k\n".encode("utf-16"), "parse.encoding"),
    "utf32": ("seq 4k\n".encode("utf-32"), "parse.encoding"),
    "latin1": ("# caf\xe9\nseq 4k".encode("latin-1"), "parse.encoding"),
    "binary": (b"\x7fELF\x02\x01\x00\x00", "parse.encoding"),
    "nul": (b"seq 4k\x00", "parse.encoding"),
    "huge": (b"# x\n" * LIMIT, "parse.too_large"),
    "nested": (b"require " + b"(" * 100_000, "parse.nested"),
    "nested blocks": (b"model a {" * 20_000 + b"}" * 20_000, "parse.nested"),
    "mixed brackets": (b"({[" * 50_000 + b")" * 50_000, "parse.nested"),
}


@pytest.mark.parametrize("name", BYTES)
def test_not_a_run_file(name: str, tmp_path: Path) -> None:
    data, expected = BYTES[name]
    path = tmp_path / "a.moe"
    path.write_bytes(data)
    source, (diagnostic,) = read(path)
    assert source is None
    assert diagnostic.id == expected
    assert diagnostic.help


def test_encodings_that_are_read() -> None:
    for data in (b"\xef\xbb\xbfseq 4k\r\ngb200\r\n", b"seq 4k\ngb200\n", b"seq 4k\rgb200\r"):
        source, diagnostics = from_bytes(data, "a.moe")
        assert not diagnostics
        assert source == Source("a.moe", "seq 4k\ngb200\n")


def test_the_wrong_byte_is_named() -> None:
    _, (diagnostic,) = from_bytes("seq 4k\n# caf\xe9".encode("latin-1"), "a.moe")
    assert "0xe9 on line 2" in diagnostic.message


def test_half_a_character_is_named() -> None:
    """As Python reads an invalid byte of a command line."""
    _, (diagnostic,) = from_text('seq 4k; data "\udcff"')
    assert diagnostic.id == "parse.encoding" and "at 14" in diagnostic.message


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "near.moe").write_text("seq 4k")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, expected in (
        (tmp_path / "far.moe", "read.missing"),
        (tmp_path, "read.directory"),
        (fifo, "read.special"),
        (Path("/dev/zero"), "read.special"),
        (Path("/dev/null"), "read.special"),
        (Path("a\0b"), "read.missing"),
        (tmp_path / ("n" * 5000), "read.missing"),
        (tmp_path / "near.moe" / "x", "read.missing"),
    ):
        source, (diagnostic,) = read(path)
        assert source is None
        assert diagnostic.id == expected, path
    assert "near.moe" in read(tmp_path / "far.moe")[1][0].help[0]


@pytest.mark.parametrize(
    ("name", "text", "help"),
    [
        ("recipe.py", '"""Ours."""\ncfg = 1\n', "moedsl import recipe.py"),
        ("plan.json", '{"layout": {}}', "the .moe file"),
        ("config.json", '{"model_type": "qwen3_moe"}', "moedsl models add config.json"),
        ("other.json", "[" + " " * LIMIT + "]", "a .moe file"),
    ],
)
def test_a_file_of_another_kind_is_one_error(name: str, text: str, help: str) -> None:
    source, (diagnostic,) = from_bytes(text.encode(), name)
    assert source is None and diagnostic.id == "read.other_kind"
    assert help in diagnostic.help[0]


LONG: dict[str, Callable[[int], str]] = {
    "minus": lambda size: "require " + "-" * (size - 9) + "1",
    "sum": lambda size: "require " + "a+" * (size // 2 - 10) + "1",
    "implications": lambda size: "require " + "a => " * 5_000 + "1",
    "facts": lambda size: "model a { " + "a 1 " * (size // 4 - 10),
    "errors": lambda size: "seq\n" * (size // 4),
    "unclosed": lambda size: "run a (" * (size // 7),
    "open strings": lambda size: 'data "\n' * (size // 7),
    "comments": lambda size: "seq 4k\n" + "# because\n" * (size // 11) + "!",
    "braces": lambda size: "}" * size,
    "semicolons": lambda size: "gb200" + ";" * (size - 6) + "!",
    "statements": lambda size: "a\n" * (size // 2),
    "words": lambda size: "a " * (size // 2),
    "quotes": lambda size: '"' * (size - 1),
    "unclosed with errors": lambda size: "run a { seq\n" * 60,
}


@pytest.mark.parametrize("name", rotation.some("long nonsense", [*LONG], 3))
def test_long_nonsense_is_an_error(name: str) -> None:
    source, diagnostics = from_text(LONG[name](LIMIT), "a.moe")
    if source is not None:
        _, diagnostics = parse(source)
    assert diagnostics
    assert all(d.message for d in diagnostics)
    assert len(diagnostics) <= MAX_ERRORS + 1


@slow
@given(st.one_of(st.text(), st.binary().map(lambda b: b.decode("latin-1"))))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    module, diagnostics = parse(Source("a.moe", text))
    assert module is not None or diagnostics
    for d in diagnostics:
        assert d.id.startswith("parse.")
        assert all(0 <= label.span.start <= label.span.end <= len(text) for label in d.labels)


@slow
@given(strategies.module, st.randoms(use_true_random=False))
def test_damaged_programs_never_raise(module: object, rng: random.Random) -> None:
    text = damage.pieces(print_module(module), rng)  # type: ignore[arg-type]
    again, diagnostics = parse(Source("a.moe", text))
    assert again is not None or diagnostics
    formatted, why = format_source(Source("a.moe", text))
    assert formatted is not None or why
    assert all(d.id != "internal.format" for d in why), text


def test_every_prefix_of_a_stdlib_file_is_read_or_refused() -> None:
    text = max((p.read_text(encoding="utf-8") for p in stdlib_files() if "rules" in p.parts), key=len)
    for end in rotation.some("stdlib prefixes", range(0, len(text), 29), 15):
        module, diagnostics = parse(Source("a.moe", text[:end]))
        assert module is not None or diagnostics


# Behind an error the statements that did parse are each kept once, as if the wrong ones were not there.

GOOD = ("qwen3_30b_a3b", "h100 x 8", "seq 4k", "pin tp=4 cp=2", "require dp >= 2", "run a { fit first; seq 8k }")
WRONG = ("seq 128 k", "pin tp 4", "require tp = 2", "fit fast", "= 3", 'data "open')

statements = st.lists(
    st.tuples(st.sampled_from([*GOOD, *WRONG]), st.sampled_from(["\n", "; "])), min_size=1, max_size=8
)


def items(parts: list[tuple[str, str]]) -> tuple[list[object], int]:
    module, found = parse(Source("t.moe", "".join(s + end for s, end in parts)))
    assert module is not None
    return list(module.items), len(found)


@given(statements)
def test_good_statements_are_kept_once(parts: list[tuple[str, str]]) -> None:
    parts = [(s, "\n" if s.startswith("data") else end) for s, end in parts]
    kept, errors = items(parts)
    good = [p for p in parts if p[0] in GOOD]
    assert errors == len(parts) - len(good)
    assert kept == (items(good)[0] if good else [])


@pytest.mark.parametrize(("machine", "help"), table_of("syntax", "bad input: a number after the hardware"))
def test_a_number_after_the_hardware_is_of_gpus_or_of_their_memory(machine: str, help: str) -> None:
    (found,) = parse(Source("run.moe", f"qwen3_30b_a3b; {machine}"))[1]
    assert found.id == "parse.unexpected" and any(help in said for said in found.help)
