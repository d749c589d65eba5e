"""The amounts on a command line: a budget of tokens, a price, numbers, a length. Imports nothing but argparse."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError

UNITS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
"""Decimal, as budgets are quoted; a sequence's `128k` is binary and is no budget."""
MOST_TOKENS = 10**18
MOST_LAYOUTS = 100
MOST_PRICE = 10**6
MOST_WHOLE = 999_999_999
_TOKENS = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([A-Za-z]*)", re.ASCII)


def tokens(text: str) -> int:
    """A budget such as 10T, 1.5B or 500000000, in tokens; ArgumentTypeError with the way out for anything else."""
    found = _TOKENS.fullmatch(text.strip().replace("_", "").replace(",", ""))
    if found is None or found[2].upper() not in UNITS:
        raise ArgumentTypeError(f"`{text}` is no number of tokens: write 10T, 500B or 20000M (decimal: 1T is 10^12)")
    value = float(found[1]) * UNITS[found[2].upper()]
    if not 1 <= value <= MOST_TOKENS:
        raise ArgumentTypeError(
            f"`{text}` is not from 1 token to {MOST_TOKENS // 10**12:,}T: write 10T, 500B or 20000M"
        )
    return round(value)


def price(text: str) -> float:
    """What a GPU costs an hour, in whatever currency."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"`{text}` is no price of a GPU-hour: write a number such as 2.5") from None
    if not (math.isfinite(value) and 0 <= value <= MOST_PRICE):
        raise ArgumentTypeError(f"`{text}` is not a price from 0 to {MOST_PRICE:,} a GPU-hour: write 2.5")
    return value


def layouts(text: str) -> int:
    """How many layouts to list."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_LAYOUTS:
        raise ArgumentTypeError(f"`{text}` is not a whole number from 1 to {MOST_LAYOUTS}: write --top 10")
    return int(text)


def experiments(text: str) -> int:
    """How many experiments to list, the newest first."""
    return _from_one(text, 10_000, "--last 10")


def length(text: str) -> int:
    """Tokens of a sequence: 4096 or 128k, where k is 1024 as in a run file."""
    found = re.fullmatch(r"(\d{1,9})(k?)", text, re.ASCII)
    value = int(found[1]) * (1024 if found[2] else 1) if found else 0
    if not 1 <= value <= MOST_WHOLE:
        raise ArgumentTypeError(f"`{text}` is no sequence length: write 4096 or 128k")
    return value


def whole(text: str) -> int:
    """How many of something: GPUs, sequences, iterations."""
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ArgumentTypeError(f"`{text}` is no whole number from 0 to {MOST_WHOLE:,}")
    return int(text)


def ranks(text: str) -> int:
    """Processes of a rehearsal."""
    return _from_one(text, 64, "--ranks 8")


def steps(text: str) -> int:
    """Iterations of a rehearsal."""
    return _from_one(text, 100, "--iterations 3")


def _from_one(text: str, most: int, example: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= most:
        raise ArgumentTypeError(f"`{text}` is not a whole number from 1 to {most}: write {example}")
    return int(text)
