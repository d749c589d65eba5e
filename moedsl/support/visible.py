"""Show the characters that control a terminal, or that reorder or hide the text around them."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202f\u2060-\u2064\u2066-\u2069\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Controls except tab and newline, marks of writing direction, separators and spaces that look like others or like
nothing, tag characters, and bytes of a file name that are not UTF-8."""


def visible(text: str) -> str:
    r"""Replace these characters by their codes: ``\x1b``, ``<U+202E>``."""
    return HIDDEN.sub(lambda m: _code(m[0]), text)


def in_json(text: str) -> str:
    """Replace these characters by the escapes of JSON, which reads them back as they were."""
    return HIDDEN.sub(lambda m: re.sub("....", r"\\u\g<0>", m[0].encode("utf-16-be", "surrogatepass").hex()), text)


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"<U+{ord(char):04X}>"
