"""Navigation and editing through the real server, as four editors ask: positions in each one's units, edits applied."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcRequestCancelled
from pytest_lsp import LanguageClient

from moedsl.lang.formatter import layout
from moedsl.lsp.document import Lines
from tests.helpers import rotation
from tests.lsp.lsp_client import PROFILES, Session, config

pytest_plugins = ["pytest_lsp"]
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("error::pytest_lsp.LspSpecificationWarning"),  # an answer that the client cannot take
]
TEXT = (
    '# 日本 😀\nrules r { let n = dp because "😀" }\nqwen3_30b_a3b;h100   x 16\n'
    'require "😀" == "😀" or n > 1; pin dispatcher=hybridp\n'
)


@pytest_lsp.fixture(config=config(), params=PROFILES, scope="module")
async def client(
    client: LanguageClient, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[None]:
    session = Session(client, tmp_path_factory.mktemp("files"))
    client.session = session  # type: ignore[attr-defined]
    await session.start(request.param)
    session.open("run.moe", TEXT)
    yield
    await client.shutdown_session()


@pytest.fixture
def session(client: LanguageClient) -> Session:
    return client.session  # type: ignore[attr-defined]


def lines(session: Session, text: str = TEXT) -> Lines:
    """The text as this client counts; tests/lsp/test_text.py holds `Lines` to it."""
    assert session.result is not None
    agreed = session.result.capabilities.position_encoding or "utf-16"
    return Lines(text, str(getattr(agreed, "value", agreed)))


def at(session: Session, part: str) -> types.Position:
    return lines(session).position(TEXT.index(part))


def edited(session: Session, edit: types.WorkspaceEdit | None, text: str = TEXT) -> str:
    """The run file after a workspace edit of either form."""
    assert edit is not None
    edits = [e for es in (edit.changes or {}).values() for e in es]
    edits += [e for c in edit.document_changes or () if isinstance(c, types.TextDocumentEdit) for e in c.edits]  # type: ignore[misc]
    known = lines(session, text)
    for e in sorted(edits, key=lambda e: known.offset(e.range.start), reverse=True):
        start, end = known.offsets(e.range)
        text = text[:start] + e.new_text + text[end:]
    return text


async def test_definition_and_references(session: Session) -> None:
    where = session.document("run.moe")
    found = await session.client.text_document_definition_async(types.DefinitionParams(where, at(session, "n > 1")))
    (place,) = found or ()  # type: ignore[misc]
    assert lines(session).offsets(place.range) == (TEXT.index("n ="), TEXT.index("n =") + 1)
    params = types.ReferenceParams(types.ReferenceContext(True), where, at(session, "n ="))
    places = await session.client.text_document_references_async(params) or ()
    assert [lines(session).offsets(p.range)[0] for p in places] == [TEXT.index("n ="), TEXT.index("n > 1")]
    into = types.DefinitionParams(where, at(session, "qwen3_30b"))
    (place,) = await session.client.text_document_definition_async(into) or ()  # type: ignore[misc]
    assert place.uri.endswith("stdlib/models/qwen3_30b_a3b.moe")


async def test_rename_and_its_refusal(session: Session) -> None:
    where = session.document("run.moe")
    params = types.RenameParams(where, at(session, "n > 1"), "replicas")
    after = edited(session, await session.client.text_document_rename_async(params))
    assert after == TEXT.replace("let n", "let replicas").replace("n > 1", "replicas > 1")
    with pytest.raises(JsonRpcException, match="declared by the stdlib"):
        await session.client.text_document_rename_async(types.RenameParams(where, at(session, "dp because"), "x"))
    with pytest.raises(JsonRpcException, match="already means something else"):
        await session.client.text_document_rename_async(types.RenameParams(where, at(session, "n > 1"), "tp"))


async def test_prepare_rename(session: Session) -> None:
    assert session.result is not None
    if not isinstance(session.result.capabilities.rename_provider, types.RenameOptions):
        return  # this client does not ask first
    params = types.PrepareRenameParams(session.document("run.moe"), at(session, "n > 1"))
    found = await session.client.text_document_prepare_rename_async(params)
    assert found is not None
    assert found.placeholder == "n"  # type: ignore[union-attr]


async def test_formatting(session: Session) -> None:
    params = types.DocumentFormattingParams(session.document("run.moe"), types.FormattingOptions(2, True))
    edits = await session.client.text_document_formatting_async(params)
    made = types.WorkspaceEdit(changes={"": list(edits or ())})
    assert edited(session, made) == layout(TEXT)


async def test_tokens(session: Session) -> None:
    found = await session.client.text_document_semantic_tokens_full_async(
        types.SemanticTokensParams(session.document("run.moe"))
    )
    assert found is not None
    line = column = 0
    covered: list[str] = []
    for i in range(0, len(found.data), 5):
        step, start, length, *_ = found.data[i : i + 5]
        line, column = line + step, start if step else column + start
        begin, end = (types.Position(line, c) for c in (column, column + length))
        a, b = lines(session).offsets(types.Range(begin, end))
        covered.append(TEXT[a:b])
    assert covered[:3] == ["# 日本 😀", "rules", "r"]
    assert covered[-3:] == ["dispatcher", "=", "hybridp"] or covered[-2:] == ["dispatcher", "="]


async def test_structure(session: Session) -> None:
    where = session.document("run.moe")
    client = session.client
    assert await client.text_document_document_symbol_async(types.DocumentSymbolParams(where))
    assert await client.workspace_symbol_async(types.WorkspaceSymbolParams("cp_from"))
    assert await client.text_document_folding_range_async(types.FoldingRangeParams(where)) == ()
    (grown,) = (
        await client.text_document_selection_range_async(types.SelectionRangeParams(where, [at(session, "n > 1")]))
        or ()
    )
    assert grown.parent is not None
    assert await client.text_document_document_highlight_async(
        types.DocumentHighlightParams(where, at(session, "n > 1"))
    )
    assert await client.text_document_document_link_async(types.DocumentLinkParams(where)) == ()


async def test_a_quick_fix(session: Session) -> None:
    (d,) = await session.diagnostics("run.moe")
    params = types.CodeActionParams(session.document("run.moe"), d.range, types.CodeActionContext([d]))
    found = await session.client.text_document_code_action_async(params) or ()
    action = next(a for a in found if isinstance(a, types.CodeAction) and a.kind == types.CodeActionKind.QuickFix)
    assert [*(action.diagnostics or ())] == [d]
    assert edited(session, action.edit) == TEXT.replace("hybridp", "hybridep")


async def test_lenses_and_what_they_run(session: Session) -> None:
    session.open("fine.moe", "qwen3_30b_a3b\nh100 x 16\nfit first\n")
    await session.hints("fine.moe")
    found = await session.client.text_document_code_lens_async(types.CodeLensParams(session.document("fine.moe"))) or ()
    assert [f.range.start.line for f in found] == [1, 1]
    for lens in found:
        assert lens.command is not None
        params = types.ExecuteCommandParams(lens.command.command, arguments=lens.command.arguments)
        got = await session.client.workspace_execute_command_async(params)
        assert isinstance(got, dict) or hasattr(got, "uri")
    session.applied.clear()
    params = types.ExecuteCommandParams("moedsl.pinAll", arguments=[session.uri("fine.moe")])
    await session.client.workspace_execute_command_async(params)
    while not session.applied:
        await session.hints("fine.moe")
    assert "pin pp=1" in edited(session, session.applied[0], "qwen3_30b_a3b\nh100 x 16\nfit first\n")


async def test_a_refused_file_has_no_answers(session: Session) -> None:
    session.open("binary.moe", "qwen3\0")
    where = session.document("binary.moe")
    start = types.Position(0, 0)
    client = session.client
    assert await client.text_document_definition_async(types.DefinitionParams(where, start)) is None
    assert await client.text_document_rename_async(types.RenameParams(where, start, "a")) is None
    assert await client.text_document_document_symbol_async(types.DocumentSymbolParams(where)) is None
    context = types.CodeActionContext([])
    assert (
        await client.text_document_code_action_async(types.CodeActionParams(where, types.Range(start, start), context))
        is None
    )


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("textDocument/hover", None),
        ("textDocument/hover", {"textDocument": {"uri": "file:///x.moe"}}),
        ("textDocument/hover", {"textDocument": {"uri": "file:///x.moe"}, "position": {"line": -1, "character": 0}}),
        ("textDocument/hover", {"textDocument": {"uri": "file:///x.moe"}, "position": {"line": "0", "character": 0}}),
        ("textDocument/hover", {"textDocument": {"uri": "file:///x.moe"}, "position": {"line": 0, "character": 0.5}}),
        ("textDocument/selectionRange", {"textDocument": 5, "positions": "x"}),
        ("workspace/executeCommand", {"command": "moedsl.showPlan", "arguments": [1, 2, 3]}),
        ("workspace/executeCommand", {"command": "moedsl.pin", "arguments": []}),
        ("workspace/executeCommand", {"command": "nothing"}),
    ],
)
async def test_unusable_parameters_are_answered(session: Session, method: str, params: Any) -> None:
    protocol = session.client.protocol
    answer: Future[Any] = Future()
    protocol._request_futures["unusable"] = answer
    protocol._send_data({"jsonrpc": "2.0", "id": "unusable", "method": method, "params": params})  # as no client does
    with pytest.raises(JsonRpcInvalidParams, match=r"Invalid Params: .+"):
        await asyncio.wait_for(asyncio.wrap_future(answer), 20)


@pytest.mark.parametrize(
    "method", rotation.some("cancelled", ["workspace/executeCommand", "textDocument/inlayHint"], 1)
)
async def test_a_cancelled_request_ends(session: Session, method: str) -> None:
    """While the solver works; the server goes on answering."""
    session.open("large.moe", "deepseek_v3\nh100 x 2048\nseq 4k\nthroughput first\n")
    where, start, end = session.document("large.moe"), types.Position(0, 0), types.Position(2, 0)
    params = (
        types.ExecuteCommandParams("moedsl.showReport", arguments=[where.uri])
        if method == "workspace/executeCommand"
        else types.InlayHintParams(where, types.Range(start, end))
    )
    sent = session.client.protocol.send_request(method, params, msg_id="cancelled")
    session.client.cancel_request(types.CancelParams("cancelled"))
    with pytest.raises(JsonRpcRequestCancelled):
        await asyncio.wait_for(asyncio.wrap_future(sent), 20)
    assert await session.client.text_document_hover_async(types.HoverParams(where, start)) is not None
