"""Recognise literals that look like a secret's value, which belongs in the environment and not in a file."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

FORMATS = {
    r"\bhf_[A-Za-z0-9]{30,}": "a Hugging Face token",
    r"\bgh[opsu]_[A-Za-z0-9]{30,}": "a GitHub token",
    r"\bgithub_pat_\w{20,}": "a GitHub token",
    r"\bglpat-[\w-]{20,}": "a GitLab token",
    r"\bnvapi-[\w-]{20,}": "an NVIDIA API key",
    r"\bsk-[\w-]{20,}": "an API key",
    r"\bxox[abeprs]-[\w-]{10,}": "a Slack token",
    r"\bA[KS]IA[0-9A-Z]{16}": "an AWS access key",
    r"\bAIza[\w-]{35}": "a Google API key",
    r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}(?:\.[\w-]+)?": "a JSON web token",
    r"-----BEGIN [A-Z ]*PRIVATE KEY[^\"\n]*": "a private key",
    r"://[^/\s:@]+:[^/\s@]+@": "an address with a password",
}
"""The published formats of tokens, with their names."""
_NAMES = re.compile(
    r"(?:^|_)(?:TOKEN|KEY|APIKEY|PASS|PWD|(?:API|ACCESS|AUTH|SECRET)_(?:TOKENS|KEYS))$"
    r"|(?:SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?$|TOKEN$",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"(?:^|[\s,=:;])([A-Z][A-Z0-9_]*)=[^\s,]")
"""A variable with a value inside a longer text, as in ``--export=ALL,HF_TOKEN=...``."""
_WORD = re.compile(r"[A-Za-z0-9+/_-]{32,}")
_BITS = 4.0
"""Bits of Shannon entropy per character: English words and paths are below it, random base64 of this length above."""
_AWS_SECRET = 40
"""The length of an AWS secret key, the only known format with slashes."""
_DIGEST = re.compile(r"\bsha256:[0-9a-f]{64}\b")
"""A container image's digest, which is public."""


def value_kind(text: str) -> str | None:
    """Name the kind of secret that a literal looks like, or None; the result never contains the literal."""
    known = next((what for form, what in FORMATS.items() if re.search(form, text)), None)
    if known is None and any(is_secret_name(name) for name in _ASSIGNED.findall(text)):
        return "a variable that is called as secrets are, with its value"
    if known is None and not _DIGEST.search(text) and any(map(_is_random, _WORD.findall(text))):
        return "a long random string"
    return known


_TOKEN = "|".join(FORMATS)
_GIVEN = r"\b(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)=(?P<value>[^\s,$\"'<>.][^\s,\"'<>]*)"
"""A variable with its value in any text; a value such as ``$HF_TOKEN`` is none."""
_STATED = r"\b(?P<name>\w+)(?=[ \t]*=?[ \t]*(?:\"(?P<value>[^\"\n]*)|(?<=[ \t])(?P<word>[^\s;,{}\[\]\"=]+)))"
"""A name with the value that a program gives it."""
_KEPT = 3
"""How many characters of a token stay readable."""


def masked(text: str) -> str:
    """Replace tokens, and values of variables with names of secrets, by asterisks; the length stays the same."""
    spans = [(m.start() + _KEPT, m.end()) for m in re.finditer(_TOKEN, text)]
    return _hidden(text, spans + [m.span("value") for m in re.finditer(_GIVEN, text) if is_secret_name(m["name"])])


def masked_line(line: str) -> str:
    """Mask also string literals of a program that look like secrets, and what it gives a name of a secret."""
    spans = [m.span(1) for m in re.finditer(r'"([^"\n]*)', line) if value_kind(m[1])]
    stated = (m for m in re.finditer(_STATED, line) if is_secret_name(m["name"]))
    spans += [m.span("value" if m["word"] is None else "word") for m in stated]
    return masked(_hidden(line, spans))


def _hidden(text: str, spans: Iterable[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + "*" * (end - start) + text[end:]
    return text


def is_secret_name(name: str) -> bool:
    """Whether a variable is named like a secret: HF_TOKEN, WANDB_API_KEY, DB_PASSWORD."""
    return _NAMES.search(name) is not None


def _is_random(word: str) -> bool:
    """Whether a text looks random: hex, or mixed in case and digits; with slashes only at an AWS key's length."""
    if "/" in word and len(word) != _AWS_SECRET:
        return False
    mixed = any(c.isdigit() for c in word) and any(c.isupper() for c in word) and any(c.islower() for c in word)
    shares = [n / len(word) for n in Counter(word).values()]
    bits = -sum(share * math.log2(share) for share in shares)
    return re.fullmatch(r"[0-9a-fA-F]{32,}", word) is not None or (mixed and bits > _BITS)
