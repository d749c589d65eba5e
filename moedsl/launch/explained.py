"""What a job's last lines mean, where moedsl itself wrote them."""

from __future__ import annotations

from collections.abc import Iterable

from moedsl.launch.head_check import WRONG

PREFLIGHT = "moedsl preflight: "
SECRET = 78
"""The exit code of a job without one of its secrets (script.py)."""


def explained(lines: Iterable[str]) -> str:
    """Explain why a job ended before its ranks started, and how to fix it; nothing for any other end."""
    for line in lines:
        at = line.find(PREFLIGHT)
        if at >= 0:
            return f"it checked its machine and ended (exit code {WRONG}): moedsl diagnose '{line[at:]}'"
        if line.startswith("secret ") and line.endswith(" is not set in this job"):
            return f"a secret is missing (exit code {SECRET}): moedsl diagnose '{line}'"
    return ""
