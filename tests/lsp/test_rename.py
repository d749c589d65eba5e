"""Rename: over files, refused with a reason, and what it leaves means the same."""

import re
from pathlib import Path

import pytest
from lsprotocol import types
from pygls import uris

from moedsl.lsp import navigation, structure
from moedsl.lsp.workspace import Workspace
from moedsl.support import resources
from tests.helpers.tables import table_of
from tests.lsp import lsp_ask as nav

OWN = Path(__file__).with_name("own.moe").read_text(encoding="utf-8")
MACHINES = """\
hardware box {
  arch hopper device "NVIDIA H100 80GB HBM3" capability 9.0 memory 80 GB
  nvlink_domain 8 gpus_per_node 8 sms 132 tflops bf16=989 fp8=1979
  hbm 3.35 TB/s nvlink 450 GB/s network 25 GB/s
}
"""
FILES = {
    "run.moe": OWN.replace("; /* */", "")
    + 'run b from a { scale first; allow house.spare because "why"; pin tp=2; require replicas == 4 }\n',
    "machines.moe": MACHINES,
}


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
    edit = navigation.rename(made, types.RenameParams(at.text_document, at.position, new))
    assert edit is not None
    return {Path(u).name: text for u, text in nav.changed(made, edit).items()}


def refused(pattern: str, new: str = "another", files: dict[str, str] = FILES) -> str:
    made, at = asked(pattern, files)
    with pytest.raises(navigation.RefusedError) as e:
        navigation.rename(made, types.RenameParams(at.text_document, at.position, new))
    return e.value.message


def test_over_files() -> None:
    after = renamed(r"(box) x 16", "rack")
    assert after["machines.moe"] == FILES["machines.moe"].replace("hardware box", "hardware rack")
    assert after["run.moe"] == FILES["run.moe"].replace("box x 16", "rack x 16")
    assert renamed(r"hardware (box)", "rack", name="machines.moe") == after


@pytest.mark.parametrize(("pattern", "new", "before", "after"), table_of("lsp", "rename: in one file", none="-"))
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
    edit = navigation.rename(made, types.RenameParams(at.text_document, at.position, "m"))
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
    found = navigation.prepare_rename(made, types.PrepareRenameParams(at.text_document, at.position))
    assert found is not None
    assert found.placeholder == "box"
    made, at = asked(r"pin (tp)")
    with pytest.raises(navigation.RefusedError):
        navigation.prepare_rename(made, types.PrepareRenameParams(at.text_document, at.position))
    made, at = asked(r"(first)\n")
    assert navigation.prepare_rename(made, types.PrepareRenameParams(at.text_document, at.position)) is None


def test_names_that_are_none() -> None:
    for new in ("", "9a", "a-b", "a.b", "a b", "日本", "because", "in", "true"):
        assert refused(r"(box) x 16", new), new


COLLISIONS = table_of("lsp", "rename: collisions")


@pytest.mark.parametrize("name", COLLISIONS)
def test_collisions(name: str) -> None:
    pattern, new = COLLISIONS[name]
    assert refused(pattern, new)


def test_a_name_that_would_be_read_as_something_else() -> None:
    files = {"run.moe": "profile small { seq 4k }\nqwen3_30b_a3b\nh100 x 8\nsmall\nfit first\n"}
    for new in ("workflow", "vlm", "pin", "run", "fit"):
        try:
            after = renamed(r"\n(small)", new, files)["run.moe"]
        except navigation.RefusedError:
            continue
        assert not nav.numbered(after).diagnostics, new


