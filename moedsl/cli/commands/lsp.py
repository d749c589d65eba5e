"""`moedsl lsp`: run the language server on standard input and output."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from argparse import Namespace
from typing import BinaryIO, cast

from moedsl.cli.own_version import own_version


def run(_: Namespace) -> int:
    """Serve until the client exits. Exit code 1 without pygls, or after a header that cannot be followed."""
    if importlib.util.find_spec("pygls") is None:
        print("the language server needs pygls: pip install 'moedsl[lsp]'", file=sys.stderr)
        return 1
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("MOEDSL_LSP_LOG", "WARNING"))
    from lsprotocol import types

    from moedsl.lsp import bounded, server, solving

    wire = sys.stdout.buffer
    sys.stdout = sys.stderr  # only the protocol may write there
    sys.setswitchinterval(solving.SHORT)
    serving = server.make(own_version())
    try:
        serving.start_io(cast(BinaryIO, bounded.Bounded(sys.stdin.buffer)), wire)  # it reads lines and bodies
    except bounded.TooLargeError as problem:
        serving.window_show_message(types.ShowMessageParams(types.MessageType.Error, str(problem)))
        print(problem, file=sys.stderr)
        return 1
    return 0
