"""`moedsl --version`, `schema`, `completion`, `lsp`, `mcp` and `serve`. Each imports only what it needs.

`lsp`, `mcp` and `serve` run until their client or Ctrl-C ends them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction  # pyright: ignore[reportPrivateUsage]

_SCHEMAS = {"plan": "moedsl.planner", "results": "moedsl.runs.results"}
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


def version(a: Namespace) -> int:
    """Print the versions; without `--version`, where to start. Exit code 1 then, since no command was given."""
    if not a.version:
        from moedsl.cli.arguments import STARTS

        rows = (f"  {what}\n      {command}" for what, command in STARTS.items())
        print("moedsl writes training recipes for NVIDIA Megatron Bridge. What do you have?", *rows, sep="\n")
        print("\n`moedsl --help` lists all commands, `moedsl COMMAND --help` shows one with examples.")
        return 1
    from moedsl.cli.console import own_version
    from moedsl.facts import fields

    print(f"moedsl {own_version()}, for Megatron Bridge {', '.join(fields.versions())}")
    return 0


def schema(a: Namespace) -> int:
    """Print the JSON Schema of plan.json, which tools/make_plan_schema.py makes from the plan's classes, or the schema
    of `moedsl results --json`."""
    from importlib.resources import files

    print(files(_SCHEMAS[a.what]).joinpath(f"{a.what}.schema.json").read_text(encoding="utf-8"), end="")
    return 0


def completion(a: Namespace) -> int:
    """Print the completion script of bash or zsh, which shtab makes from the parser of all commands.

    An argument with `choices` completes to them. Any other value may be the name of a file, and completes as one.
    """
    import shtab

    from moedsl.cli.main import parser_for

    parser = parser_for("")
    complete_files(parser)
    print(shtab.complete(parser, a.shell))
    return 0


def complete_files(parser: ArgumentParser) -> None:
    """Make every argument without `choices` complete as a file name, in this parser and its subcommands."""
    import shtab

    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                complete_files(command)
        elif action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue], the attribute is shtab's


def lsp(_: Namespace) -> int:
    """Run the language server on standard input and output until the client exits. Exit code 1 without pygls."""
    if importlib.util.find_spec("pygls") is None:
        print("the language server needs pygls: pip install 'moedsl[lsp]'", file=sys.stderr)
        return 1
    logging.basicConfig(stream=sys.stderr, level=os.environ.get("MOEDSL_LSP_LOG", "WARNING"))
    from moedsl.cli.console import own_version
    from moedsl.lsp import checking, server

    wire = sys.stdout.buffer
    sys.stdout = sys.stderr  # only the protocol may write there
    sys.setswitchinterval(checking.SHORT)
    server.make(own_version()).start_io(sys.stdin.buffer, wire)
    return 0


def mcp(a: Namespace) -> int:
    """Serve assistants on standard input and output until their client ends it."""
    if importlib.util.find_spec("mcp") is None:
        print("the server for assistants needs the protocol's SDK: pip install 'moedsl[mcp]'", file=sys.stderr)
        return 1
    from moedsl.cli.console import own_version
    from moedsl.cli.mcp_server import server

    server(own_version(), a.allow_recipes).run("stdio")
    return 0


def serve(a: Namespace) -> int:
    """Serve the page to plan on until Ctrl-C. Exit code 1, with the reason, if the page cannot be served."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn", "lsprotocol")):
        print("the page needs starlette and uvicorn: pip install 'moedsl[serve]'", file=sys.stderr)
        return 1
    import socket

    import uvicorn

    from moedsl.cli.serve import app

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(a.host, a.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as e:  # a part of the name is too long for a domain
        why = e.strerror if isinstance(e, OSError) else "it is no name of a host"
        print(f"{a.host} port {a.port} cannot be served: {why}; name another --port or --host", file=sys.stderr)
        return 1
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    if host not in ("127.0.0.1", "::1"):
        note = "everybody who reaches this address can plan here, without a password; see docs/serve.md for a proxy"
        print(note, file=sys.stderr)
    application = app.make((*_LOCAL, a.host, *a.name), a.processes or os.cpu_count() or 1)
    server = app.Server(uvicorn.Config(application, log_level="warning"))
    print(f"{url} plans what you type; Ctrl-C ends it", flush=True)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, server.handle_exit)  # as uvicorn does for SIGTERM
    server.run([listening])
    return 0
