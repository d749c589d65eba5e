"""Questions to the features without a server: a text with `|` where the cursor is."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris

from moedsl.lsp import checking, completion, describe
from moedsl.lsp.checking import solve
from moedsl.lsp.document import Client, Document
from moedsl.lsp.workspace import Workspace
from tests.helpers.paths import ROOT

EVERYTHING = Client(
    snippets=True,
    completion_markdown=True,
    hover_markdown=True,
    insert_replace=True,
    related_information=True,
    code_description=True,
    diagnostic_data=True,
)
NAME = types.TextDocumentIdentifier("file:///project/a.moe")


def document(text: str, client: Client = EVERYTHING, solved: bool = False) -> Document:
    """A snapshot of a text; `solved`: with the solver's answer."""
    files = Workspace(client)
    files.open(NAME.uri, 1, text)
    made = files.document(NAME.uri)
    assert made is not None
    return made.solved(checking.solve(made.analysis)) if solved else made


def cut(text: str) -> tuple[str, int]:
    """The text without its cursor, and where that was."""
    at = text.index("|")
    return text[:at] + text[at + 1 :], at


def items(text: str, client: Client = EVERYTHING) -> list[types.CompletionItem]:
    """What is completed at the cursor."""
    plain, at = cut(text)
    d = document(plain, client)
    return list(completion.completion(d, types.CompletionParams(NAME, d.lines.position(at))).items)


def labels(text: str) -> list[str]:
    return [i.label for i in items(text)]


def written(text: str) -> list[str]:
    """The text after each completion is accepted, snippets left as they are."""
    plain, _ = cut(text)
    lines = document(plain).lines
    out: list[str] = []
    for item in items(text, Client()):
        assert isinstance(item.text_edit, types.TextEdit)
        start, end = lines.offsets(item.text_edit.range)
        out.append(plain[:start] + item.text_edit.new_text + plain[end:])
    return out


def shown(text: str, client: Client = EVERYTHING, solved: bool = False) -> str | None:
    """What hovering at the cursor shows."""
    plain, at = cut(text)
    d = document(plain, client, solved)
    found = describe.hover(d, types.HoverParams(NAME, d.lines.position(at)))
    return found.contents.value if found and isinstance(found.contents, types.MarkupContent) else None


# What the tests of navigation share: files opened in a workspace, marked places, edits applied as an editor does.

MARK = "‸"
"""Marks a place in a text."""
ALL = Client(hierarchical_symbols=True, document_changes=False, diagnostic_data=True, related_information=True)


def workspace(files: dict[str, str] | None = None, root: Path = Path("/nowhere"), client: Client = ALL) -> Workspace:
    """A workspace with files open."""
    made = Workspace(client, (str(root),))
    for name, text in (files or {}).items():
        made.open(uri(name, root), 1, text)
    return made


def uri(name: str, root: Path = Path("/nowhere")) -> str:
    return uris.from_fs_path(str(root / name)) or ""


def numbered(text: str, client: Client = ALL, name: str = "run.moe") -> Document:
    """One open file."""
    found = workspace({name: text}, client=client).document(uri(name))
    assert found is not None
    return found


def marked(text: str) -> tuple[str, int]:
    """A text without its mark, and the mark's offset."""
    assert text.count(MARK) == 1, text
    return text.replace(MARK, ""), text.index(MARK)


def solved(made: Workspace, name: str = "run.moe") -> Document:
    """A file with its plans, as when the solver has answered."""
    found = made.document(uri(name))
    assert found is not None
    assert found.programs, found.diagnostics
    assert made.keep(found, solve(found.analysis))
    again = made.document(uri(name))
    assert again is not None
    return again


def at(found: Document, offset: int) -> types.Position:
    return found.lines.position(offset)


def ident(found: Document) -> types.TextDocumentIdentifier:
    return types.TextDocumentIdentifier(found.uri)


def edited(text: str, edits: Iterable[types.TextEdit]) -> str:
    """A text with LSP's edits made, counted in UTF-16 from scratch and not by the server's own code."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(p: types.Position) -> int:
        units, at = 0, 0
        line = lines[p.line] if p.line < len(lines) else ""
        while at < len(line) and units < p.character:
            units += len(line[at].encode("utf-16-le")) // 2
            at += 1
        return min(starts[min(p.line, len(lines))] + at, len(text))

    for e in sorted(edits, key=lambda e: (offset(e.range.start), offset(e.range.end)), reverse=True):
        text = text[: offset(e.range.start)] + e.new_text + text[offset(e.range.end) :]
    return text


def changed(made: Workspace, edit: types.WorkspaceEdit) -> dict[str, str]:
    """The texts after a workspace edit, by URI; of files that are not open, from the disk."""
    out: dict[str, str] = {}
    for where, edits in (edit.changes or {}).items():
        found = made.document(where)
        text = found.text if found is not None else Path(uris.to_fs_path(where) or "").read_text(encoding="utf-8")
        out[where] = edited(text, edits)
    return out


def covered(text: str, range_: types.Range) -> str:
    """What a range covers, in UTF-16 units counted from scratch."""
    lines = text.split("\n")
    assert range_.start.line == range_.end.line
    raw = lines[range_.start.line].encode("utf-16-le")
    return raw[2 * range_.start.character : 2 * range_.end.character].decode("utf-16-le")


def parameters(kind: Any, found: Document, offset: int, **more: Any) -> Any:
    """The parameters of a request about a place."""
    return kind(text_document=ident(found), position=at(found, offset), **more)


# Texts for the tests of the language server.


def long_file(lines: int = 300, rules: int = 25) -> str:
    """A run file of so many lines: machines and a model of its own, house rules, and runs that build on each other."""
    text = (ROOT / "examples" / "own_hardware.moe").read_text(encoding="utf-8")
    declared = text.split("\nmodel qwen3")[0].rstrip() + "\n"
    block = "".join(
        f'  require rule_{i}: tp * cp <= {64 + i} and (pp > 1 => vpp >= 1)\n    because "case {i}: a node holds eight"\n'
        f'    cite ours "runbook {i}"\n'
        for i in range(rules)
    )
    head = declared + "rules house when arch == hopper {\n" + block + "}\nmodel qwen3_30b_a3b\nbatch 1024\n"
    count = lines - head.count("\n")
    runs = "".join(_run(i) for i in range(count // 7 + 1))
    return "\n".join((head + runs).split("\n")[: lines - 1]).rsplit("\nrun ", 1)[0] + "\n"


def _run(i: int) -> str:
    base = " from run_0" if i else ""
    return (
        f"run run_{i}{base} {{\n  h100 x {8 * (i + 1)}\n  seq {4 * (i % 8 + 1)}k\n  pin tp={1 << i % 3} # reason {i}\n"
        f'  prefer few_{i}: micro_batch <= 2 worth 2% because "bursts"\n  fit first\n}}\n'
    )
