"""Read `words.md`, which has an entry for each word that a plan's page uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("words.md")


@cache
def words() -> Mapping[str, str]:
    """Read the text of each word, by the word in small letters."""
    entries = re.split(r"^## (.+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {word.casefold(): text.strip() for word, text in zip(entries[::2], entries[1::2], strict=True)}
