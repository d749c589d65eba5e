"""The stdlib that is kept between starts: the same as the one read anew, and never an old one."""

import ast as python
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from moedsl.lang.parser import parse
from moedsl.rules import collect, library, stdlib
from moedsl.rules.library import Library
from moedsl.support import compiled, resources
from moedsl.support.diagnostics import to_json
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

WHY = 'because "of a test" cite docs "here"'
MINE = table_of("rules", "stdlib cache: mine")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the stdlib, and what is compiled of it."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(resources.stdlib_dir(), folder / "stdlib", ignore=shutil.ignore_patterns("hf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "stdlib_dir", lambda: folder / "stdlib")
        patch.setattr(compiled, "FOLDER", folder / "compiled")
        another_start()
        stdlib.load()
    return folder


@pytest.fixture(autouse=True)
def kept(made_once: Path, compiles_anew: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stdlib of its own, and a folder for what is compiled of it."""
    shutil.copytree(made_once / "stdlib", tmp_path / "stdlib")
    monkeypatch.setattr(resources, "stdlib_dir", lambda: tmp_path / "stdlib")
    monkeypatch.setattr(compiled, "FOLDER", tmp_path / "compiled")
    another_start()
    yield tmp_path
    another_start()


@pytest.fixture
def made(kept: Path, made_once: Path) -> None:
    """Begin with the compiled stdlib."""
    (kept / "compiled").mkdir()
    body = (made_once / "compiled" / stdlib.LIBRARY).read_bytes()
    (kept / "compiled" / stdlib.LIBRARY).write_bytes(stdlib._stamp() + body[len(stdlib._stamp()) :])
    assert is_kept()


def names(found: Library) -> dict[str, list[str]]:
    known, _, wrong = collect.of_library(found)
    assert not wrong
    return {"rules": [r.id for r in known], "models": [*found.models], "hardware": [*found.hardware]}


def another_start() -> None:
    """What the process remembers is forgotten."""
    for known in (stdlib._kept, stdlib._blocks):
        known.cache_clear()


def is_kept() -> bool:
    return compiled.load(stdlib.LIBRARY, stdlib._stamp()) is not None


def test_what_is_kept_is_what_is_read() -> None:
    read = library.load(resources.stdlib_files(), parse)
    assert not is_kept()
    made, again = stdlib.load(), stdlib.load()
    assert is_kept()
    another_start()
    for found in (made, again, stdlib.load()):
        assert collect.of_library(found) == collect.collect(read.rules)
        assert [*found.rules] == [*read.rules]
        for table in ("models", "hardware", "clusters", "calibrations", "documents", "profiles", "sources"):
            assert getattr(found, table) == getattr(read, table), table
    for source in read.sources.values():
        module, _ = stdlib.parse(source)
        assert module == parse(source)[0] and module is not None
    assert stdlib.parse(Source("stdlib/rules/walls.moe", "seq"))[1], "another text is parsed"


@pytest.mark.usefixtures("made")
def test_blocks_of_rules_are_read_once_and_again_when_a_file_changes(kept: Path) -> None:
    before, again = stdlib.load().rules, stdlib.load().rules
    assert before and all(a is b for a, b in zip(before, again, strict=True))
    (kept / "stdlib" / "rules" / "zz.moe").write_text(f"rules added {{ require one_more: tp <= 64 {WHY} }}\n")
    assert {b.name.id for _, b in stdlib.load().rules} - {b.name.id for _, b in before} == {"added"}


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", rotation.some("own rules", [*MINE], 3))
def test_a_users_rules_are_checked_as_beside_rules_read_anew(name: str) -> None:
    """Whatever the user's block says, the rules and the diagnostics are those of one check of everything."""
    source = Source("mine.moe", f"qwen3_30b_a3b; h100 x 16\nrules mine {{\n {MINE[name]}\n}}")
    module, found = parse(source)
    assert module is not None and not found
    mine = stdlib.load()
    library.use(mine, source, module, parse)
    quick, all_of_it = collect.of_library(mine), collect.collect(mine.rules)
    assert mine.collected is not None
    assert quick[:2] == all_of_it[:2]
    assert [to_json(d, mine.sources) for d in quick[2]] == [to_json(d, mine.sources) for d in all_of_it[2]]


@pytest.mark.usefixtures("made")
def test_a_changed_file_is_read(kept: Path) -> None:
    before = names(stdlib.load())
    changed = kept / "stdlib" / "rules" / "walls.moe"
    changed.write_text(changed.read_text() + f"\nrules added {{ require one_more: tp <= 64 {WHY} }}\n")
    assert {*names(stdlib.load())["rules"]} - {*before["rules"]} == {"std.added.one_more"}
    (kept / "stdlib" / "models" / "kimi_k2.moe").unlink()
    assert "kimi_k2" not in names(stdlib.load())["models"]


def test_an_error_in_the_stdlib_is_told_at_every_start(kept: Path) -> None:
    (kept / "stdlib" / "rules" / "zz.moe").write_text(f"rules zz {{ require wrong: tpp <= 64 {WHY} }}\n")
    for _ in range(2):
        another_start()
        _, _, wrong = collect.of_library(stdlib.load())
        assert [d.id for d in wrong] == ["check.unknown_name"]
    assert not is_kept()


@pytest.mark.usefixtures("made")
def test_a_users_declaration_stays_in_its_own_library() -> None:
    """Two programs of one process do not see each other's hardware."""
    source = Source("mine.moe", (ROOT / "examples/own_hardware.moe").read_text(encoding="utf-8"))
    module, found = parse(source)
    assert module is not None and not found
    before, mine = names(stdlib.load()), stdlib.load()
    library.use(mine, source, module, parse)
    assert {*mine.hardware} - {*before["hardware"]} == {"h100_200g"}
    assert names(stdlib.load()) == before


@pytest.mark.usefixtures("made")
def test_changed_code_compiles_again(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    before = stdlib._stamp()
    monkeypatch.setattr(compiled, "PACKAGE", kept)
    for name in stdlib.PACKAGES:
        shutil.copytree(resources.PACKAGE / name, kept / name, ignore=shutil.ignore_patterns("__pycache__"))
    copied = stdlib._stamp()
    (kept / "lang" / "parser.py").write_text("changed")
    assert len({before, copied, stdlib._stamp()}) == 3
    assert not is_kept()


@pytest.mark.usefixtures("made")
def test_an_old_file_and_a_folder_that_is_not_writable(kept: Path) -> None:
    expected = names(stdlib.load())
    (kept / "compiled" / stdlib.LIBRARY).write_bytes(b"x" * 32 + b"of another library")
    another_start()
    assert names(stdlib.load()) == expected
    shutil.rmtree(kept / "compiled")
    (kept / "compiled").write_text("a file where the folder would be")
    another_start()
    assert names(stdlib.load()) == expected
    assert [*stdlib.load().rules]
    assert not is_kept()


def test_every_module_behind_what_is_kept_is_in_its_name() -> None:
    """From the imports, so that a new package cannot be forgotten."""
    found, ahead = set[str](), ["moedsl.rules.stdlib"]
    while ahead:
        name = ahead.pop()
        if name not in found and (file := _file(name)) is not None:
            found.add(name)
            ahead += _imports(file)
    packages = {name.split(".")[1] for name in found}
    assert packages <= {*stdlib.PACKAGES}


def _file(module: str) -> Path | None:
    path = resources.PACKAGE.parent / f"{module.replace('.', '/')}.py"
    return path if path.exists() else None


def _imports(file: Path) -> list[str]:
    top = [n for n in python.parse(file.read_text(encoding="utf-8")).body if isinstance(n, python.ImportFrom)]
    return [name for n in top if n.module for name in (n.module, *(f"{n.module}.{a.name}" for a in n.names))]
