"""Damage a program as typing, merging and copying do: pieces, lines, tokens, numbers and bytes."""

import random
import re

_PIECES = ["", "(", ")", "{", "}", '"', "\n", ";", "#", "=", " x ", "because", "seq", "%", "\\", "\u00e9", "[", ","]
_NUMBERS = ["0", "-1", "1", "3", "0.5", "1e-9", "1e9", "1e308", "9" * 12, "9" * 40, "1024G", "4,096", "0x10", "50%"]
_NUMBER = re.compile(r"\b\d[\w.]*")
_TOKEN = re.compile(r'"[^"\n]*"|[\w.]+|[^\s\w]')


def pieces(text: str, rng: random.Random) -> str:
    """Put pieces of syntax between and over the characters of a text."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(_PIECES) + text[min(len(text), at + rng.randint(0, 3)) :]
    return text


def damaged(text: str, other: str, rng: random.Random) -> bytes:
    """Damage a text once or twice; lines and tokens come from another text too, and numbers are the most likely."""
    for kind in rng.choices((_lines, _tokens, _numbers, _pieces), (3, 1, 8, 1), k=rng.randint(1, 2)):
        text = kind(text, other, rng)
    return _bytes(text.encode(), rng) if rng.random() < 0.05 else text.encode()


def _pieces(text: str, _: str, rng: random.Random) -> str:
    return pieces(text, rng)


def _lines(text: str, other: str, rng: random.Random) -> str:
    lines = text.splitlines() or [""]
    at, more = rng.randrange(len(lines)), rng.choice([*lines, *other.splitlines()])
    lines[at : at + rng.randint(0, 2)] = rng.choice([[], [more], [lines[at]] * rng.randint(2, 50)])
    return "\n".join(lines)


def _tokens(text: str, other: str, rng: random.Random) -> str:
    words = [""] + [m[0] for m in _TOKEN.finditer(text + other)]
    return _replaced(_TOKEN, text, words, rng)


def _numbers(text: str, _: str, rng: random.Random) -> str:
    return _replaced(_NUMBER, text, _NUMBERS, rng)


def _replaced(what: re.Pattern[str], text: str, words: list[str], rng: random.Random) -> str:
    found = [*what.finditer(text)]
    for m in sorted(rng.sample(found, min(len(found), rng.randint(1, 3))), key=re.Match.start, reverse=True):
        text = text[: m.start()] + rng.choice(words) + text[m.end() :]
    return text


def _bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.randint(0, 3)) + data[at + rng.randint(0, 3) :]
