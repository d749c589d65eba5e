"""Find the installed version of moedsl."""

from __future__ import annotations


def own_version() -> str:
    """The installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("moedsl")
    except PackageNotFoundError:
        return "(not installed)"
