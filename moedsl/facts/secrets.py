"""Recognise literals that look like a secret's value, which belongs in the environment and not in a file."""

from __future__ import annotations

import math
import re
from collections import Counter

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
    r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}": "a JSON web token",
    r"-----BEGIN [A-Z ]*PRIVATE KEY": "a private key",
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
