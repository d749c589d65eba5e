"""`moedsl --version`, and the help if no command is given."""

from __future__ import annotations

from argparse import Namespace


def run(a: Namespace) -> int:
    if not a.version:
        a.parser.print_help()
        return 1
    from moedsl.megatron import fields

    print(f"moedsl {own_version()}, for Megatron Bridge {', '.join(fields.versions())}")
    return 0


def own_version() -> str:
    """The installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moedsl")
    except PackageNotFoundError:
        return "(not installed)"
