"""Rename: over files, refused with a reason, and what it leaves means the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lsprotocol import types

from moedsl.lsp.features import rename, symbols
from moedsl.lsp.workspace import Workspace
from tests.lsp import lsp_nav as nav
from tests.lsp.test_definition import FILES


def asked(
    pattern: str, files: dict[str, str] = FILES, name: str = "run.moe"
) -> tuple[Workspace, types.TextDocumentPositionParams]:
    match = re.search(pattern, files[name])
    assert match is not None
    made = nav.workspace(files)
    document = made.document(nav.uri(name))
    assert document is not None
    return made, nav.parameters(types.TextDocumentPositionParams, document, match.start(1))


def renamed(pattern: str, new: str, files: dict[str, str] = FILES, name: str = "run.moe") -> dict[str, str]:
    """The texts that change, by file name."""
    made, at = asked(pattern, files, name)
    edit = rename.answer(made, types.RenameParams(at.text_document, at.position, new))
    assert edit is not None
    return {Path(u).name: text for u, text in nav.changed(made, edit).items()}


def refused(pattern: str, new: str = "another", files: dict[str, str] = FILES) -> str:
    made, at = asked(pattern, files)
    with pytest.raises(rename.RefusedError) as e:
        rename.answer(made, types.RenameParams(at.text_document, at.position, new))
    return e.value.message


def test_over_files() -> None:
    after = renamed(r"(box) x 16", "rack")
    assert after["machines.moe"] == FILES["machines.moe"].replace("hardware box", "hardware rack")
    assert after["run.moe"] == FILES["run.moe"].replace("box x 16", "rack x 16")
    assert renamed(r"hardware (box)", "rack", name="machines.moe") == after


@pytest.mark.parametrize(
    ("pattern", "new", "before", "after"),
    [
        (r"run a \{ (ours)", "theirs", r"\bours\b(?! \"x)", "theirs"),
        (r"; (small);", "tiny", r"\bsmall\b", "tiny"),
        (r"run (a) ", "base", r"run a \{|from a ", None),
        (r"let (replicas)", "copies", r"\breplicas\b", "copies"),
        (r"house\.(spare)", "reserve", r"\bspare\b", "reserve"),
        (r"rules (house)", "home", r"\bhouse\b", "home"),
    ],
)
def test_in_one_file(pattern: str, new: str, before: str, after: str | None) -> None:
    expected = re.sub(before, after or (lambda m: m[0].replace(" a ", f" {new} ")), FILES["run.moe"])  # type: ignore[arg-type]
    expected = expected.replace('cite theirs "x"', 'cite ours "x"')
    assert renamed(pattern, new)["run.moe"] == expected


def test_in_a_file_with_windows_line_ends_and_a_mark() -> None:
    text = "\ufeff" + 'rules 日 {}\r\nrules r { let n = dp because "😀" }\r\nrequire "😀" == "😀" or n > 1\r\n'.replace(
        "rules 日 {}", "# 日"
    )
    made = nav.workspace({"run.moe": text})
    document = made.document(nav.uri("run.moe"))
    assert document is not None
    at = nav.parameters(types.TextDocumentPositionParams, document, document.text.index("n ="))
    edit = rename.answer(made, types.RenameParams(at.text_document, at.position, "m"))
    assert edit is not None
    (edits,) = (edit.changes or {}).values()
    assert sorted((e.range.start.line, e.range.start.character) for e in edits) == [(1, 14), (2, 24)]


def test_what_is_not_the_users() -> None:
    assert "declared by the stdlib" in refused(r"= (dp)")
    assert "a keyword" in refused(r"pin (tp)")
    assert "a keyword" in refused(r"(scale) first")
    files = {"run.moe": 'set model.qk_clip = 1\nqwen3_30b_a3b\nrules r { env A_B = 1 because "x" cite o "y" }'}
    assert "field of Megatron Bridge" in refused(r"set (model)", files=files)
    assert "declared by the stdlib" in refused(r"(qwen3)", files=files)
    assert "environment variable" in refused(r"env (A_B)", files=files)


def test_prepare() -> None:
    made, at = asked(r"(box) x 16")
    found = rename.prepare(made, types.PrepareRenameParams(at.text_document, at.position))
    assert found is not None
    assert found.placeholder == "box"
    made, at = asked(r"pin (tp)")
    with pytest.raises(rename.RefusedError):
        rename.prepare(made, types.PrepareRenameParams(at.text_document, at.position))
    made, at = asked(r"(first)\n")
    assert rename.prepare(made, types.PrepareRenameParams(at.text_document, at.position)) is None


def test_names_that_are_none() -> None:
    for new in ("", "9a", "a-b", "a.b", "a b", "日本", "because", "in", "true"):
        assert refused(r"(box) x 16", new), new


COLLISIONS = {
    "hardware of the stdlib": (r"(box) x 16", "h100"),
    "model of the same file": (r"run a \{ (ours)", "qwen3_30b_a3b"),
    "a profile behind a model": (r"; (small);", "ours"),
    "a profile behind hardware in the used file": (r"; (small);", "box"),
    "another run": (r"run (a) ", "b"),
    "a let that is an axis": (r"let (replicas)", "tp"),
    "a let that is a let of the stdlib": (r"let (replicas)", "dp"),
    "a let that is a word": (r"let (replicas)", "hybridep"),
    "a let that is a function": (r"let (replicas)", "min"),
}


@pytest.mark.parametrize("name", COLLISIONS)
def test_collisions(name: str) -> None:
    pattern, new = COLLISIONS[name]
    assert refused(pattern, new)


def test_a_name_that_would_be_read_as_something_else() -> None:
    files = {"run.moe": "profile small { seq 4k }\nqwen3_30b_a3b\nh100 x 8\nsmall\nfit first\n"}
    for new in ("workflow", "vlm", "pin", "run", "fit"):
        try:
            after = renamed(r"\n(small)", new, files)["run.moe"]
        except rename.RefusedError:
            continue
        assert not nav.document(after).diagnostics, new


def test_a_used_file_that_is_not_open(tmp_path: Path) -> None:
    (tmp_path / "machines.moe").write_text(FILES["machines.moe"], encoding="utf-8")
    made = nav.workspace({"run.moe": FILES["run.moe"]}, tmp_path)
    document = made.document(nav.uri("run.moe", tmp_path))
    assert document is not None
    at = nav.parameters(types.TextDocumentPositionParams, document, document.text.index("box x"))
    edit = rename.answer(made, types.RenameParams(at.text_document, at.position, "rack"))
    assert edit is not None
    after = nav.changed(made, edit)
    assert "hardware rack" in after[nav.uri("machines.moe", tmp_path)]
    assert "rack x 16" in after[nav.uri("run.moe", tmp_path)]


def test_a_file_on_the_disk_that_uses_the_open_one(tmp_path: Path) -> None:
    inner = tmp_path / "runs"
    inner.mkdir()
    run = 'use "../machines.moe"\r\n# 😀\r\nqwen3_30b_a3b; box x 16\r\n'
    (inner / "run.moe").write_bytes(run.encode())
    (tmp_path / "other.moe").write_text("hardware box { }", encoding="utf-8")
    made = nav.workspace({"machines.moe": FILES["machines.moe"]}, tmp_path)
    document = made.document(nav.uri("machines.moe", tmp_path))
    assert document is not None
    at = nav.parameters(types.TextDocumentPositionParams, document, document.text.index("box"))
    edit = rename.answer(made, types.RenameParams(at.text_document, at.position, "rack"))
    assert edit is not None
    after = nav.changed(made, edit)
    assert set(after) == {nav.uri("machines.moe", tmp_path), nav.uri("runs/run.moe", tmp_path)}
    assert "rack x 16" in after[nav.uri("runs/run.moe", tmp_path)]
    with pytest.raises(rename.RefusedError, match="declared twice"):
        (inner / "run.moe").write_text('use "../machines.moe"\nhardware rack { }\nbox x 8\n', encoding="utf-8")
        rename.answer(made, types.RenameParams(at.text_document, at.position, "rack"))
    found = symbols.workspace(made, types.WorkspaceSymbolParams("rack"))
    assert Path(found[0].location.uri).name == "run.moe"
