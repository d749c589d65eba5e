"""Whatever is not a run file is an error value within a second, and nothing raises."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moedsl.lang import parse_cache, parser
from moedsl.lang.formatter import format_source
from moedsl.lang.parser import MAX_ERRORS, parse
from moedsl.lang.printer import print_module
from moedsl.lang.reader import LIMIT, from_bytes, from_text, read
from moedsl.support import disk_cache, resources
from moedsl.support.resources import stdlib_files
from moedsl.support.source import Source
from tests.helpers import damage, rotation, strategies

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
    for end in rotation.some("stdlib prefixes", range(0, len(text), 29), 40):
        module, diagnostics = parse(Source("a.moe", text[:end]))
        assert module is not None or diagnostics


# ---------------------------------------------------------------- the cache


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_cache_answers_as_the_parser_does(home: Path) -> None:
    for path in rotation.some("cached files", stdlib_files(), 12):
        source = Source(path.name, path.read_text(encoding="utf-8"))
        fresh, kept = parse_cache.cached_parse(source), parse_cache.cached_parse(source)
        assert fresh == kept == parse(source)
        assert fresh[0] is not None
        assert kept[0] is not None
        assert [i.span for i in kept[0].items] == [i.span for i in fresh[0].items]


def test_parsing_imports_no_lark(home: Path) -> None:
    code = (
        "import sys; from moedsl.lang.parse_cache import cached_parse; from moedsl.support.source import Source\n"
        "m, d = cached_parse(Source('a.moe', 'seq 4k; seq')); assert m.items and d; sys.exit('lark' in sys.modules)"
    )
    root = resources.PACKAGE.parent
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"y" * 400])
def test_a_damaged_entry_is_parsed_again(home: Path, damage: bytes) -> None:
    source = Source("a.moe", "seq 4k")
    expected = parse_cache.cached_parse(source)
    entry = disk_cache.path_for(parse_cache.key(source))
    assert entry is not None
    entry.write_bytes(damage)
    assert parse_cache.cached_parse(source) == expected


def test_an_entry_of_something_else_is_parsed_again(home: Path) -> None:
    source = Source("a.moe", "seq 4k")
    disk_cache.save(parse_cache.key(source), b"not a pickle")
    assert parse_cache.cached_parse(source)[0] is not None


def test_errors_are_not_kept(home: Path) -> None:
    source = Source("a.moe", "seq")
    assert parse_cache.cached_parse(source) == parse_cache.cached_parse(source)
    assert disk_cache.load(parse_cache.key(source)) is None


def test_files_in_one_entry_are_parsed_until_they_change(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(parser, "parse", lambda s: (parsed.append(s.text), parse(s))[1])

    def together(*texts: str) -> list[str]:
        parsed.clear()
        sources = [Source(f"{i}.moe", text) for i, text in enumerate(texts)]
        with parse_cache.together() as read:
            assert [read(s) for s in sources] == [parse(s) for s in sources]
        return parsed

    assert together("seq 4k", "seq", "seq 8k") == ["seq 4k", "seq", "seq 8k"]
    assert together("seq 4k", "seq", "seq 8k") == ["seq"], "a text with an error is not kept"
    assert together("seq 4k", "seq 16k") == ["seq 16k"]
    assert together("seq 4k", "seq 16k", "seq 8k") == []
    for foreign in (b"not a pickle", pickle.dumps(["another value"])):
        disk_cache.save(parse_cache.TOGETHER, foreign)
        assert together("seq 4k") == ["seq 4k"]
    monkeypatch.setattr(parse_cache, "MOST_TOGETHER", 2)
    assert together("seq 4k", "seq 16k", "seq 8k") == ["seq 16k", "seq 8k"]
    assert together("seq 4k", "seq 16k", "seq 8k") == ["seq 4k"], "the oldest went"


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    module, diagnostics = parse_cache.cached_parse(Source("a.moe", "seq 4k"))
    assert module is not None
    assert not diagnostics


ME = os.getuid()


class Payload:
    """A pickle that makes a file when it is read."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (self.made,)


@pytest.mark.parametrize("foreign", ["file", "directory", "directory above", "directory of a link"])
def test_an_entry_that_another_user_can_write_is_not_unpickled(
    home: Path, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, payload = Source("a.moe", "seq 4k"), pickle.dumps(Payload(home / "ran"))
    parse_cache.cached_parse(source)
    entry = disk_cache.cache_dir() / disk_cache.version() / parse_cache.key(source)
    assert disk_cache.save(entry.name, payload)
    entry.chmod(0o666 if foreign == "file" else 0o644)
    entry.parent.chmod(0o777 if foreign == "directory" else 0o755)
    entry.parent.parent.chmod(0o777 if foreign == "directory above" else 0o755)
    if foreign == "directory of a link":
        (home / "shared").mkdir()
        (home / "shared").chmod(0o777)
        (home / "shared" / "cache").symlink_to(home)
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "shared" / "cache"))
    assert parse_cache.cached_parse(source)[0] is not None
    assert not (home / "ran").exists()


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
    assert disk_cache._keeps(os.stat_result((mode, 1, 1, 1, user, group, 0, 0, 0, 0))) == kept


def test_the_cache_stays_small(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that uses 1,500 files stores as many entries, and looks at all of them a few times only."""
    looked: list[Path] = []
    prune = disk_cache._prune
    monkeypatch.setattr(disk_cache, "_prune", lambda d: (looked.append(d), prune(d)))
    monkeypatch.setattr(disk_cache, "_saves", count())
    monkeypatch.setattr(disk_cache, "MOST", 3)
    for i in range(disk_cache.PRUNED_EVERY + 1):
        assert disk_cache.save(f"entry{i}", b"body")
    directory = disk_cache.path_for("entry5")
    assert directory is not None and len(looked) == 2
    assert len(list(directory.parent.iterdir())) == 3
    assert disk_cache.load(f"entry{disk_cache.PRUNED_EVERY}") == b"body"
