"""A header that announces too much ends the server with a sentence, for the log and for the editor's window."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from argparse import Namespace

import pytest

from moedsl.cli.commands import lsp

HELLO = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": null}}'


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"Content-Length: 99999999999\r\n\r\n{}", "a message of 99,999,999,999 bytes"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}", "a header of more than 1,000 bytes"),
    ],
)
def test_a_header_that_cannot_be_followed(
    header: bytes, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    end, start = os.pipe()
    wire = io.BytesIO()
    stdout = io.TextIOWrapper(wire)  # kept: the server puts another in its place
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(end, "rb")))
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with os.fdopen(start, "wb") as client:  # which stays open: an editor waits
        client.write(b"Content-Length: %d\r\n\r\n%s" % (len(HELLO), HELLO) + header)
        client.flush()
        assert lsp.run(Namespace()) == 1
    assert f"the client announced {what}" in capsys.readouterr().err
    answer, last = (json.loads(part.partition(b"\r\n\r\n")[2]) for part in wire.getvalue().split(b"Content-Length")[1:])
    assert answer["id"] == 1 and answer["result"]["serverInfo"]["name"] == "moedsl"
    assert last["method"] == "window/showMessage" and what in last["params"]["message"]