def test_a_used_file_that_is_not_open(tmp_path: Path) -> None:
    (tmp_path / "machines.moe").write_text(FILES["machines.moe"], encoding="utf-8")
    made = nav.workspace({"run.moe": FILES["run.moe"]}, tmp_path)
    document = made.document(nav.uri("run.moe", tmp_path))
    assert document is not None
    at = nav.parameters(types.TextDocumentPositionParams, document, document.text.index("box x"))
    edit = navigation.rename(made, types.RenameParams(at.text_document, at.position, "rack"))
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
    edit = navigation.rename(made, types.RenameParams(at.text_document, at.position, "rack"))
    assert edit is not None
    after = nav.changed(made, edit)
    assert set(after) == {nav.uri("machines.moe", tmp_path), nav.uri("runs/run.moe", tmp_path)}
    assert "rack x 16" in after[nav.uri("runs/run.moe", tmp_path)]
    with pytest.raises(navigation.RefusedError, match="declared twice"):
        (inner / "run.moe").write_text('use "../machines.moe"\nhardware rack { }\nbox x 8\n', encoding="utf-8")
        navigation.rename(made, types.RenameParams(at.text_document, at.position, "rack"))
    found = structure.workspace_symbols(made, types.WorkspaceSymbolParams("rack"))
    assert Path(found[0].location.uri).name == "run.moe"


# Definition, references, highlight: every kind of name, over files, with emoji and half-written statements around.


