"""`moedsl completion SHELL`: print the completion script of a shell."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli.completion import script


def run(a: Namespace) -> int:
    print(script(a.shell), end="")
    return 0
