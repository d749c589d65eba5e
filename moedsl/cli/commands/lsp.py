"""`moedsl lsp`: run the language server on standard input and output."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from argparse import Namespace

from moedsl.cli.own_version import own_version


def run(_: Namespace) -> int:
    """Serve until the client exits. Exit code 1 without pygls."""
    if importlib.util.find_spec("pygls") is None:
        print("the language server needs pygls: pip install 'moedsl[lsp]'", file=sys.stderr)
        return 1
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("MOEDSL_LSP_LOG", "WARNING"))
    from moedsl.lsp import server, solving

    wire = sys.stdout.buffer
    sys.stdout = sys.stderr  # only the protocol may write there
    sys.setswitchinterval(solving.SHORT)
    server.make(own_version()).start_io(sys.stdin.buffer, wire)
    return 0
