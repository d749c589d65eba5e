"""Compare versions of software as numbers."""

from __future__ import annotations

import re

PRODUCTS = {"torch": "torch_version", "transformer_engine": "te_version"}
"""The products that `target` accepts in addition to Bridge, with the names of their versions in an expression."""
BRIDGE = "bridge_version"
"""The version of Bridge in an expression, which every run has."""
NAMES = (BRIDGE, *PRODUCTS.values())
"""The names of versions in an expression."""
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,2}")


def is_version(text: str) -> bool:
    """Whether a text is one to three numbers of at most four digits, with dots between: 2.10 or 2.6.0."""
    return _VERSION.fullmatch(text) is not None


def as_number(text: str) -> int:
    """Encode a version as an integer, four digits for each part after the first: 2.10.0 is 2_0010_0000; else 0."""
    parts = [int(p) for p in text.split(".")] if is_version(text) else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return (major * 10_000 + minor) * 10_000 + patch


def as_text(number: int) -> str:
    """Write the version of a number: 2_0010_0000 is 2.10.0."""
    rest, patch = divmod(int(number), 10_000)
    return f"{rest // 10_000}.{rest % 10_000}.{patch}"
