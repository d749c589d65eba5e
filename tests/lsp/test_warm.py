"""What is loaded before the client asks for the first time."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.paths import ROOT
from tests.lsp.lsp_client import ENVIRONMENT

TYPED = ["", "pin ep=", "allow mesh.", "set model.moe", "require "]
ASK = """
import os
import sys
from lsprotocol import types
from pygls.protocol import default_converter
from moedsl.lsp import server, warm
from moedsl.lsp.client import Client
from moedsl.lsp.features import diagnostics
from moedsl.lsp.workspace import Workspace

warm.warm_up(default_converter())
known = set(sys.modules)
for typed in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    from moedsl.lsp.features import completion

    files, text = Workspace(Client(snippets=True)), "deepseek_v3; gb200 x 256\\nfit first\\n" + typed
    files.open("file:///t.moe", 1, text)
    document = files.document("file:///t.moe")
    diagnostics.of(document, files)
    at = types.Position(2, len(typed))
    found = completion.answer(document, types.CompletionParams(types.TextDocumentIdentifier("file:///t.moe"), at))
    print(repr(typed), len(found.items) > 0, sorted(set(sys.modules) - known))
    break
"""
"""Each answer is the first of a process: a fork of one that is warm."""


def test_the_first_answer_imports_nothing() -> None:
    command = [sys.executable, "-c", ASK, *TYPED]
    asked = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines() == [f"{typed!r} True []" for typed in TYPED]