def defined(text_with_mark: str, files: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    """File, covered text and whole line of each definition of the marked name."""
    text, offset = nav.marked(text_with_mark)
    made = nav.workspace({**(files or {}), "run.moe": text})
    document = made.document(nav.uri("run.moe"))
    assert document is not None
    found = navigation.definition(made, nav.parameters(types.DefinitionParams, document, offset)) or []
    out: list[tuple[str, str, str]] = []
    for place in found:
        path = Path(uris.to_fs_path(place.uri) or "")
        target = made.document(place.uri)
        whole = target.text if target is not None else path.read_text(encoding="utf-8")
        line = whole.split("\n")[place.range.start.line]
        covered = "" if place.range.start == place.range.end else nav.covered(whole, place.range)
        out.append((path.name, covered, line.strip()))
    return out


def marked(pattern: str) -> str:
    """The run file with the mark before the group of a pattern."""
    text = FILES["run.moe"]
    match = re.search(pattern, text)
    assert match is not None, pattern
    return text[: match.start(1)] + nav.MARK + text[match.start(1) :]


IN_FILE = table_of("lsp", "rename: in file")


@pytest.mark.parametrize("name", IN_FILE)
def test_definition(name: str) -> None:
    pattern, covered, line = IN_FILE[name]
    found = defined(marked(pattern), FILES)
    assert any(f[1] == covered and f[2].startswith(line) for f in found), found


def test_a_used_file_opens_at_its_start() -> None:
    ((file, covered, _),) = defined(marked(r'use "(mach)ines'), FILES)
    assert (file, covered) == ("machines.moe", "")


def test_into_the_real_files_of_the_stdlib() -> None:
    for text, file, line in (
        (f"qwen3_30b_{nav.MARK}a3b\nh100 x 8", "qwen3_30b_a3b.moe", "model qwen3_30b_a3b {"),
        (f"qwen3_30b_a3b\nh1{nav.MARK}00 x 8", "h100.moe", "hardware h100 {"),
        (f'allow layout_advice.cp_from{nav.MARK}_4k_shard because "😀"', "phases.moe", "prefer cp_from_4k_shard:"),
        (f"require lay{nav.MARK}ers > 2\nqwen3_30b_a3b", "qwen3_30b_a3b.moe", "layers 48 hidden 2048"),
    ):
        found = defined(text)
        assert found[0][0] == file
        assert found[0][2].startswith(line)


def test_in_statements_that_do_not_parse() -> None:
    for text, line in (
        (f"pin 😀 qwen3_30b{nav.MARK}_a3b", "model qwen3_30b_a3b {"),
        (f"allow std.mesh.hea{nav.MARK}ds 5", "require heads:"),
        (f"require dp{nav.MARK} >", "let dp ="),
        (f"run a {{ gb200{nav.MARK} x", "hardware gb200 {"),
        (f"rules r {{ require x: has_lay{nav.MARK}out(", 'Function("has_layout"'),
    ):
        found = defined(text)
        assert found, text
        assert found[0][2].startswith(line)


def test_nothing_where_nothing_is_named() -> None:
    for text in ("# qwen3_30b‸_a3b", 'data "h10‸0"', "se‸q", "‸", "mod‸el x {", "unknown_na‸me"):
        found = defined(text)
        assert not found or found[0][0].endswith(".py"), text


def test_in_an_open_file_of_the_stdlib() -> None:
    path = resources.stdlib_dir() / "rules" / "mesh.moe"
    made, text = nav.workspace(), path.read_text(encoding="utf-8")
    made.open(path.as_uri(), 1, text)
    document = made.document(path.as_uri())
    assert document is not None
    for name, kind in (("heads: ", "rule"), ("dp = ", "let")):
        offset = text.index(name)
        (place,) = navigation.definition(made, nav.parameters(types.DefinitionParams, document, offset)) or ()
        assert (place.uri, document.lines.offset(place.range.start)) == (path.as_uri(), offset), kind
        context = types.ReferenceContext(True)
        places = (
            navigation.references(made, nav.parameters(types.ReferenceParams, document, offset, context=context)) or []
        )
        keys = [(p.uri, p.range.start.line, p.range.start.character) for p in places]
        assert len(keys) == len(set(keys))


# ---------------------------------------------------------------- references


def referred(pattern: str, declared: bool = True) -> list[str]:
    text, offset = nav.marked(marked(pattern))
    made = nav.workspace({**FILES, "run.moe": text})
    document = made.document(nav.uri("run.moe"))
    assert document is not None
    context = types.ReferenceContext(declared)
    found = navigation.references(made, nav.parameters(types.ReferenceParams, document, offset, context=context)) or []
    out: list[str] = []
    for place in found:
        path = Path(uris.to_fs_path(place.uri) or "")
        target = made.document(place.uri)
        whole = target.text if target is not None else path.read_text(encoding="utf-8")
        out.append(f"{path.name}:{nav.covered(whole, place.range)}")
    return out


def test_references_over_files() -> None:
    assert referred(r"(box) x 16") == ["machines.moe:box", "run.moe:box"]
    assert referred(r"(box) x 16", declared=False) == ["run.moe:box"]
    assert referred(r"let (replicas)") == ["run.moe:replicas"] * 3
    assert referred(r"allow (house)\.") == ["run.moe:house"] * 2
    assert referred(r"from (a) ") == ["run.moe:a"] * 2


def test_references_of_the_stdlib_are_in_the_stdlib_too() -> None:
    found = referred(r"replicas = (dp)")
    assert found[0] == "mesh.moe:dp"
    assert "run.moe:dp" in found
    assert all(f.endswith(":dp") for f in found)
    axis = referred(r"pin (tp)=")
    assert "run.moe:tp" in axis
    assert len(axis) > 20
    assert {f.rpartition(":")[2] for f in axis} == {"tp"}


def test_files_that_do_not_hang_together_share_nothing_of_their_own() -> None:
    made = nav.workspace({"a.moe": "run x { fit first }", "b.moe": "run x { fit first }\nrun y from x { fit first }"})
    document = made.document(nav.uri("a.moe"))
    assert document is not None
    context = types.ReferenceContext(True)
    found = navigation.references(made, nav.parameters(types.ReferenceParams, document, 5, context=context))
    assert [p.uri for p in found or ()] == [nav.uri("a.moe")]


def test_highlight_counts_as_the_client_does() -> None:
    text = 'rules 日本 { }\nrules r { let n = dp because "😀😀" }\nrequire "😀" == "😀" or n > 1; require n < 9'
    text = text.replace("rules 日本 { }\n", "# 日本 😀\n")
    document = nav.numbered(text)
    found = navigation.highlight(document, nav.parameters(types.DocumentHighlightParams, document, text.index("n =")))
    assert [nav.covered(text, h.range) for h in found or ()] == ["n", "n", "n"]
    kinds = [h.kind for h in found or ()]
    assert kinds == [
        types.DocumentHighlightKind.Write,
        types.DocumentHighlightKind.Read,
        types.DocumentHighlightKind.Read,
    ]
