"""`moedsl --version`, and the help if no command is given."""

from __future__ import annotations

from argparse import Namespace


def run(a: Namespace) -> int:
    if not a.version:
        a.parser.print_help()
        return 1
    from moedsl.cli.own_version import own_version
    from moedsl.facts import fields

    print(f"moedsl {own_version()}, for Megatron Bridge {', '.join(fields.versions())}")
    return 0
