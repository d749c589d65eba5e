"""Read amounts on a command line: a budget of tokens, a price, numbers, a length. Imports only argparse."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

UNITS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
"""Decimal units, as budgets are quoted; a sequence length such as `128k` is binary."""
MOST_TOKENS = 10**18
MOST_LAYOUTS = 100
MOST_PRICE = 10**6
MOST_SECONDS = 10**6
MOST_WHOLE = 999_999_999
_TOKENS = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([A-Za-z]*)", re.ASCII)


def tokens(text: str) -> int:
    """Read a budget in tokens, such as 10T, 1.5B or 500000000; raises ArgumentTypeError with an example."""
    match = _TOKENS.fullmatch(text.strip().replace("_", "").replace(",", ""))
    if match is None or match[2].upper() not in UNITS:
        raise ArgumentTypeError(f"`{text}` is not a number of tokens: write 10T, 500B or 20000M (decimal: 1T is 10^12)")
    value = float(match[1]) * UNITS[match[2].upper()]
    if not 1 <= value <= MOST_TOKENS:
        raise ArgumentTypeError(
            f"`{text}` is not from 1 token to {MOST_TOKENS // 10**12:,}T: write 10T, 500B or 20000M"
        )
    return round(value)


def price(text: str) -> float:
    """Read the price of a GPU-hour, in any currency."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"`{text}` is not a price of a GPU-hour: write a number such as 2.5") from None
    if not (math.isfinite(value) and 0 <= value <= MOST_PRICE):
        raise ArgumentTypeError(f"`{text}` is not a price from 0 to {MOST_PRICE:,} a GPU-hour: write 2.5")
    return value


def _number(text: str) -> float:
    """Read a number; return NaN, which is in no range, if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def seconds(text: str) -> float:
    """Read a time in seconds."""
    if not 0 < (value := _number(text)) <= MOST_SECONDS:
        raise ArgumentTypeError(f"`{text}` is not a number of seconds above 0, such as 60")
    return value


def length(text: str) -> int:
    """Read a sequence length in tokens: 4096 or 128k, where k is 1024 as in a run file."""
    match = re.fullmatch(r"(\d{1,9})(k?)", text, re.ASCII)
    value = int(match[1]) * (1024 if match[2] else 1) if match else 0
    if not 1 <= value <= MOST_WHOLE:
        raise ArgumentTypeError(f"`{text}` is not a sequence length: write 4096 or 128k")
    return value


def whole(text: str) -> int:
    """Read a number of GPUs, sequences or iterations."""
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ArgumentTypeError(f"`{text}` is not a whole number from 0 to {MOST_WHOLE:,}")
    return int(text)


def share(text: str) -> float:
    """Read a share such as 0.02 or 2%."""
    if not 0 <= (value := _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)) < 1:
        raise ArgumentTypeError(f"`{text}` is not a share from 0 to 1: write 2% or 0.02")
    return value


def port(text: str) -> int:
    """Read a port of this machine; the system would truncate a larger number."""
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or int(text) > 65_535:
        raise ArgumentTypeError(f"`{text}` is not a port from 0 to 65535: write --port 8642")
    return int(text)


def _from_one(most: int, example: str) -> Callable[[str], int]:
    """Make a function that reads a whole number from 1 to `most`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= most:
            raise ArgumentTypeError(f"`{text}` is not a whole number from 1 to {most}: write {example}")
        return int(text)

    return read


layouts = _from_one(MOST_LAYOUTS, "--top 10")
"""The number of layouts to list."""
experiments = _from_one(10_000, "--last 10")
"""The number of experiments to list, the newest first."""
jobs = _from_one(1_000, "--budget 10")
"""The number of jobs that may be submitted."""
ranks = _from_one(64, "--ranks 8")
"""The number of processes of a rehearsal."""
steps = _from_one(100, "--iterations 3")
"""The number of iterations of a rehearsal."""
processes = _from_one(1_000, "--processes 4")
"""The number of programs to plan at the same time."""
judges = _from_one(64, "--jobs 2")
"""The number of recipes to check at the same time."""
gpus = _from_one(1_000_000, "--world 8")
"""The number of GPUs for which a recipe is checked."""
