"""`moedsl --version`, and the help where no command is given."""

from __future__ import annotations

from argparse import Namespace


def run(a: Namespace) -> int:
    if not a.version:
        a.parser.print_help()
        return 1
    from importlib.metadata import PackageNotFoundError, version

    from moedsl.bridge import fields

    try:
        own = version("moedsl")
    except PackageNotFoundError:
        own = "(not installed)"
    print(f"moedsl {own}, for Megatron Bridge {', '.join(fields.versions())}")
    return 0
