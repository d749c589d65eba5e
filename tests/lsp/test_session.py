"""The real server over stdio, as four editors talk to it."""

import asyncio
import json
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import LanguageClient

from moedsl.cli.commands import integrations
from moedsl.compiler import compile_source
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.lsp.lsp_client import ENVIRONMENT, PROFILES, Session, config, server_command

pytest_plugins = ["pytest_lsp"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("error::pytest_lsp.LspSpecificationWarning"),  # an answer that the client cannot take
]
BRING_UP = (ROOT / "examples" / "qwen3_235b_gb200_128k.moe").read_text(encoding="utf-8")
UNITS = {"utf-8": lambda t: len(t.encode()), "utf-16": lambda t: len(t.encode("utf-16-le")) // 2, "utf-32": len}


@pytest_lsp.fixture(config=config(), params=PROFILES, scope="module")
async def client(
    client: LanguageClient, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    session = Session(client, tmp_path_factory.mktemp("files"))
    client.session = session  # type: ignore[attr-defined]
    await session.start(request.param)
    yield
    await client.shutdown_session()


@pytest.fixture
def session(client: LanguageClient) -> Session:
    return client.session  # type: ignore[attr-defined]


def units(session: Session, text: str) -> int:
    """How long a text is to this client."""
    assert session.result is not None
    return UNITS[session.result.capabilities.position_encoding or "utf-16"](text)


async def test_several_errors_are_told_each_once(session: Session) -> None:
    session.open("errors.moe", "qwen3_30b_a3b\nh100 x 16\npin tq=3\nseq\nprecision fp9\n")
    found = await session.diagnostics("errors.moe")
    assert [(d.range.start.line, d.code) for d in found] == [
        (2, "check.unknown_axis"), (3, "parse.unexpected"), (4, "check.unknown_word"),
    ]  # fmt: skip
    assert all(d.source == "moedsl" and d.severity == types.DiagnosticSeverity.Error for d in found)
    assert "did you mean `fp8`?" in found[2].message


async def test_a_half_written_statement_does_not_hide_the_others(session: Session) -> None:
    session.open("half.moe", "qwen3_30b_a3b\nh100 x 16\n")
    for typed, ids in (
        ("p", ["check.unknown_name"]),
        ("pin", ["parse.unexpected"]),
        ("pin tp", ["parse.unexpected"]),
        ("pin tp=2", []),
    ):
        session.replace("half.moe", f"qwen3_30b_a3b\nh100 x 16\n{typed}\n")
        assert await session.ids("half.moe") == ids, typed


async def test_ranges_count_as_the_client_does(session: Session) -> None:
    line = 'require few: tp <= 2 because "四枚 🚀 GPU"; pin tq=1'
    session.open("wide.moe", f"qwen3_30b_a3b; h100 x 16\n{line}\n")
    (found,) = await session.diagnostics("wide.moe")
    start = units(session, line[: line.index("tq")])
    assert (found.range.start.character, found.range.end.character) == (start, start + 2)


async def test_an_edit_counts_as_the_client_does(session: Session) -> None:
    line = "# 🚀🚀 四\u2028枚; "
    session.open("edit.moe", f"qwen3_30b_a3b; h100 x 16\n{line}\npin tq=1 # 🚀\n")
    assert await session.ids("edit.moe") == ["check.hidden_text", "check.unknown_axis"]
    at = types.Position(2, 5)
    session.change(
        "edit.moe", types.TextDocumentContentChangePartial(range=types.Range(at, types.Position(2, 6)), text="p")
    )
    assert await session.ids("edit.moe") == ["check.hidden_text"]
    after = types.Position(1, units(session, line))
    session.change("edit.moe", types.TextDocumentContentChangePartial(range=types.Range(after, after), text="\nseq"))
    assert await session.ids("edit.moe") == ["check.hidden_text", "parse.unexpected"]


async def test_windows_line_ends_and_a_byte_order_mark(session: Session) -> None:
    session.open("dos.moe", "\ufeffqwen9\r\nh100 x 16\r\npin tq=1\r\n")
    found = await session.diagnostics("dos.moe")
    mark = units(session, "\ufeff")
    assert [(d.range.start.line, d.range.start.character, d.range.end.character) for d in found] == [
        (0, mark, mark + 5),
        (2, 4, 6),
    ]


async def test_a_name_that_was_meant_is_completed(session: Session) -> None:
    session.open("names.moe", "qwen3_30b_a3b\nh100 x 16\npin disp\n")
    items = {i.label: i for i in await session.complete("names.moe", 2, 8)}
    edit = items["dispatcher"].text_edit
    assert edit is not None and edit.new_text == "dispatcher="
    place = edit.insert if isinstance(edit, types.InsertReplaceEdit) else edit.range
    assert (place.start, place.end) == (types.Position(2, 4), types.Position(2, 8))


async def test_snippets_are_for_clients_that_know_them(session: Session) -> None:
    item = session.client.capabilities.text_document.completion.completion_item  # type: ignore[union-attr]
    known = bool(item and item.snippet_support)
    session.open("snippets.moe", "\n")
    run = next(i for i in await session.complete("snippets.moe", 0, 0) if i.label == "run")
    assert ("$0" in (run.text_edit.new_text if run.text_edit else "")) is known
    assert (run.insert_text_format == types.InsertTextFormat.Snippet) is known


async def test_hover_says_what_a_name_is(session: Session) -> None:
    session.open("hover.moe", BRING_UP)
    line = next(i for i, text in enumerate(BRING_UP.split("\n")) if text.startswith("gb200"))
    text = await session.hover("hover.moe", line, 2)
    assert text is not None and "NVIDIA GB200" in text


def planned() -> list[str]:
    """What `moedsl plan` chooses for BRING_UP, as hints say it."""
    layout = compile_source(Source("run.moe", BRING_UP), "plan").plans[0].layout
    return [f"{name}={getattr(layout, name)}" for name in ("pp", "tp", "cp", "ep")]


async def test_hints_say_what_the_plan_says_and_pin_it(session: Session) -> None:
    session.open("hints.moe", BRING_UP)
    hints = await session.hints("hints.moe")
    labels = [str(h.label) for h in hints]
    assert labels[:4] == planned() and labels[-1].endswith("tok/s/GPU")
    cp = hints[2]
    assert cp.text_edits is not None and cp.text_edits[0].new_text == f"\npin {planned()[2]}"
    pinned = types.TextDocumentContentChangePartial(range=cp.text_edits[0].range, text=cp.text_edits[0].new_text)
    session.change("hints.moe", pinned)
    assert [d for d in await session.diagnostics("hints.moe") if d.severity == types.DiagnosticSeverity.Error] == []
    left = [label for label in planned() if not label.startswith("cp=")]
    assert [str(h.label) for h in await session.hints("hints.moe")][:3] == left


async def test_a_command_pins_the_whole_plan(session: Session) -> None:
    session.open("pin.moe", BRING_UP)
    await session.hints("pin.moe")
    params = types.ExecuteCommandParams("moedsl.pin", [session.uri("pin.moe"), "main", []])
    before = len(session.applied)
    await session.client.workspace_execute_command_async(params)
    await session.diagnostics("pin.moe")
    (edit,) = session.applied[before:]
    assert edit.changes is not None
    (text,) = (e.new_text for edits in edit.changes.values() for e in edits)
    assert text.startswith(f"\npin {' '.join(planned())}")


async def test_what_nothing_satisfies_is_told_once_it_is_known(session: Session) -> None:
    session.open("infeasible.moe", "qwen3_30b_a3b\ngb200 x 64\npin dispatcher=deepep\n")
    assert await session.first_ids("infeasible.moe") == []
    while not (found := await session.diagnostics("infeasible.moe", solved=True)):
        pass
    (conflict,) = found
    assert conflict.code == "std.dispatch.deepep_gpu" and conflict.range.start.line == 2
    assert "because: " in conflict.message and "help: write `pin dispatcher=alltoall`" in conflict.message


async def test_an_unsaved_file_is_used_as_it_is_typed(session: Session) -> None:
    (session.folder / "machines.moe").write_text("profile ours { h100 x 8 }\n")
    session.open("uses.moe", 'use "machines.moe"\nours\nqwen3_30b_a3b\n')
    assert await session.ids("uses.moe") == []
    session.open("machines.moe", "profile theirs { h100 x 8 }\n")
    assert await session.ids("machines.moe") == []
    session.replace("machines.moe", "profile theirs { h100 x 8 }\n# changed\n")
    while "check.unknown_name" not in await session.ids("uses.moe"):
        pass
    session.close("machines.moe")
    while await session.ids("uses.moe"):
        pass


async def test_a_used_file_that_changes_on_the_disk(session: Session) -> None:
    used = session.folder / "rack.moe"
    session.open("watched.moe", 'use "rack.moe"\nours\nqwen3_30b_a3b\n')
    assert "read.missing" in await session.ids("watched.moe")
    for text, ids in (("profile ours { h100 x 8 }\n", []), ("profile theirs { h100 x 8 }\n", ["check.unknown_name"])):
        kind = types.FileChangeType.Changed if used.exists() else types.FileChangeType.Created
        used.write_text(text)
        event = types.FileEvent(used.as_uri(), kind)
        session.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        while await session.ids("watched.moe") != ids:
            pass


async def test_files_that_use_each_other_come_to_rest(session: Session) -> None:
    session.open("one.moe", 'use "two.moe"\nprofile p_one { h100 x 8 }\nqwen3_30b_a3b; p_two\n')
    session.open("two.moe", 'use "one.moe"\nprofile p_two { h100 x 8 }\nqwen3_30b_a3b; p_one\n')
    while await session.ids("one.moe") or await session.ids("two.moe"):
        pass
    await session.hints("one.moe")
    await session.hints("two.moe")
    before = len(session.published)
    await asyncio.sleep(0.5)
    assert len(session.published) - before <= 2


async def test_a_file_without_a_path(session: Session) -> None:
    session.open("untitled:Untitled-1", "qwen3_30b_a3b\nh100 x 16\npin tq=1\n")
    assert await session.ids("untitled:Untitled-1") == ["check.unknown_axis"]


async def test_a_file_outside_the_folders(session: Session, tmp_path: Path) -> None:
    name = (tmp_path / "a ü.moe").as_uri()
    session.open(name, "qwen3_30b_a3b\nh100 x 16\npin tq=1\n")
    assert await session.ids(name) == ["check.unknown_axis"]


async def test_a_file_that_only_declares_names_no_model(session: Session) -> None:
    text = (ROOT / "examples" / "own_hardware.moe").read_text(encoding="utf-8").split("\nmodel qwen3")[0] + "\n"
    session.open("declares.moe", text)
    assert await session.ids("declares.moe") == []


async def test_a_file_of_the_stdlib_is_right(session: Session) -> None:
    path = ROOT / "stdlib" / "rules" / "walls.moe"
    session.open(path.as_uri(), path.read_text(encoding="utf-8"))
    assert await session.ids(path.as_uri()) == []


async def test_five_megabytes_and_bytes_are_refused_with_one_diagnostic(session: Session) -> None:
    session.open("large.moe", "pin tp=1 # a long line of a file that is none\n" * 110_000)
    assert await session.ids("large.moe") == ["parse.too_large"]
    session.open("binary.moe", "\x7fELF\x02\x01\x00\x00" * 4096)
    assert await session.ids("binary.moe") == ["parse.encoding"]
    assert await session.complete("large.moe", 3, 0) == []
    assert await session.hover("binary.moe", 0, 0) is None
    end = types.Position(109_999, 0)
    session.change(
        "large.moe", types.TextDocumentContentChangePartial(range=types.Range(types.Position(1, 0), end), text="")
    )
    assert "parse.too_large" not in await session.ids("large.moe")


async def test_a_request_about_a_file_that_is_not_open(session: Session) -> None:
    assert await session.hover("never.moe", 0, 0) is None
    assert await session.complete("never.moe", 0, 0) == []


async def test_a_closed_file_has_no_diagnostics(session: Session) -> None:
    session.open("closed.moe", "pin tq=1\n")
    assert await session.ids("closed.moe")
    session.close("closed.moe")
    while session.client.diagnostics[session.uri("closed.moe")]:
        await session.hover("closed.moe", 0, 0)


async def test_the_newest_text_is_solved(session: Session) -> None:
    """Hints asked for while one text after the other is typed are those of the last."""
    session.open("typing.moe", BRING_UP)
    for tp in (1, 2, 4, 8):
        session.replace("typing.moe", f"{BRING_UP}pin tp={tp}\n")
    labels = [str(h.label) for h in await session.hints("typing.moe")]
    assert not any(text.startswith("tp=") for text in labels)
    session.replace("typing.moe", f"{BRING_UP}pin cp=16\n")
    labels = [str(h.label) for h in await session.hints("typing.moe")]
    assert "tp=1" in labels and not any(text.startswith("cp=") for text in labels)


CRASH = "import moedsl.lsp.describe as h; h.hover = lambda *_: 1 // 0"


@pytest_lsp.fixture(config=config(CRASH), scope="module")
async def crashing(client: LanguageClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    client.session = Session(client, tmp_path_factory.mktemp("crash"))  # type: ignore[attr-defined]
    await client.session.start("neovim")  # type: ignore[attr-defined]
    yield
    await client.shutdown_session()


async def test_a_crash_of_one_request_ends_nothing(crashing: LanguageClient) -> None:
    session: Session = crashing.session  # type: ignore[attr-defined]
    session.open("crash.moe", "qwen3_30b_a3b\nh100 x 16\n")
    for _ in range(3):
        with pytest.raises(JsonRpcException, match="ZeroDivisionError"):
            await session.hover("crash.moe", 0, 0)
    session.replace("crash.moe", "qwen3_30b_a3b\nh100 x 16\npin tq=1\n")
    assert await session.ids("crash.moe") == ["check.unknown_axis"]
    assert await session.complete("crash.moe", 2, 0)


@pytest.mark.parametrize("goodbye", rotation.some("goodbye", ["", "half"], 1))
async def test_a_client_that_goes_away_ends_the_server(goodbye: str) -> None:
    """Whatever is being solved; a message that was cut off counts for nothing."""
    process = await asyncio.create_subprocess_exec(
        *server_command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdin is not None
    process.stdin.write(b"Content-Length: 100\r\n\r\n{" if goodbye else b"")
    process.stdin.close()
    await process.wait()


async def test_what_is_no_message_ends_nothing() -> None:
    process = await asyncio.create_subprocess_exec(
        *server_command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdin is not None and process.stdout is not None
    hello = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": None}}
    )
    for body in ("nonsense", '{"jsonrpc": "2.0", "id": 7, "method": "no/such"}', hello):
        process.stdin.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    answers = b""
    while b'"capabilities"' not in answers:
        answers += await process.stdout.read(1 << 16)
    process.stdin.close()
    await process.wait()


async def test_without_pygls_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert integrations.lsp(Namespace()) == 1
    assert "pip install 'moedsl[lsp]'" in capsys.readouterr().err
