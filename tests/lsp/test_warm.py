"""What is loaded before the client asks for the first time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from tests.lsp.lsp_client import ENVIRONMENT

ASK = """
import sys
from lsprotocol import types
from pygls.protocol import default_converter
from moedsl.lsp import server, warm
from moedsl.lsp.client import Client
from moedsl.lsp.features import diagnostics
from moedsl.lsp.workspace import Workspace

warm.warm_up(default_converter())
known, text = set(sys.modules), "deepseek_v3; gb200 x 256\\nfit first\\n" + sys.argv[1]
from moedsl.lsp.features import completion

files = Workspace(Client(snippets=True))
files.open("file:///t.moe", 1, text)
document = files.document("file:///t.moe")
diagnostics.of(document, files)
at = types.Position(2, len(sys.argv[1]))
found = completion.answer(document, types.CompletionParams(types.TextDocumentIdentifier("file:///t.moe"), at))
print(len(found.items) > 0, sorted(set(sys.modules) - known))
"""


@pytest.mark.parametrize("typed", ["", "pin ep=", "allow mesh.", "set model.moe", "require "])
def test_the_first_answer_imports_nothing(typed: str) -> None:
    command = [sys.executable, "-c", ASK, typed]
    asked = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == "True []\n"
