"""What looks like the value of a secret: literals that belong into the environment and not into a file."""

from __future__ import annotations

import math
import re
from collections import Counter

PREFIXES = {
    "hf_": "a Hugging Face token",
    "ghp_": "a GitHub token",
    "gho_": "a GitHub token",
    "github_pat_": "a GitHub token",
    "glpat-": "a GitLab token",
    "nvapi-": "an NVIDIA API key",
    "sk-": "an API key",
    "xox": "a Slack token",
    "AKIA": "an AWS access key",
    "ASIA": "an AWS access key",
    "AIza": "a Google API key",
    "eyJ": "a JSON web token",
}
"""How published token formats start, and what each is."""
_NAMES = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|KEY|APIKEY)(?:S)?$", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9+/=_\-]{12,}")
_LONG = 32
"""Shorter words of mixed letters and digits are names and versions as often as not."""
_BITS = 4.0
"""Shannon entropy of a character: English words and paths are below it, random base64 of this length above."""
_AWS_SECRET = 40
"""The length of an AWS secret key, the one such format with slashes in it."""
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
"""A container image's digest, which is public."""
_MARK = "-----BEGIN"


def value_kind(text: str) -> str | None:
    """What a literal looks like, in words, or None. Nothing of it is repeated."""
    if _MARK in text:
        return "a private key"
    for word in _WORD.findall(text):
        known = next((what for prefix, what in PREFIXES.items() if word.startswith(prefix) and len(word) >= 16), None)
        if known or (_is_random(word) and not _DIGEST.fullmatch(word)):
            return known or "a long random string"
    if re.search(r"://[^/\s:@]+:[^/\s@]+@", text):
        return "an address with a password"
    return None


def is_secret_name(name: str) -> bool:
    """Whether a variable is called as secrets are: HF_TOKEN, WANDB_API_KEY, DB_PASSWORD."""
    return _NAMES.search(name) is not None


def _is_random(word: str) -> bool:
    """Both cases and digits, without the regularity of names; slashes only at the length of a key that has them."""
    if len(word) < _LONG or ("/" in word and len(word) != _AWS_SECRET):
        return False
    mixed = any(c.isdigit() for c in word) and any(c.isupper() for c in word) and any(c.islower() for c in word)
    return re.fullmatch(r"[0-9a-fA-F]{32,}", word) is not None or (mixed and _entropy(word) > _BITS)


def _entropy(word: str) -> float:
    """Bits a character."""
    n = len(word)
    return -sum(c / n * math.log2(c / n) for c in Counter(word).values())
